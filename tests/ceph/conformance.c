// SPDX-License-Identifier: Apache-2.0
/*
 * Calls all functions of libcephfs that the proxy has, with calls that must work and calls that must fail. The output with libcephfs and with
 * the proxy must be equal. It contains nothing that differs from run to run (inode numbers, times).
 *
 *	conformance CEPH_CONF DIRECTORY
 */
#include "lib/ceph.h"
#include <sys/statvfs.h>
#include <sys/xattr.h>

#define SHOW(call)                                    \
	({                                            \
		long result_ = (long)(call);          \
		printf("%s = %ld\n", #call, result_); \
		result_;                              \
	})

static struct ceph_mount_info *m;
static UserPerm *root_user, *nobody;
static struct ceph_statx stx;
static Inode *root, *dir, *in, *in2;
static struct Fh *fh;
static char buffer[3 << 20], other[3 << 20];

static void show_statx(void)
{
	printf("  mode %o nlink %u uid %u gid %u size %llu rdev %llu\n", stx.stx_mode, stx.stx_nlink, stx.stx_uid,
	       stx.stx_gid, (unsigned long long)stx.stx_size, (unsigned long long)stx.stx_rdev);
}

static void mounting(const char *conf)
{
	char value[64] = "";
	int major = -1, minor = -1, patch = -1;

	printf("version %s\n", ceph_version(&major, &minor, &patch));
	printf("version %d %d %d\n", major, minor, patch);
	SHOW(ceph_create(&m, "admin"));
	SHOW(ceph_conf_read_file(m, "/does/not/exist"));
	SHOW(ceph_conf_read_file(m, conf));
	SHOW(ceph_conf_set(m, "client_acl_type", "posix_acl"));
	SHOW(ceph_conf_set(m, "no_such_option", "1"));
	SHOW(ceph_conf_get(m, "client_acl_type", value, sizeof(value)));
	printf("  %s\n", value);
	SHOW(ceph_conf_get(m, "client_acl_type", value, 3));
	SHOW(ceph_conf_get(m, "no_such_option", value, sizeof(value)));
	SHOW(ceph_init(m));
	SHOW(ceph_select_filesystem(m, "cephfs"));
	SHOW(ceph_unmount(m));
	SHOW(ceph_mount(m, NULL));
	SHOW(ceph_mount(m, NULL));
	SHOW(ceph_conf_get(m, "client_acl_type", value, sizeof(value)));
	SHOW(ceph_release(m));
	root_user = ceph_userperm_new(0, 0, 0, NULL);
	gid_t groups[] = { 65534, 100 };
	nobody = ceph_userperm_new(65534, 65534, 2, groups);
	printf("perms %d %d %d\n", !!root_user, !!nobody, !!ceph_mount_perms(m));
}

static void names(const char *name)
{
	char target[64];
	Inode *gone;
	struct Fh *file;

	SHOW(ceph_ll_lookup_root(m, &root));
	SHOW(ceph_ll_getattr(m, root, &stx, ALL, 0, root_user));
	SHOW(ceph_ll_mkdir(m, root, name, 0755, &dir, &stx, ALL, 0, root_user));
	show_statx();
	SHOW(ceph_ll_mkdir(m, root, name, 0755, &in, &stx, ALL, 0, root_user));
	SHOW(ceph_ll_create(m, dir, "file", 0640, O_CREAT | O_RDWR, &in, &fh, &stx, ALL, 0, root_user));
	show_statx();
	SHOW(ceph_ll_create(m, dir, "file", 0640, O_CREAT | O_EXCL | O_RDWR, &gone, &file, &stx, ALL, 0, root_user));
	SHOW(ceph_ll_create(m, dir, "denied", 0640, O_CREAT | O_RDWR, &gone, &file, &stx, ALL, 0, nobody));
	SHOW(ceph_ll_lookup(m, dir, "file", &in2, &stx, ALL, 0, root_user));
	show_statx();
	struct inodeno_t number = { stx.stx_ino };
	SHOW(ceph_ll_put(m, in2));
	SHOW(ceph_ll_lookup_inode(m, number, &in2));
	SHOW(ceph_ll_getattr(m, in2, &stx, ALL, 0, root_user));
	show_statx();
	SHOW(ceph_ll_put(m, in2));
	SHOW(ceph_ll_lookup(m, dir, "missing", &in2, &stx, ALL, 0, root_user));
	SHOW(ceph_ll_lookup(m, in, "below a file", &in2, &stx, ALL, 0, root_user));
	memset(target, 'n', sizeof(target));
	memset(buffer, 'n', 300);
	buffer[300] = 0;
	SHOW(ceph_ll_lookup(m, dir, buffer, &in2, &stx, ALL, 0, root_user));
	SHOW(ceph_ll_mknod(m, dir, "fifo", S_IFIFO | 0600, 0, &in2, &stx, ALL, 0, root_user));
	show_statx();
	SHOW(ceph_ll_put(m, in2));
	SHOW(ceph_ll_symlink(m, dir, "link", "file", &in2, &stx, ALL, 0, root_user));
	printf("  mode %o size %llu\n", stx.stx_mode, (unsigned long long)stx.stx_size);
	memset(target, 0, sizeof(target));
	SHOW(ceph_ll_readlink(m, in2, target, sizeof(target), root_user));
	printf("  %s\n", target);
	SHOW(ceph_ll_readlink(m, in2, target, 2, root_user));
	SHOW(ceph_ll_put(m, in2));
	SHOW(ceph_ll_readlink(m, in, target, sizeof(target), root_user));
	SHOW(ceph_ll_link(m, in, dir, "hard", root_user));
	SHOW(ceph_ll_link(m, in, dir, "hard", root_user));
	SHOW(ceph_ll_getattr(m, in, &stx, ALL, 0, root_user));
	show_statx();
	SHOW(ceph_ll_rename(m, dir, "hard", dir, "moved", root_user));
	SHOW(ceph_ll_rename(m, dir, "hard", dir, "moved", root_user));
	SHOW(ceph_ll_unlink(m, dir, "moved", nobody));
	SHOW(ceph_ll_unlink(m, dir, "moved", root_user));
	SHOW(ceph_ll_unlink(m, dir, "moved", root_user));
	SHOW(ceph_ll_rmdir(m, root, name, root_user));
	SHOW(ceph_ll_unlink(m, root, name, root_user));
}

static void attributes(void)
{
	char value[128] = "";
	size_t size = 0;
	struct statvfs fs;

	memset(&stx, 0, sizeof(stx));
	stx.stx_mode = 0604;
	SHOW(ceph_ll_setattr(m, in, &stx, CEPH_SETATTR_MODE, root_user));
	printf("  mode %o\n", stx.stx_mode);
	stx.stx_uid = 1000;
	SHOW(ceph_ll_setattr(m, in, &stx, CEPH_SETATTR_UID, nobody));
	stx.stx_mtime.tv_sec = 1000000000;
	stx.stx_mtime.tv_nsec = 5;
	SHOW(ceph_ll_setattr(m, in, &stx, CEPH_SETATTR_MTIME, root_user));
	SHOW(ceph_ll_getattr(m, in, &stx, ALL, 0, root_user));
	printf("  mtime %lld.%09ld\n", (long long)stx.stx_mtime.tv_sec, stx.stx_mtime.tv_nsec);
	SHOW(ceph_ll_setxattr(m, in, "user.colour", "green", 5, XATTR_CREATE, root_user));
	SHOW(ceph_ll_setxattr(m, in, "user.colour", "green", 5, XATTR_CREATE, root_user));
	SHOW(ceph_ll_setxattr(m, in, "user.none", "", 0, XATTR_REPLACE, root_user));
	SHOW(ceph_ll_getxattr(m, in, "user.colour", NULL, 0, root_user));
	SHOW(ceph_ll_getxattr(m, in, "user.colour", value, 3, root_user));
	SHOW(ceph_ll_getxattr(m, in, "user.colour", value, sizeof(value), root_user));
	printf("  %s\n", value);
	SHOW(ceph_ll_getxattr(m, in, "user.none", value, sizeof(value), root_user));
	SHOW(ceph_ll_listxattr(m, in, NULL, 0, &size, root_user));
	printf("  size %zu\n", size);
	SHOW(ceph_ll_listxattr(m, in, value, 3, &size, root_user));
	SHOW(ceph_ll_listxattr(m, in, value, sizeof(value), &size, root_user));
	printf("  size %zu: %s\n", size, value);
	memset(buffer, 'x', 70000);
	SHOW(ceph_ll_setxattr(m, in, "user.large", buffer, 40000, 0, root_user));
	SHOW(ceph_ll_getxattr(m, in, "user.large", other, sizeof(other), root_user));
	printf("  same %d\n", memcmp(buffer, other, 40000) == 0);
	SHOW(ceph_ll_setxattr(m, in, "user.larger", buffer, 70000, 0, root_user));
	SHOW(ceph_ll_removexattr(m, in, "user.large", root_user));
	SHOW(ceph_ll_removexattr(m, in, "user.colour", root_user));
	SHOW(ceph_ll_removexattr(m, in, "user.colour", root_user));
	SHOW(ceph_ll_statfs(m, root, &fs));
	printf("  bsize %lu frsize %lu namemax %lu blocks %d\n", fs.f_bsize, fs.f_frsize, fs.f_namemax,
	       fs.f_blocks > 0);
}

static int called;

static void completed(struct io *info)
{
	(void)info;
	__atomic_add_fetch(&called, 1, __ATOMIC_SEQ_CST);
}

/* Uses synchronous calls if this libcephfs has no asynchronous ones. */
static int64_t asynchronous(bool writes, struct iovec *parts, int count, int64_t offset, int64_t *result)
{
	static struct io info;

	if (!ceph_ll_nonblocking_readv_writev) {
		*result = 0;
		for (int i = 0; i < count; i++) {
			int64_t at = offset + *result;
			*result += writes ? ceph_ll_write(m, fh, at, parts[i].iov_len, parts[i].iov_base) :
					    ceph_ll_read(m, fh, at, parts[i].iov_len, parts[i].iov_base);
		}
		called++;
		return 0;
	}
	info = (struct io){
		.callback = completed, .fh = fh, .iov = parts, .iovcnt = count, .off = offset, .write = writes
	};
	int before = __atomic_load_n(&called, __ATOMIC_SEQ_CST);
	int64_t said = ceph_ll_nonblocking_readv_writev(m, &info);
	for (int i = 0; i < 5000 && __atomic_load_n(&called, __ATOMIC_SEQ_CST) == before; i++)
		usleep(1000);
	*result = info.result;
	return said;
}

static void files(void)
{
	struct Fh *reader = NULL;
	int64_t result = 0;

	for (size_t i = 0; i < sizeof(buffer); i++)
		buffer[i] = (char)(i * 7 + i / 4099);
	SHOW(ceph_ll_write(m, fh, 0, 5, "hello"));
	SHOW(ceph_ll_read(m, fh, 0, 100, other));
	SHOW(ceph_ll_read(m, fh, 3, 1, other));
	printf("  %c\n", other[0]);
	SHOW(ceph_ll_read(m, fh, 5, 10, other));
	SHOW(ceph_ll_read(m, fh, 500, 10, other));
	SHOW(ceph_ll_write(m, fh, 4096, sizeof(buffer), buffer));
	SHOW(ceph_ll_fsync(m, fh, 0));
	SHOW(ceph_ll_fsync(m, fh, 1));
	memset(other, 0, sizeof(other));
	SHOW(ceph_ll_read(m, fh, 4096, sizeof(other), other));
	printf("  same %d\n", memcmp(buffer, other, sizeof(buffer)) == 0);
	SHOW(ceph_ll_read(m, fh, 4096 + 1000, sizeof(other), other));
	printf("  same %d\n", memcmp(buffer + 1000, other, sizeof(buffer) - 1000) == 0);
	SHOW(ceph_ll_lseek(m, fh, 10, SEEK_SET));
	SHOW(ceph_ll_lseek(m, fh, 10, SEEK_CUR));
	SHOW(ceph_ll_lseek(m, fh, 0, SEEK_END));
	SHOW(ceph_ll_lseek(m, fh, -1, SEEK_SET));
	SHOW(ceph_ll_fallocate(m, fh, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 4096, 4096));
	SHOW(ceph_ll_read(m, fh, 4096, 4096, other));
	printf("  zero %d\n", other[0] == 0 && other[4095] == 0);
	SHOW(ceph_ll_fallocate(m, fh, 0x40, 0, 1));
	struct iovec parts[] = { { buffer, 1000 }, { buffer + 5000, 3000 } };
	SHOW(asynchronous(true, parts, 2, 100, &result));
	printf("  result %lld called %d\n", (long long)result, called);
	struct iovec back[] = { { other, 1500 }, { other + 1500, 2500 } };
	SHOW(asynchronous(false, back, 2, 100, &result));
	printf("  result %lld called %d same %d\n", (long long)result, called,
	       memcmp(other, buffer, 1000) == 0 && memcmp(other + 1000, buffer + 5000, 3000) == 0);
	SHOW(ceph_ll_close(m, fh));
	SHOW(ceph_ll_open(m, in, O_RDONLY, &reader, root_user));
	SHOW(ceph_ll_write(m, reader, 0, 1, "x"));
	SHOW(ceph_ll_read(m, reader, 0, 5, other));
	SHOW(ceph_ll_close(m, reader));
	/* libcephfs 16 keeps the handle even if the next call fails, and crashes later because of it. */
	reader = NULL;
	SHOW(ceph_ll_open(m, in, O_WRONLY, &reader, nobody));
	SHOW(ceph_ll_open(m, in, O_RDONLY, &reader, nobody));
	SHOW(ceph_ll_close(m, reader));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void directories(void)
{
	static char seen[4096][300];
	struct ceph_dir_result *d;
	struct dirent entry;
	int count = 0, result;
	char name[32];

	for (int i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "entry-with-a-name-%d", i);
		if (ceph_ll_mknod(m, dir, name, S_IFREG | 0600, 0, &in2, &stx, ALL, 0, root_user) == 0)
			ceph_ll_put(m, in2);
	}
	SHOW(ceph_ll_opendir(m, in, &d, root_user));
	SHOW(ceph_ll_opendir(m, dir, &d, root_user));
	while ((result = ceph_readdir_r(m, d, &entry)) > 0 && count < 4096) {
		snprintf(seen[count++], sizeof(seen[0]), "%s %d %d", entry.d_name, entry.d_type, entry.d_reclen);
	}
	printf("readdir_r %d entries, then %d\n", count, result);
	printf("first %s, %s\n", seen[0], seen[1]);
	qsort(seen, count, sizeof(seen[0]), by_name);
	for (int i = 0; i < count; i += 50)
		printf("  %s\n", seen[i]);
	SHOW(ceph_readdir_r(m, d, &entry));
	ceph_rewinddir(m, d);
	struct dirent *e = ceph_readdir(m, d);
	printf("readdir %s\n", e ? e->d_name : "none");
	for (count = 1; ceph_readdir(m, d); count++)
		;
	printf("readdir %d entries\n", count);
	SHOW(ceph_ll_releasedir(m, d));
	for (int i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "entry-with-a-name-%d", i);
		ceph_ll_unlink(m, dir, name, root_user);
	}
}

