/* The load of tests/vm/vfs: a known number of each VFS operation in one folder, which must be empty. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define must(call) must_be((call) >= 0, #call)
#define fails_with(code, call) must_be((call) < 0 && errno == (code), #call " fails with " #code)

static void must_be(int true_, const char *what)
{
	if (true_)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

int main(int arguments, char **argument)
{
	static char page[4096], listing[65536];
	struct iovec vector[2] = { { page, 1000 }, { page + 1000, 24 } };
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 20 };
	struct stat stat;
	char name[64];
	void *mapped;
	int n, file, copy, folder, null;

	if (arguments != 2 || chdir(argument[1]))
		return 64;
	null = open("/dev/null", O_WRONLY);
	/* mkdir 3, rmdir 2, without an earlier lookup of the names */
	for (n = 0; n < 3; n++) {
		sprintf(name, "folder%d", n);
		must(mkdir(name, 0755));
	}
	must(rmdir("folder0"));
	must(rmdir("folder1"));
	/* open 2, write 5 + 2 + 1, fsync 2 + 1 */
	file = open("folder2/file", O_RDWR | O_CREAT, 0644);
	copy = open("folder2/copy", O_RDWR | O_CREAT, 0644);
	must(file);
	must(copy);
	for (n = 0; n < 5; n++)
		must(write(file, page, 4096));
	for (n = 0; n < 2; n++)
		must(pwritev(file, vector, 2, 20480));
	must(pwrite(file, page, 100, 0));
	must(fsync(file));
	must(fsync(file));
	must(fdatasync(file));
	/* read 5 + 2 + 1, and 1 at the end of the file */
	must(lseek(file, 0, SEEK_SET));
	for (n = 0; n < 5; n++)
		must(read(file, page, 4096));
	for (n = 0; n < 2; n++)
		must(preadv(file, vector, 2, 20480));
	must(pread(file, page, 100, 0));
	must(pread(file, page, 100, 1 << 20));
	/* fallocate 1; getattr 4, setattr 1 + 1 */
	fallocate(copy, 0, 0, 8192);
	for (n = 0; n < 4; n++)
		must(fstat(file, &stat));
	must(fchmod(file, 0600));
	must(ftruncate(copy, 0));
	/* lock 2 + 2 */
	fcntl(file, F_SETLK, &lock);
	lock.l_type = F_UNLCK;
	fcntl(file, F_SETLK, &lock);
	flock(copy, LOCK_EX);
	flock(copy, LOCK_UN);
	/* mmap 2 */
	for (n = 0; n < 2; n++) {
		mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
		must_be(mapped != MAP_FAILED, "mmap");
		must(munmap(mapped, 4096)); /* a mapping would keep the file open */
	}
	/* splice_read 1, copy_file_range 1 */
	must(lseek(file, 0, SEEK_SET));
	must(sendfile(null, file, NULL, 4096));
	syscall(SYS_copy_file_range, file, &(long long){ 0 }, copy, &(long long){ 0 }, 4096, 0);
	/* flush and release 2 */
	must(close(copy));
	must(close(file));
	/* rename 2, unlink 2 */
	must(rename("folder2/file", "folder2/renamed"));
	must(rename("folder2/renamed", "folder2/file"));
	must(unlink("folder2/copy"));
	must(unlink("folder2/file"));
	/* readdir 2: one returns the entries, one the end; open, flush and release 1 */
	folder = open(".", O_RDONLY | O_DIRECTORY);
	must(folder);
	while (syscall(SYS_getdents64, folder, listing, sizeof(listing)) > 0)
		;
	must(close(folder));
	/* open 3 that fail with ENOENT */
	for (n = 0; n < 3; n++) {
		sprintf(name, "folder2/missing%d", n);
		fails_with(ENOENT, open(name, O_RDONLY));
	}
	/* rmdir 1 */
	must(rmdir("folder2"));
	return 0;
}
