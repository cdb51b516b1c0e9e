/*
 * A library that smb_up (lib.sh) preloads into smbd: makes reads, writes or fsyncs slow or failing, at run time. It affects only
 * files below /srv, so that smbd's own databases stay fast.
 *
 * The control file has a line of "milliseconds errno" for each operation, 7 columns each, in the order of enum op. slow_smbd (lib.sh)
 * rewrites it in place. The library maps the file, so that a check without a fault costs no system call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KNOBS_FILE "/dev/shm/slowsmbd"
#define SHARES "/srv/"

enum op { READ, WRITE, FSYNC, OPS };

struct knob {
	char ms[8];
	char error[8];
};

static const struct knob *knobs;

__attribute__((constructor)) static void map_knobs(void)
{
	int fd = open(KNOBS_FILE, O_RDONLY | O_CLOEXEC);
	void *map;

	if (fd < 0)
		return;
	map = mmap(NULL, OPS * sizeof(*knobs), PROT_READ, MAP_SHARED, fd, 0);
	if (map != MAP_FAILED)
		knobs = map;
	close(fd);
}

static int is_shared(int fd)
{
	char link[32], path[sizeof(SHARES) - 1];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof(path)) == sizeof(path) && !memcmp(path, SHARES, sizeof(path));
}

/* Sleeps for the configured time. Returns -1 with errno set if the call must fail. */
static int interfere(enum op op, int fd)
{
	int ms, error;

	if (!knobs)
		return 0;
	ms = atoi(knobs[op].ms);
	error = atoi(knobs[op].error);
	if ((!ms && !error) || !is_shared(fd))
		return 0;
	usleep(ms * 1000);
	if (!error)
		return 0;
	errno = error;
	return -1;
}

ssize_t pread64(int fd, void *buf, size_t count, off64_t offset)
{
	ssize_t (*next)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");

	return interfere(READ, fd) ? -1 : next(fd, buf, count, offset);
}

ssize_t pwrite64(int fd, const void *buf, size_t count, off64_t offset)
{
	ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");

	return interfere(WRITE, fd) ? -1 : next(fd, buf, count, offset);
}

int fsync(int fd)
{
	int (*next)(int) = dlsym(RTLD_NEXT, "fsync");

	return interfere(FSYNC, fd) ? -1 : next(fd);
}

/* On 64-bit systems, the functions without the suffix 64 are the same calls. */
ssize_t pread(int fd, void *buf, size_t count, off_t offset)
{
	return pread64(fd, buf, count, offset);
}

ssize_t pwrite(int fd, const void *buf, size_t count, off_t offset)
{
	return pwrite64(fd, buf, count, offset);
}
