// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The files that processes have mapped, by iter/task_vma. The iterator locks each process's memory map for reading, so it waits for a
 * process that hangs while it changes its map. Therefore only people use it, who can interrupt it, and the daemon does not.
 */
#include "../bpf/kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	struct file *vm_file;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};
#pragma clang attribute pop

/* Too long for the stack. The object is loaded for one reader. */
char path[PATH_LENGTH];

SEC("iter/task_vma")
int areas(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *area = ctx->vma;
	struct task_struct *task = ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct area_record r = {};
	struct file *file;
	long length;

	if (!task || !area)
		return 0;
	file = area->vm_file;
	if (!file)
		return 0;
	r.start = area->vm_start;
	r.end = area->vm_end;
	r.inode = file->f_inode->i_ino;
	r.tgid = task->tgid;
	r.device = file->f_inode->i_sb->s_dev;
	r.flags = area->vm_flags & 0xf;
	length = bpf_d_path(&file->f_path, path, sizeof(path));
	if (length > 1 && length <= (long)sizeof(path))
		r.path_length = length - 1;
	bpf_seq_write(seq, &r, sizeof(r));
	if (r.path_length)
		bpf_seq_write(seq, path, r.path_length & (PATH_LENGTH - 1));
	return 0;
}
