// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The wait channel of every thread that sleeps, as get_wchan() finds it. An iterator is used on every kernel: since about Linux 7.0,
 * a program with an open-coded walk may not get stacks ("sleepable helper in rcu_read_lock region"). Unwinding a stack takes longer
 * than everything else.
 */
#include "../threads/iterator.h"
#include "task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct wait_options options SEC(".rodata.options") = {};

SEC("iter/task")
int waits(struct bpf_iter__task *ctx)
{
	struct task_struct___all *task = (void *)ctx->task;
	struct wait_record r = {};
	__u64 frames[WAIT_DEPTH];
	long bytes;

	/* Not of one that runs or is about to, nor of one that has ended. */
	if (!task || !task->__state || task->exit_state || (!options.threads && task->pid != task->tgid))
		return 0;
	bytes = bpf_get_task_stack((void *)task, frames, sizeof(frames), 0);
	for (int i = 0; i < WAIT_DEPTH; i++) {
		if (bytes < (i + 1) * 8)
			return 0;
		if (frames[i] < options.scheduler_from || frames[i] >= options.scheduler_to) {
			r.address = frames[i];
			break;
		}
	}
	r.pid = task->pid;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
