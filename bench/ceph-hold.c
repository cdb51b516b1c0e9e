// SPDX-License-Identifier: Apache-2.0
/*
 * Clients that read or write files and keep them open, for bench/ceph-memory: ceph-hold CEPH_CONF small|own|shared CLIENTS
 *
 * Each client is a process with its own mount. With small it writes and reads a file of 4 KiB, with own a file of 8 MiB. With shared all clients
 * read the same file of 64 MiB. Prints "ready" when all clients have done so. The clients end at the end of standard input.
 */
#include "../tests/ceph/lib/ceph.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define MIB (1 << 20)

static struct ceph_mount_info *m;
static UserPerm *perms;
static Inode *root, *in;
static struct Fh *fh;
static char buffer[MIB];

static void start(const char *conf, const char *name, int flags)
{
	struct ceph_statx stx;

	m = mounted(conf);
	perms = ceph_userperm_new(0, 0, 0, NULL);
	MUST(ceph_ll_lookup_root(m, &root));
	MUST(ceph_ll_create(m, root, name, 0644, O_CREAT | flags, &in, &fh, &stx, CEPH_STATX_INO, 0, perms));
}

static void all(long size, int writes)
{
	for (long at = 0; at < size; at += MIB) {
		long length = size - at < MIB ? size - at : MIB;

		MUST(writes ? ceph_ll_write(m, fh, at, length, buffer) : ceph_ll_read(m, fh, at, length, buffer));
	}
}

static void end(const char *name)
{
	ceph_ll_close(m, fh);
	if (name)
		ceph_ll_unlink(m, root, name, perms);
	ceph_unmount(m);
}

int main(int argc, char **argv)
{
	int clients = argc > 3 ? atoi(argv[3]) : 0, shared, status, failed = 0, *ready;
	char name[32], c;

	if (clients < 1 || clients > 4096)
		return 64;
	shared = !strcmp(argv[2], "shared");
	ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared && !fork()) {
		start(argv[1], "hold-shared", O_RDWR);
		all(64L * MIB, 1);
		end(NULL);
		_exit(0);
	}
	while (wait(&status) > 0)
		failed |= status;
	for (int n = 0; n < clients && !failed; n++) {
		if (fork())
			continue;
		snprintf(name, sizeof(name), "hold-%d", getpid());
		start(argv[1], shared ? "hold-shared" : name, shared ? O_RDONLY : O_RDWR);
		if (!shared)
			all(argv[2][0] == 'o' ? 8L * MIB : 4096, 1);
		all(shared ? 64L * MIB : argv[2][0] == 'o' ? 8L * MIB : 4096, 0);
		__atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
		while (read(0, &c, 1) > 0)
			;
		end(shared ? NULL : name);
		_exit(0);
	}
	for (int i = 0; i < 120000 && __atomic_load_n(ready, __ATOMIC_SEQ_CST) < clients; i++)
		usleep(1000);
	puts(__atomic_load_n(ready, __ATOMIC_SEQ_CST) < clients ? "not all" : "ready");
	fflush(stdout);
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}
