/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Types of the FUSE client (fs/fuse/fuse_i.h, fuse_dev_i.h) and of its protocol (include/uapi/linux/fuse.h). */
#pragma once

#include "../bpf/kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct fuse_in_header {
	__u32 len; /* with this header */
	__u32 opcode;
	__u64 unique;
	__u64 nodeid;
	__u32 pid; /* the requester's thread, in the mount's pid namespace; 0: nobody's, or not there */
};

struct fuse_out_header {
	__u32 len; /* with this header */
	__s32 error; /* 0 or a negative errno */
	__u64 unique; /* 0: no answer of the daemon */
};

struct fuse_arg {
	unsigned int size;
	void *value;
};

struct fuse_args {
	struct fuse_arg out_args[2];
};

struct pid_namespace___fuse {
	unsigned int level; /* 0: the first */
};

struct fuse_conn {
	struct pid_namespace___fuse *pid_ns;
	__u32 dev; /* the first superblock's */
};

struct fuse_mount {
	struct fuse_conn *fc;
	struct super_block *sb;
};

struct fuse_chan {
	struct fuse_conn *conn;
};

struct fuse_req {
	struct fuse_args *args;
	struct {
		struct {
			int counter;
		} refs;
	} count; /* 0: freed */
	unsigned long flags; /* bits: enum fuse_req_flag */
	struct {
		struct fuse_in_header h;
	} in;
	struct {
		struct fuse_out_header h;
	} out;
};

/* Until Linux 7.2 */
struct fuse_req___mount {
	struct fuse_mount *fm;
};

/* From Linux 7.3 on */
struct fuse_req___channel {
	struct fuse_chan *chan;
};

/* The state with which a thread of the daemon copies a request. */
struct fuse_copy_state {
	struct fuse_req *req; /* NULL: it has not copied a request, but an interrupt or forgotten inodes */
};

enum fuse_req_flag {
	FR_BACKGROUND = 2,
	FR_SENT = 8,
	FR_FINISHED = 9,
};

#pragma clang attribute pop

enum { FUSE_READ = 15, FUSE_WRITE = 16, FUSE_OUT_HEADER = 16 };

/* One of enum fuse_req_flag; their numbers have moved. */
#define HAS_FLAG(flags, flag) ((flags) >> bpf_core_enum_value(enum fuse_req_flag, flag) & 1)