static void paths(const char *name)
{
	char path[256];

	printf("cwd %s\n", ceph_getcwd(m));
	SHOW(ceph_chdir(m, "/no such directory"));
	snprintf(path, sizeof(path), "/%s", name);
	SHOW(ceph_chdir(m, path));
	printf("cwd %s\n", ceph_getcwd(m));
	static const char *const walked[] = { "file", "link", ".", "", "..", "/", "missing", "file/x", "../." };
	for (size_t i = 0; i < sizeof(walked) / sizeof(walked[0]); i++) {
		int result = ceph_ll_walk(m, walked[i], &in2, &stx, ALL, 0, root_user);
		printf("walk '%s' = %d\n", walked[i], result);
		if (result == 0) {
			printf("  type %o\n", stx.stx_mode & S_IFMT);
			ceph_ll_put(m, in2);
		}
	}
	int result = ceph_ll_walk(m, "link", &in2, &stx, ALL, AT_SYMLINK_NOFOLLOW, root_user);
	printf("walk link itself = %d type %o\n", result, stx.stx_mode & S_IFMT);
	ceph_ll_put(m, in2);
	SHOW(ceph_chdir(m, "file"));
	SHOW(ceph_chdir(m, ".."));
	printf("cwd %s\n", ceph_getcwd(m));
}

static void the_end(const char *name)
{
	SHOW(ceph_ll_unlink(m, dir, "file", root_user));
	SHOW(ceph_ll_unlink(m, dir, "link", root_user));
	SHOW(ceph_ll_unlink(m, dir, "fifo", root_user));
	SHOW(ceph_ll_put(m, in));
	SHOW(ceph_ll_put(m, dir));
	SHOW(ceph_ll_rmdir(m, root, name, root_user));
	SHOW(ceph_ll_put(m, root));
	ceph_userperm_destroy(root_user);
	ceph_userperm_destroy(nobody);
	SHOW(ceph_unmount(m));
	SHOW(ceph_unmount(m));
	SHOW(ceph_release(m));
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 64;
	setvbuf(stdout, NULL, _IOLBF, 0);
	mounting(argv[1]);
	names(argv[2]);
	attributes();
	files();
	directories();
	paths(argv[2]);
	the_end(argv[2]);
	return 0;
}
