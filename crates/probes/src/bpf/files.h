/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Which file systems are remote, and which file a descriptor refers to. */
#pragma once

#include "kernel.h"

/* File systems with a server or a daemon behind them, by s_magic (include/uapi/linux/magic.h and their own headers). */
static __always_inline bool is_remote(unsigned long magic)
{
	switch ((__u32)magic) {
	case 0xff534d42: /* cifs */
	case 0xfe534d42: /* cifs, SMB2 and later */
	case 0x00006969: /* nfs */
	case 0x00c36400: /* ceph */
	case 0x65735546: /* fuse, virtiofs */
	case 0x01021997: /* 9p */
	case 0x5346414f: /* OpenAFS */
	case 0x6b414653: /* afs, the kernel's own */
	case 0x73757245: /* coda */
	case 0x0bd00bd0: /* lustre */
	case 0x19830326: /* beegfs */
	case 0x47504653: /* gpfs */
	case 0x20030528: /* orangefs */
		return true;
	}
	return false;
}

/* The open file of a descriptor; NULL if there is none. No reference is held: the descriptor may change at any time. */
static __always_inline struct file *file_of(const struct task_struct *task, int descriptor)
{
	struct fdtable *table;
	struct files_struct *files = task->files;
	struct file *file = NULL;

	if (!files)
		return NULL;
	table = files->fdt;
	if ((__u32)descriptor >= table->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), (void *)table->fd + sizeof(file) * (__u32)descriptor);
	return file;
}
