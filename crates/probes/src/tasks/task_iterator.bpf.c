// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The process table where a program cannot walk by itself (before Linux 6.7): read from an iterator, record by record. */
#include "../threads/iterator.h"
#include "sum.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct walk_options options SEC(".rodata.options") = {};

SEC("iter/task")
int tasks(struct bpf_iter__task *ctx)
{
	struct task_struct___all *task = (void *)ctx->task;
	struct task_record r = {};

	if (!task || (!options.threads && task->pid != task->tgid))
		return 0;
	fill(&r, task, !options.threads);
	if (!options.threads)
		add_others(&r, task);
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
