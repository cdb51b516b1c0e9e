// SPDX-License-Identifier: Apache-2.0
/*
 * Measures operations per second of the library that it is linked against, libcephfs or the proxy's: ceph CEPH_CONF OPERATION PROCESSES SECONDS
 *
 * Each process has its own mount and a file of 4 MiB, which is cached completely. Prints one number: operations per second of all
 * processes, or MiB per second for operations on 1 MiB.
 */
#include "../tests/ceph/lib/ceph.h"
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SIZE (4 << 20)
#define MIB (1 << 20)

static struct ceph_mount_info *m;
static UserPerm *perms;
static Inode *root, *in;
static struct Fh *fh;
static char name[32], buffer[MIB];

static void op_statx(long i)
{
	struct ceph_statx stx;

	(void)i;
	MUST(ceph_ll_getattr(m, in, &stx, CEPH_STATX_BASIC_STATS, 0, perms));
}

static void op_lookup(long i)
{
	struct ceph_statx stx;
	Inode *found;

	(void)i;
	MUST(ceph_ll_lookup(m, root, name, &found, &stx, CEPH_STATX_BASIC_STATS, 0, perms));
	MUST(ceph_ll_put(m, found));
}

static void op_open(long i)
{
	struct Fh *file;

	(void)i;
	MUST(ceph_ll_open(m, in, O_RDONLY, &file, perms));
	MUST(ceph_ll_close(m, file));
}

static void op_read4k(long i)
{
	MUST(ceph_ll_read(m, fh, i * 4096 % SIZE, 4096, buffer));
}

static void op_read1m(long i)
{
	MUST(ceph_ll_read(m, fh, i * MIB % SIZE, MIB, buffer));
}

static void op_write4k(long i)
{
	MUST(ceph_ll_write(m, fh, i * 4096 % SIZE, 4096, buffer));
}

static void op_write1m(long i)
{
	MUST(ceph_ll_write(m, fh, i * MIB % SIZE, MIB, buffer));
}

#define DEPTH 8

static void completed(struct io *io)
{
	MUST(io->result);
	sem_post(io->priv);
}

static void op_async4k(long i)
{
	static bool ready;
	static struct io ios[DEPTH];
	static struct iovec iovs[DEPTH];
	static sem_t done[DEPTH];
	int at = i % DEPTH;

	if (!ready) {
		ready = true;
		MUST(ceph_ll_nonblocking_readv_writev ? 0 : -ENOSYS);
		for (int n = 0; n < DEPTH; n++)
			sem_init(&done[n], 0, 1);
	}
	while (sem_wait(&done[at]))
		;
	iovs[at] = (struct iovec){ buffer + at * 4096, 4096 };
	ios[at] = (struct io){ .callback = completed, .priv = &done[at], .fh = fh, .iov = &iovs[at], .iovcnt = 1 };
	ios[at].off = i * 4096 % SIZE;
	MUST(ceph_ll_nonblocking_readv_writev(m, &ios[at]));
}

static const struct {
	const char *name;
	void (*run)(long i);
} operations[] = { { "statx", op_statx },      { "lookup+put", op_lookup }, { "open+close", op_open },
		   { "read-4k", op_read4k },   { "read-1m", op_read1m },    { "write-4k", op_write4k },
		   { "write-1m", op_write1m }, { "async-4k", op_async4k } };

static void prepare(const char *conf, bool writes)
{
	struct ceph_statx stx;

	MUST(ceph_create(&m, "admin"));
	MUST(ceph_conf_read_file(m, conf));
	MUST(ceph_mount(m, NULL));
	perms = ceph_userperm_new(0, 0, 0, NULL);
	MUST(ceph_ll_lookup_root(m, &root));
	snprintf(name, sizeof(name), "bench-%d", getpid());
	MUST(ceph_ll_create(m, root, name, 0644, O_CREAT | O_RDWR, &in, &fh, &stx, CEPH_STATX_INO, 0, perms));
	for (int offset = 0; offset < SIZE; offset += MIB)
		MUST(ceph_ll_write(m, fh, offset, MIB, buffer));
	for (int offset = 0; offset < SIZE; offset += MIB)
		MUST(ceph_ll_read(m, fh, offset, MIB, buffer));
	if (writes)
		return;
	MUST(ceph_ll_close(m, fh));
	MUST(ceph_ll_open(m, in, O_RDONLY, &fh, perms));
	/* Read everything again after more than a second: only then does the proxy cache the data. */
	for (int offset = 0; offset < 4 * SIZE; offset += MIB) {
		MUST(ceph_ll_read(m, fh, offset % SIZE, MIB, buffer));
		if (offset == 2 * SIZE)
			usleep(1100000);
	}
}

int main(int argc, char **argv)
{
	void (*run)(long i) = NULL;
	int processes = argc > 3 ? atoi(argv[3]) : 0, status, failed = 0;
	double seconds = argc > 4 ? atof(argv[4]) : 0, sum = 0;
	struct {
		int ready, go;
		double rate[];
	} *shared = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; argc > 2 && i < sizeof(operations) / sizeof(operations[0]); i++)
		if (!strcmp(operations[i].name, argv[2]))
			run = operations[i].run;
	if (!run || processes < 1 || processes > 4096 || seconds <= 0)
		return 64;
	for (int p = 0; p < processes; p++) {
		if (fork())
			continue;
		prepare(argv[1], run == op_write4k || run == op_write1m);
		__atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST);
		while (!__atomic_load_n(&shared->go, __ATOMIC_SEQ_CST))
			usleep(1000);
		double start = now(), end;
		long count = 0;
		do {
			for (int i = 0; i < 16; i++)
				run(count++);
			end = now();
		} while (end - start < seconds);
		shared->rate[p] = count / (end - start);
		sleep(run == op_async4k); /* lets asynchronous operations complete */
		/* Without an unmount, the other clients would wait minutes for this client's session to expire. */
		ceph_ll_close(m, fh);
		ceph_ll_unlink(m, root, name, perms);
		ceph_unmount(m);
		_exit(0);
	}
	for (int i = 0; i < 60000 && __atomic_load_n(&shared->ready, __ATOMIC_SEQ_CST) < processes; i++)
		usleep(1000);
	__atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
	while (wait(&status) > 0)
		failed |= status;
	for (int p = 0; p < processes; p++)
		sum += shared->rate[p];
	printf("%.0f\n", sum);
	return failed != 0;
}
