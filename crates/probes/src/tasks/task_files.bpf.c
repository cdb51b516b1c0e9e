// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Every open file, by iter/task_file. The iterator reads only what the kernel has in memory and does not ask the file system,
 * so a server that hangs does not matter. Threads that share their table of files count as one.
 */
#include "../bpf/kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct vfsmount;

struct mount {
	struct vfsmount {
		void *mnt_root;
	} mnt;
	int mnt_id;
};

struct path___mount {
	struct vfsmount *mnt;
};

struct super_block___subtype {
	struct file_system_type *s_type;
	const char *s_subtype;
};

struct file___open {
	struct path f_path;
	unsigned int f_flags;
	long long f_pos;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};
#pragma clang attribute pop

/* Too long for the stack. The object is loaded for one reader. */
char path[PATH_LENGTH];

SEC("iter/task_file")
int files(struct bpf_iter__task_file *ctx)
{
	const struct super_block___subtype *super;
	struct task_struct *task = ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct file_record r = {};
	struct file *file = ctx->file;
	const void *mount;
	long length;

	if (!task || !file)
		return 0;
	super = (const void *)file->f_inode->i_sb;
	mount = BPF_CORE_READ((struct path___mount *)&file->f_path, mnt);
	r.inode = file->f_inode->i_ino;
	r.position = ((struct file___open *)file)->f_pos;
	r.tgid = task->tgid;
	r.fd = ctx->fd;
	r.device = file->f_inode->i_sb->s_dev;
	r.mount = BPF_CORE_READ((struct mount *)(mount - bpf_core_field_offset(struct mount, mnt)), mnt_id);
	r.flags = ((struct file___open *)file)->f_flags;
	r.mode = file->f_inode->i_mode;
	__builtin_memcpy(r.comm, task->comm, sizeof(r.comm));
	bpf_probe_read_kernel_str(r.fstype, sizeof(r.fstype), super->s_type->name);
	bpf_probe_read_kernel_str(r.subtype, sizeof(r.subtype), super->s_subtype);
	length = bpf_d_path(&file->f_path, path, sizeof(path));
	/* bpf_d_path() may refuse: the path is too long, or its mount has been detached from every tree. */
	if (length > 1 && length <= (long)sizeof(path))
		r.path_length = length - 1;
	bpf_seq_write(seq, &r, sizeof(r));
	if (r.path_length)
		bpf_seq_write(seq, path, r.path_length & (PATH_LENGTH - 1));
	return 0;
}
