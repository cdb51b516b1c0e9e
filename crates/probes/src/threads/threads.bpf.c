// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Where every thread is now. Read when operations seem to hang, to distinguish hanging operations from operations whose end was
 * missed. (procfs shows this, too, but /proc/PID/syscall takes a lock that a thread holds while it closes files in execve, even
 * if the server hangs.)
 */
#include "../bpf/caller.h"
#include "../bpf/files.h"
#include "iterator.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct___state {
	unsigned int __state; /* since Linux 5.14; 0 is TASK_RUNNING */
};
#pragma clang attribute pop

SEC("iter/task")
int threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	const struct pt_regs___kernel *regs;
	struct thread t = {};
	struct file *file;
	__u16 mode;

	if (!task)
		return 0;
	t.tid = task->pid;
	t.without_calls = !!(((struct task_struct___flags *)task)->flags & TASK_WITHOUT_CALLS) || is_compat(task);
	t.asleep = !!((struct task_struct___state *)task)->__state;
	if (!t.without_calls) {
		regs = (const void *)bpf_task_pt_regs(task);
		t.call = call_number(regs);
		file = file_of(task, ARGUMENT_0(regs));
		mode = file ? BPF_CORE_READ(file, f_inode, i_mode) : 0;
		t.no_file = mode && !S_ISREG(mode) && !S_ISDIR(mode);
	}
	bpf_seq_write(ctx->meta->seq, &t, sizeof(t));
	return 0;
}
