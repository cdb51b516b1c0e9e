/*
 * A library that path_smb_up (vm/guest/path.sh) preloads into smbd: delays opening, stat, renaming and removing of files below /srv
 * by the milliseconds in /dev/shm/slowmeta (7 digits, rewritten in place).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *knob;

__attribute__((constructor)) static void map_knob(void)
{
	int fd = open("/dev/shm/slowmeta", O_RDONLY | O_CLOEXEC);
	void *map;

	if (fd < 0)
		return;
	map = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
	if (map != MAP_FAILED)
		knob = map;
	close(fd);
}

static void wait_below(int fd)
{
	char link[32], path[5];
	int ms = knob ? atoi(knob) : 0;

	if (!ms)
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path)) == sizeof(path) && !memcmp(path, "/srv/", sizeof(path)))
		usleep(ms * 1000);
}

int openat(int fd, const char *path, int flags, ...)
{
	int (*next)(int, const char *, int, ...) = dlsym(RTLD_NEXT, "openat");
	mode_t mode = 0;
	va_list rest;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(rest, flags);
		mode = va_arg(rest, mode_t);
		va_end(rest);
	}
	wait_below(fd);
	return next(fd, path, flags, mode);
}

int fstatat(int fd, const char *path, struct stat *at, int flags)
{
	int (*next)(int, const char *, struct stat *, int) = dlsym(RTLD_NEXT, "fstatat");

	wait_below(fd);
	return next(fd, path, at, flags);
}

int renameat(int from, const char *old, int to, const char *new)
{
	int (*next)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");

	wait_below(from);
	return next(from, old, to, new);
}

int unlinkat(int fd, const char *path, int flags)
{
	int (*next)(int, const char *, int) = dlsym(RTLD_NEXT, "unlinkat");

	wait_below(fd);
	return next(fd, path, flags);
}
