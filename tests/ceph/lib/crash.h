/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by both programs of tests/ceph/crash: a mount, and files whose content is a function of number and offset. */
#pragma once
#include "ceph.h"

#define ENTRIES 1500
#define SIZE (4 << 20)
#define BLOCK 5000

static struct ceph_mount_info *m;
static UserPerm *perms;
static Inode *root;

/* Returns the byte at an offset of a file. */
static inline char byte(uint64_t file, uint64_t offset)
{
	uint64_t x = (offset / 8 + file * 1000003) * 0x9e3779b97f4a7c15ULL;

	return (char)(x >> (offset % 8 * 8));
}

static inline void fill(char *to, uint64_t file, uint64_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		to[i] = byte(file, offset + i);
}

static inline bool right(const char *have, uint64_t file, uint64_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (have[i] != byte(file, offset + i))
			return false;
	return true;
}

static inline void start(const char *conf)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	perms = ceph_userperm_new(0, 0, 0, NULL);
	m = mounted(conf);
	MUST(ceph_ll_lookup_root(m, &root));
}

static inline void end(void)
{
	MUST(ceph_unmount(m));
	MUST(ceph_release(m));
}

static inline Inode *look_up(Inode *parent, const char *name)
{
	struct ceph_statx stx;
	Inode *found;

	MUST(ceph_ll_lookup(m, parent, name, &found, &stx, ALL, 0, perms));
	return found;
}

static inline Inode *make(Inode *parent, const char *name, int flags, struct Fh **fh)
{
	struct ceph_statx stx;
	Inode *in;

	MUST(ceph_ll_create(m, parent, name, 0644, O_CREAT | O_RDWR | flags, &in, fh, &stx, ALL, 0, perms));
	return in;
}
