/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What is noted of the reads and writes of one process on one file. */
#pragma once

#include <linux/types.h>

enum {
	ACCESS_CALLS = 512, /* numbers of system calls */
	ACCESS_NAME_LENGTH = 64,
	ACCESS_ALIGNMENT = 4096, /* bytes: a page */
};

/* What a system call is. */
enum access_kind {
	ACCESS_NONE,
	ACCESS_READ,
	ACCESS_WRITE,
	ACCESS_OPEN, /* the result is the descriptor, where for the others it is argument 0 */
	ACCESS_KIND = 3, /* mask */
	ACCESS_POSITIONAL = 4, /* flag: argument 3 is the offset, -1 standing for the file's own position */
};

/* Read-only data, by user space. */
struct access_options {
	__u32 own_pid; /* never watch ourselves */
	__u8 any_filesystem; /* not only network file systems and FUSE */
	__u8 only_followed; /* only processes in the map `followed` */
	__u8 reserved[2];
	__u8 kinds[ACCESS_CALLS]; /* enum access_kind */
};

struct access_key {
	__u64 mount; /* device number */
	__u64 inode;
	__u32 pid; /* thread group */
	__u32 reserved;
};

/* Reads, or writes, that did not fail. */
struct transfers {
	__u64 calls;
	__u64 bytes;
	__u64 sequential; /* began where the one before it ended, or behind that */
	__u64 consecutive; /* began just where the one before it ended */
	__u64 unaligned; /* began at no multiple of ACCESS_ALIGNMENT */
	__u64 next; /* offset at which the last one ended */
	__u64 end; /* the greatest such offset */
};

struct access {
	struct transfers read;
	struct transfers written;
	__u64 opens;
	char name[ACCESS_NAME_LENGTH]; /* without folders, as it was first seen */
};
