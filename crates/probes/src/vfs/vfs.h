/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Types of the VFS, and the codes of its operations. */
#pragma once

#include "../bpf/event.h"
#include "../bpf/kernel.h"

/* In the order of PROTOCOL in mod.rs. */
enum operation {
	VFS_READ,
	VFS_WRITE,
	VFS_OPEN,
	VFS_RELEASE,
	VFS_FSYNC,
	VFS_FLUSH,
	VFS_LOCK,
	VFS_MMAP,
	VFS_LOOKUP,
	VFS_GETATTR,
	VFS_SETATTR,
	VFS_READDIR,
	VFS_RENAME,
	VFS_UNLINK,
	VFS_MKDIR,
	VFS_RMDIR,
	VFS_FALLOCATE,
	VFS_COPY_FILE_RANGE,
	VFS_SPLICE_READ,
	VFS_WRITEBACK,
	VFS_REVALIDATE,
	VFS_OPERATIONS,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct nameidata {
	struct path path;
	struct qstr last;
};

struct open_flags {
	int open_flag;
	int acc_mode;
};

/* 7.2 has parents where 6.12 has directories, but the dentries keep their names. */
struct renamedata {
	struct dentry *old_dentry;
	unsigned int flags;
};

struct iattr {
	unsigned int ia_valid;
	long long ia_size;
};

struct flock {
	long long l_start;
	long long l_len;
};

struct iov_iter {
	unsigned long count;
};

struct address_space {
	struct inode *host;
};

enum writeback_sync_modes {
	WB_SYNC_NONE,
};

struct writeback_control {
	long long range_start;
	enum writeback_sync_modes sync_mode;
};

#pragma clang attribute pop

enum {
	ATTR_SIZE = 1 << 3,
	SB_KERNMOUNT = 1 << 22,
	MAX_ERRNO = 4095,
	ECHILD = 10,
	EINTR = 4,
	ERESTARTSYS = 512,
	EOPENSTALE = 518,
	EIOCBQUEUED = 529
};
