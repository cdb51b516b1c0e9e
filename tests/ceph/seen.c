// SPDX-License-Identifier: Apache-2.0
/*
 * Makes a known number of requests, none of which a cache can answer.
 *
 *	seen CEPH_CONF COUNT	COUNT times: writes 4096 bytes, reads them, reads them asynchronously, and removes a name that does not exist
 *	seen CEPH_CONF sync	prints that it is ready; for each input line it writes and syncs a file and prints the result
 */
#include "lib/ceph.h"
#include <semaphore.h>

static sem_t answered;

static void answer(struct io *info)
{
	MUST(info->result - 4096);
	sem_post(&answered);
}

int main(int argc, char **argv)
{
	struct ceph_mount_info *m;
	struct ceph_statx stx;
	char buffer[4096] = "", line[64], name[32];
	UserPerm *perms = ceph_userperm_new(0, 0, 0, NULL);
	Inode *root, *in;
	struct Fh *fh;
	int count;

	if (argc != 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	snprintf(name, sizeof(name), "seen-%d", getpid());
	m = mounted(argv[1]);
	MUST(ceph_ll_lookup_root(m, &root));
	MUST(ceph_ll_create(m, root, name, 0600, O_CREAT | O_RDWR, &in, &fh, &stx, ALL, 0, perms));
	if (!strcmp(argv[2], "sync")) {
		puts("ready");
		while (fgets(line, sizeof(line), stdin)) {
			int written = ceph_ll_write(m, fh, 0, sizeof(buffer), buffer);
			int synced = ceph_ll_fsync(m, fh, 0);

			printf("%d %d\n", written, synced);
		}
	} else {
		count = atoi(argv[2]);
		sem_init(&answered, 0, 0);
		for (int i = 0; i < count; i++) {
			struct iovec part = { buffer, sizeof(buffer) };
			struct io info = { .callback = answer, .fh = fh, .iov = &part, .iovcnt = 1 };

			MUST(ceph_ll_write(m, fh, 4096L * i, sizeof(buffer), buffer) - 4096);
			MUST(ceph_ll_read(m, fh, 4096L * i, sizeof(buffer), buffer) - 4096);
			MUST(ceph_ll_nonblocking_readv_writev(m, &info));
			sem_wait(&answered);
			MUST(-(ceph_ll_unlink(m, root, "there-is-no-such-name", perms) != -ENOENT));
		}
	}
	MUST(ceph_ll_close(m, fh));
	MUST(ceph_ll_unlink(m, root, name, perms));
	ceph_ll_put(m, in);
	ceph_ll_put(m, root);
	MUST(ceph_unmount(m));
	MUST(ceph_release(m));
	ceph_userperm_destroy(perms);
	puts("done");
	return 0;
}
