// SPDX-License-Identifier: Apache-2.0
/*
 * Opens a file of each kind, then reads a command per line and prints one answer each. A test can thus end the daemon at a known
 * moment: hold CEPH_CONF
 */
#include "lib/crash.h"
#include <sys/wait.h>

/* Opens a file in a snapshot. The live file has been replaced since. */
static Inode *snapshot(struct Fh **fh)
{
	static char data[BLOCK];
	struct ceph_statx stx;
	struct Fh *live;
	Inode *dir, *snaps, *in;
	char name[32];

	sprintf(name, "crash.snap.%d", getpid());
	MUST(ceph_ll_mkdir(m, root, name, 0755, &dir, &stx, ALL, 0, perms));
	make(dir, "file", O_EXCL, &live);
	fill(data, 7, 0, BLOCK);
	MUST(ceph_ll_write(m, live, 0, BLOCK, data));
	MUST(ceph_ll_fsync(m, live, 0));
	snaps = look_up(dir, ".snap");
	MUST(ceph_ll_mkdir(m, snaps, "then", 0755, &in, &stx, ALL, 0, perms));
	MUST(ceph_ll_write(m, live, 0, BLOCK / 2, data + 1));
	MUST(ceph_ll_close(m, live));
	in = look_up(in, "file");
	MUST(ceph_ll_open(m, in, O_RDONLY, fh, perms));
	return in;
}

static void hold(void)
{
	static char data[BLOCK];
	struct ceph_dir_result *dir;
	struct ceph_statx stx;
	struct dirent entry;
	struct Fh *fh[3], *read, *then;
	Inode *in[3], *old = snapshot(&then), *list = look_up(root, "crash.list"), *file = look_up(root, "crash.read");
	char line[64], name[32];

	MUST(ceph_ll_open(m, file, O_RDONLY, &read, perms));
	MUST(ceph_ll_lseek(m, read, 1000, SEEK_SET));
	MUST(ceph_ll_opendir(m, list, &dir, perms));
	for (int i = 0; i < 700; i++)
		MUST(ceph_readdir_r(m, dir, &entry) - 1);
	for (int i = 0; i < 3; i++) {
		sprintf(name, "crash.hold.%d.%d", getpid(), i);
		in[i] = make(root, name, O_EXCL, &fh[i]);
		MUST(ceph_ll_setattr(m, in[i], &(struct ceph_statx){ .stx_mode = 0400 }, CEPH_SETATTR_MODE, perms));
	}
	puts("holding");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int number = line[strcspn(line, "012")] - '0';
		double before = now();
		long result = -ENOSYS;

		if (strncmp(line, "write", 5) == 0) {
			fill(data, number, 0, BLOCK);
			result = ceph_ll_write(m, fh[number], 0, BLOCK, data);
		} else if (strncmp(line, "fsync", 5) == 0) {
			result = ceph_ll_fsync(m, fh[number], 0);
		} else if (strncmp(line, "close", 5) == 0) {
			result = ceph_ll_close(m, fh[number]);
		} else if (strncmp(line, "check", 5) == 0) {
			result = ceph_ll_read(m, fh[number], 0, BLOCK, data);
			if (result == BLOCK)
				result = right(data, number, 0, BLOCK);
		} else if (strncmp(line, "open", 4) == 0) {
			result = ceph_ll_open(m, in[number], O_RDWR, &fh[number], perms);
		} else if (strncmp(line, "stat", 4) == 0) {
			result = ceph_ll_getattr(m, file, &stx, ALL, 0, perms);
		} else if (strncmp(line, "unlink", 6) == 0) {
			sprintf(name, "crash.hold.%d.%d", getpid(), number);
			result = ceph_ll_unlink(m, root, name, perms);
		} else if (strncmp(line, "then", 4) == 0) {
			result = ceph_ll_getattr(m, old, &stx, ALL, 0, perms);
			if (result == 0)
				result = ceph_ll_read(m, then, 0, BLOCK, data);
			if (result == BLOCK)
				result = right(data, 7, 0, BLOCK);
		} else if (strncmp(line, "seek", 4) == 0) {
			result = ceph_ll_lseek(m, read, 0, SEEK_CUR);
		} else if (strncmp(line, "list", 4) == 0) {
			int left = 0;

			while ((result = ceph_readdir_r(m, dir, &entry)) > 0)
				left++;
			/* includes . and .. */
			result = result ? result : left;
		} else if (strncmp(line, "fork", 4) == 0) {
			pid_t child = fork();
			int status = -1;

			if (child == 0) {
				Inode *own;

				result = ceph_ll_lookup_root(m, &own);
				result = result ? result : ceph_ll_getattr(m, own, &stx, ALL, 0, perms);
				_exit(result ? 1 : ceph_ll_getattr(m, file, &stx, ALL, 0, perms) == -EIO ? 0 : 2);
			}
			waitpid(child, &status, 0);
			result = status;
		} else if (strncmp(line, "mount", 5) == 0) {
			struct ceph_mount_info *other;

			result = ceph_create(&other, "admin");
		}
		printf("%ld\n", result);
		fprintf(stderr, "%.3f %s", now() - before, line);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 64;
	start(argv[1]);
	hold();
	end();
	return 0;
}
