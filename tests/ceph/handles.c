// SPDX-License-Identifier: Apache-2.0
/*
 * The daemon refuses invalid handles and handles of other clients, without harm to anybody. A forked child has its own mount. A client can
 * hold many objects, and the daemon gets them back. Linked with the proxy only: libcephfs would crash on most of these calls.
 *
 *	handles CEPH_CONF [hold]	hold: opens some files, reports this, and waits to be killed
 */
#include "lib/ceph.h"
#include <pthread.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

static struct ceph_mount_info *m, *m2;
static UserPerm *perms;
static Inode *root, *root2, *in;
static struct Fh *fh;
static struct ceph_statx stx;
static struct statvfs fs;
static char buffer[4096];
static int failed;

static void refused(const char *what, long result)
{
	if (result == -EBADF || result == -EINVAL)
		return;
	printf("not refused: %s = %ld\n", what, result);
	failed = 1;
}
#define REFUSED(call) refused(#call, (long)(call))

/* Passes an invalid handle to each function that takes an inode, a file or a directory. */
static void all_refused(struct ceph_mount_info *c, void *bad)
{
	Inode *out;
	struct Fh *file;
	struct ceph_dir_result *dir;
	struct dirent entry;
	size_t size;

	REFUSED(ceph_ll_lookup(c, bad, "x", &out, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_put(c, bad));
	REFUSED(ceph_ll_getattr(c, bad, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_setattr(c, bad, &stx, CEPH_SETATTR_MODE, perms));
	REFUSED(ceph_ll_open(c, bad, O_RDONLY, &file, perms));
	REFUSED(ceph_ll_create(c, bad, "x", 0600, O_CREAT, &out, &file, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_mknod(c, bad, "x", S_IFREG, 0, &out, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_mkdir(c, bad, "x", 0700, &out, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_symlink(c, bad, "x", "y", &out, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_link(c, bad, root, "x", perms));
	REFUSED(ceph_ll_link(c, in, bad, "x", perms));
	REFUSED(ceph_ll_rename(c, bad, "x", root, "y", perms));
	REFUSED(ceph_ll_rename(c, root, "x", bad, "y", perms));
	REFUSED(ceph_ll_unlink(c, bad, "x", perms));
	REFUSED(ceph_ll_rmdir(c, bad, "x", perms));
	REFUSED(ceph_ll_statfs(c, bad, &fs));
	REFUSED(ceph_ll_readlink(c, bad, buffer, sizeof(buffer), perms));
	REFUSED(ceph_ll_getxattr(c, bad, "user.x", buffer, sizeof(buffer), perms));
	REFUSED(ceph_ll_setxattr(c, bad, "user.x", buffer, 1, 0, perms));
	REFUSED(ceph_ll_listxattr(c, bad, buffer, sizeof(buffer), &size, perms));
	REFUSED(ceph_ll_removexattr(c, bad, "user.x", perms));
	REFUSED(ceph_ll_opendir(c, bad, &dir, perms));
	REFUSED(ceph_ll_read(c, bad, 0, 1, buffer));
	REFUSED(ceph_ll_write(c, bad, 0, 1, buffer));
	REFUSED(ceph_ll_lseek(c, bad, 0, SEEK_SET));
	REFUSED(ceph_ll_fsync(c, bad, 0));
	REFUSED(ceph_ll_fallocate(c, bad, 0, 0, 1));
	REFUSED(ceph_ll_close(c, bad));
	REFUSED(ceph_readdir_r(c, bad, &entry));
	REFUSED(ceph_ll_releasedir(c, bad));
	ceph_rewinddir(c, bad);
	if (ceph_readdir(c, bad))
		refused("ceph_readdir", 0);
}

static void mounts_refused(void *bad)
{
	Inode *out;
	char value[8];

	REFUSED(ceph_conf_read_file(bad, NULL));
	REFUSED(ceph_conf_set(bad, "a", "b"));
	REFUSED(ceph_conf_get(bad, "a", value, sizeof(value)));
	REFUSED(ceph_init(bad));
	REFUSED(ceph_select_filesystem(bad, "a"));
	REFUSED(ceph_mount(bad, NULL));
	REFUSED(ceph_unmount(bad));
	REFUSED(ceph_release(bad));
	REFUSED(ceph_chdir(bad, "/"));
	REFUSED(ceph_ll_lookup_root(bad, &out));
	REFUSED(ceph_ll_walk(bad, "/", &out, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_getattr(bad, root, &stx, ALL, 0, perms));
	if (ceph_getcwd(bad) || ceph_mount_perms(bad))
		refused("ceph_getcwd, ceph_mount_perms", 0);
	if (bad != (void *)perms)
		ceph_userperm_destroy(bad);
}

static void refusals(void)
{
	static uint64_t memory[16];
	void *bad[] = { NULL, (void *)1, (void *)-1, (void *)-4095, memory, m, perms, (char *)root + (1ULL << 32) };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		all_refused(m, bad[i]);
		if (bad[i] != (void *)m)
			mounts_refused(bad[i]);
	}
	all_refused(m, root2); /* a handle of another mount */
	all_refused(m2, in);
	Inode *gone;
	MUST(ceph_ll_lookup_root(m2, &gone));
	ceph_ll_put(m2, gone);
	ceph_ll_put(m2, root2);
	all_refused(m2, gone);
	REFUSED(ceph_ll_getattr(m, root, &stx, ALL, 0, NULL));
	REFUSED(ceph_ll_getattr(m, root, &stx, ALL, 0, (UserPerm *)root));
	REFUSED(ceph_ll_getattr(m, root, NULL, ALL, 0, perms));
	REFUSED(ceph_ll_lookup(m, root, NULL, &gone, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_lookup(m, root, "x", NULL, &stx, ALL, 0, perms));
	REFUSED(ceph_ll_read(m, fh, 0, 1, NULL));
	REFUSED(ceph_ll_write(m, fh, 0, 1, NULL));
	REFUSED(ceph_create(NULL, "admin"));
	REFUSED(ceph_ll_read(m, fh, INT64_MAX, 1 << 20, buffer) <= 0 ? -EINVAL : 1);
	MUST(ceph_ll_getattr(m, root, &stx, ALL, 0, perms));
}

#define FAILS(error, call)                                                                          \
	do {                                                                                        \
		long result = (call);                                                               \
		if (result != -(error))                                                             \
			printf("not refused by " #error ": " #call " = %ld\n", result), failed = 1; \
	} while (0)
#define NO_PARENT(call) FAILS(ENOTDIR, call)

/* Calls for which libcephfs asserts and ends the process. */
static void asserted(void)
{
	Inode *file, *out;
	struct Fh *open;
	char byte;

	REFUSED(ceph_ll_open(m, in, O_RDWR | O_CREAT, &open, perms));
	/* A file as the parent. It has a second name, so it is certainly no directory. */
	MUST(ceph_ll_link(m, in, root, "handles.2", perms));
	MUST(ceph_ll_lookup(m, root, "handles", &file, &stx, 0, 0, perms));
	MUST(ceph_ll_put(m, file));
	MUST(ceph_ll_lookup(m, root, "handles.2", &file, &stx, 0, 0, perms));
	for (int i = 0; i < 2; i++) {
		NO_PARENT(ceph_ll_mkdir(m, file, "x", 0700, &out, &stx, ALL, 0, perms));
		NO_PARENT(ceph_ll_mknod(m, file, "x", S_IFREG, 0, &out, &stx, ALL, 0, perms));
		NO_PARENT(ceph_ll_symlink(m, file, "x", "y", &out, &stx, ALL, 0, perms));
		NO_PARENT(ceph_ll_create(m, file, "x", 0600, O_CREAT, &out, &open, &stx, ALL, 0, perms));
		NO_PARENT(ceph_ll_link(m, in, file, "x", perms));
		NO_PARENT(ceph_ll_rename(m, file, "x", root, "y", perms));
		NO_PARENT(ceph_ll_rename(m, root, "handles", file, "y", perms));
		NO_PARENT(ceph_ll_unlink(m, file, "x", perms));
		NO_PARENT(ceph_ll_rmdir(m, file, "x", perms));
		/* The result is the same for the inode that is looked up by its number. */
		MUST(ceph_ll_put(m, file));
		MUST(ceph_ll_lookup_inode(m, (struct inodeno_t){ stx.stx_ino }, &file));
	}
	MUST(ceph_ll_put(m, file));
	MUST(ceph_ll_unlink(m, root, "handles.2", perms));
	MUST(ceph_ll_lookup_inode(m, (struct inodeno_t){ 1 }, &out));
	MUST(ceph_ll_rename(m, out, "handles", out, "handles", perms));
	MUST(ceph_ll_put(m, out));
	/* mknod makes no directory, and a directory cannot be read as a file: a reader would wait forever. */
	FAILS(EPERM, ceph_ll_mknod(m, root, "handles.d", S_IFDIR | 0700, 0, &out, &stx, ALL, 0, perms));
	MUST(ceph_ll_mkdir(m, root, "handles.d", 0700, &out, &stx, ALL, 0, perms));
	MUST(ceph_ll_open(m, out, O_RDONLY, &open, perms));
	FAILS(EISDIR, ceph_ll_read(m, open, 0, sizeof(byte), &byte));
	MUST(ceph_ll_close(m, open));
	MUST(ceph_ll_put(m, out));
	MUST(ceph_ll_rmdir(m, root, "handles.d", perms));
}

/* A mount that is impossible must not stay in the daemon. Then mounts a root that does not exist, which is retried. */
static void unmountable(const char *conf)
{
	struct ceph_mount_info *none;

	MUST(ceph_create(&none, "admin"));
	MUST(ceph_conf_set(none, "mon_host", "/"));
	for (int i = 0; i < 2; i++)
		if (ceph_mount(none, NULL) >= 0)
			printf("mounted from nowhere\n"), failed = 1;
	MUST(ceph_release(none));
	MUST(ceph_create(&none, "admin"));
	MUST(ceph_conf_read_file(none, conf));
	MUST(ceph_init(none));
	MUST(ceph_init(none));
	for (int i = 0; i < 2; i++)
		if (ceph_mount(none, "/not there") != -ENOENT)
			printf("a root that is not there was mounted\n"), failed = 1;
	MUST(ceph_mount(none, NULL));
	MUST(ceph_unmount(none));
	MUST(ceph_release(none));
}

static void *threaded(void *arg)
{
	struct ceph_statx own;
	char page[4096];

	(void)arg;
	for (int i = 0; i < 500; i++) {
		Inode *found;
		MUST(ceph_ll_lookup(m, root, "handles", &found, &own, ALL, 0, perms));
		MUST(ceph_ll_read(m, fh, 0, sizeof(page), page));
		MUST(ceph_ll_put(m, found));
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[24];

	for (int i = 0; i < 24; i++)
		pthread_create(&thread[i], NULL, threaded, NULL);
	for (int i = 0; i < 24; i++)
		pthread_join(thread[i], NULL);
}

static void forks(void)
{
	int status = 0;

	for (int i = 0; i < 3; i++) {
		pid_t child = fork();

		if (child == 0) {
			Inode *own;
			long old = ceph_ll_getattr(m, root, &stx, ALL, 0, perms);

			if (old != -EIO && old != -EBADF)
				printf("a parent's inode in a child: %ld\n", old), _exit(1);
			MUST(ceph_ll_lookup_root(m, &own));
			MUST(ceph_ll_getattr(m, own, &stx, ALL, 0, perms));
			MUST(ceph_unmount(m));
			_exit(0);
		}
		MUST(ceph_ll_getattr(m, root, &stx, ALL, 0, perms));
		waitpid(child, &status, 0);
		if (status) {
			printf("failed: the child, %d\n", status);
			failed = 1;
		}
		MUST(ceph_ll_getattr(m, root, &stx, ALL, 0, perms));
	}
}

static struct ceph_dir_result *listed;
static bool enough;

static void *lists(void *arg)
{
	struct dirent entry;

	while (!__atomic_load_n(&enough, __ATOMIC_SEQ_CST)) {
		ceph_rewinddir(m, listed);
		while (MUST(ceph_readdir_r(m, listed, &entry)) > 0)
			;
	}
	return arg;
}

/* A child that was forked while its parent was listing a directory gets an error and does not wait for the parent's thread. */
static void forks_while_listing(void)
{
	struct dirent entry;
	pthread_t thread;
	int status = 0;

	MUST(ceph_ll_opendir(m, root, &listed, perms));
	pthread_create(&thread, NULL, lists, NULL);
	for (int i = 0; i < 20 && !status; i++) {
		pid_t child = fork();

		if (child == 0) {
			alarm(5);
			_exit(ceph_readdir_r(m, listed, &entry) != -EIO || ceph_readdir(m, listed));
		}
		waitpid(child, &status, 0);
	}
	if (status) {
		printf("failed: a child while its parent lists, %d\n", status);
		failed = 1;
	}
	__atomic_store_n(&enough, true, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	MUST(ceph_ll_releasedir(m, listed));
}

static void many(void)
{
	static struct Fh *files[2000];

	for (int i = 0; i < 2000; i++)
		MUST(ceph_ll_open(m, in, O_RDONLY, &files[i], perms));
	for (int i = 0; i < 2000; i++)
		MUST(ceph_ll_close(m, files[i]));
	for (int i = 0; i < 5000; i++) {
		Inode *found;
		MUST(ceph_ll_lookup(m, root, "handles", &found, &stx, ALL, 0, perms));
		if (i % 2)
			MUST(ceph_ll_put(m, found));
	}
	for (int i = 0; i < 2500; i++)
		MUST(ceph_ll_put(m, in));
}

#define JOBS 200
static int done;

static void completed(struct io *io)
{
	(void)io;
	__atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
}

/* Starts more requests at once than there are slots. One of them is larger than a slot. */
static void run_jobs(bool writes, char *memory, size_t size)
{
	static struct io jobs[JOBS];
	static struct iovec parts[JOBS][2];

	__atomic_store_n(&done, 0, __ATOMIC_SEQ_CST);
	for (int i = 0; i < JOBS; i++) {
		size_t length = i == 7 ? 3 << 20 : size;
		char *at = i == 7 ? memory + JOBS * size : memory + i * size;

		parts[i][0] = (struct iovec){ at, length / 3 };
		parts[i][1] = (struct iovec){ at + length / 3, length - length / 3 };
		jobs[i] = (struct io){ .callback = completed, .fh = fh, .iov = parts[i], .iovcnt = 2 };
		jobs[i].off = at - memory;
		jobs[i].write = writes;
		jobs[i].fsync = i == 11;
		MUST(ceph_ll_nonblocking_readv_writev(m, &jobs[i]));
	}
	for (int i = 0; i < 20000 && __atomic_load_n(&done, __ATOMIC_SEQ_CST) < JOBS; i++)
		usleep(1000);
	if (done != JOBS)
		printf("%d of %d asynchronous requests completed\n", done, JOBS), failed = 1;
	for (int i = 0; i < JOBS; i++)
		if (jobs[i].result != (int64_t)(i == 7 ? 3 << 20 : size))
			printf("asynchronous request %d: %lld\n", i, (long long)jobs[i].result), failed = 1;
}

static void asynchronous(void)
{
	size_t size = 10000, all = JOBS * size + (3 << 20);
	char *from = malloc(all), *to = calloc(1, all);

	for (size_t i = 0; i < all; i++)
		from[i] = (char)(i * 13 + i / 1021);
	run_jobs(true, from, size);
	run_jobs(false, to, size);
	/* The seventh request is at another offset and leaves a hole. */
	memset(from + 7 * size, 0, size);
	if (memcmp(from, to, all))
		printf("asynchronous requests read something else than they wrote\n"), failed = 1;
	struct io bad = { .callback = completed, .fh = (void *)root };
	REFUSED(ceph_ll_nonblocking_readv_writev(m, &bad));
	REFUSED(ceph_ll_nonblocking_readv_writev(m, NULL));
	free(from);
	free(to);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 64;
	perms = ceph_userperm_new(0, 0, 0, NULL);
	m = mounted(argv[1]);
	MUST(ceph_ll_lookup_root(m, &root));
	MUST(ceph_ll_create(m, root, "handles", 0644, O_CREAT | O_RDWR, &in, &fh, &stx, ALL, 0, perms));
	MUST(ceph_ll_write(m, fh, 0, sizeof(buffer), buffer));
	if (argc > 2) {
		struct ceph_dir_result *dir;

		MUST(ceph_ll_opendir(m, root, &dir, perms));
		puts("holding");
		fflush(stdout);
		pause();
	}
	m2 = mounted(argv[1]);
	MUST(ceph_ll_lookup_root(m2, &root2));
	unmountable(argv[1]);
	refusals();
	asserted();
	threads();
	asynchronous();
	forks();
	forks_while_listing();
	many();
	MUST(ceph_ll_close(m, fh));
	MUST(ceph_unmount(m2));
	MUST(ceph_release(m2));
	MUST(ceph_unmount(m));
	MUST(ceph_release(m));
	puts(failed ? "failed" : "all refused");
	return failed;
}
