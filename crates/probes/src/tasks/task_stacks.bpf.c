// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Kernel stacks of the threads that are blocked, and of all threads of some processes: where they wait, and for what. */
#include "../threads/iterator.h"
#include "task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct stack_options options SEC(".rodata.options") = {};

/* Too long for the stack. The object is loaded for one reader. */
__u64 frames[STACK_DEPTH];

SEC("iter/task")
int stacks(struct bpf_iter__task *ctx)
{
	struct task_struct___all *task = (void *)ctx->task;
	struct stack_record r = {};
	bool wanted = false;
	__u32 bytes = 0;
	long size;

	if (!task)
		return 0;
	for (int i = 0; i < MAX_STACK_PROCESSES; i++)
		if (options.processes[i] && options.processes[i] == task->tgid)
			wanted = true;
	r.state = letter_of(task);
	if (!wanted && r.state != 'D')
		return 0;
	if (r.state != 'R' && !task->exit_state) {
		size = bpf_get_task_stack((void *)task, frames, sizeof(frames), 0);
		if (size > 0 && size <= (long)sizeof(frames))
			bytes = size;
	}
	r.tgid = task->tgid;
	r.pid = task->pid;
	r.depth = bytes / sizeof(*frames);
	__builtin_memcpy(r.comm, task->comm, sizeof(r.comm));
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	if (bytes && bytes <= sizeof(frames))
		bpf_seq_write(ctx->meta->seq, frames, bytes);
	return 0;
}
