/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the C programs of tests/ceph and bench: includes of libcephfs, and macros that end the program on an error. */
#pragma once
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <cephfs/libcephfs.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ALL CEPH_STATX_ALL_STATS

/* Defined as in libcephfs 19 and newer. Older versions do not have the function. */
struct io {
	void (*callback)(struct io *io);
	void *priv;
	struct Fh *fh;
	const struct iovec *iov;
	int iovcnt;
	int64_t off;
	int64_t result;
	bool write, fsync, syncdataonly;
};
int64_t ceph_ll_nonblocking_readv_writev(struct ceph_mount_info *cmount, struct io *io) __attribute__((weak));

/* Returns the time in seconds. */
static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* MUST(call): returns the result, or ends the program if it is an error. */
static inline long must(const char *what, long result)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s = %ld: %s\n", program_invocation_short_name, what, result, strerror(-result));
		_exit(1);
	}
	return result;
}
#define MUST(call) must(#call, (long)(call))

static inline struct ceph_mount_info *mounted(const char *conf)
{
	struct ceph_mount_info *mount;

	MUST(ceph_create(&mount, "admin"));
	MUST(ceph_conf_read_file(mount, conf));
	MUST(ceph_mount(mount, NULL));
	return mount;
}
