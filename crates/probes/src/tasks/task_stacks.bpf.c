// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Kernel stacks: of the threads that are blocked and of all threads of some processes; or, to sample them, of some threads and of those
 * of the kernel that take answers.
 */
#include "../threads/iterator.h"
#include "task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct stack_options options SEC(".rodata.options") = {};

/* The threads that are sampled; the value says nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SAMPLED_THREADS);
	__type(key, __u32);
	__type(value, __u8);
} sampled SEC(".maps");

/* Too long for the stack. The object is loaded for one reader. Twice as long as needed: see BYTES. */
__u64 frames[2 * STACK_DEPTH];

enum {
	MOST_BYTES = STACK_DEPTH * sizeof(__u64),
	BYTES = 2 * MOST_BYTES - 1, /* a mask that leaves the length of any stack as it is */
};

/* The SMB client's thread that takes a connection's answers (cifs_demultiplex_thread). NFS has workers take them. */
static __always_inline bool takes_answers(const struct task_struct___all *task)
{
	const char *comm = task->comm;

	return comm[0] == 'c' && comm[1] == 'i' && comm[2] == 'f' && comm[3] == 's' && comm[4] == 'd' && !comm[5];
}

static __always_inline bool is_wanted(const struct task_struct___all *task, const struct stack_record *r)
{
	__u32 pid = task->pid;

	if (options.sampling)
		return bpf_map_lookup_elem(&sampled, &pid) ||
		       (r->kernel_thread && (r->state == 'D' || takes_answers(task)));
	for (int i = 0; i < MAX_STACK_PROCESSES; i++)
		if (options.processes[i] && options.processes[i] == task->tgid)
			return true;
	return r->state == 'D';
}

SEC("iter/task")
int stacks(struct bpf_iter__task *ctx)
{
	struct task_struct___all *task = (void *)ctx->task;
	struct stack_record r = {};
	__u64 bytes = 0;
	long size;

	if (!task)
		return 0;
	r.state = letter_of(task);
	r.kernel_thread = !!(task->flags & TASK_OF_KERNEL);
	if (!is_wanted(task, &r))
		return 0;
	if (r.state != 'R' && !task->exit_state) {
		size = bpf_get_task_stack((void *)task, frames, MOST_BYTES, 0);
		if (size > 0)
			bytes = size;
	}
	r.tgid = task->tgid;
	r.pid = task->pid;
	r.depth = bytes / sizeof(*frames);
	r.switches = task->nvcsw + task->nivcsw;
	if (bpf_core_field_exists(task->on_cpu))
		r.on_cpu = !!task->on_cpu;
	__builtin_memcpy(r.comm, task->comm, sizeof(r.comm));
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	/* The verifier loses the range in the code that the compiler makes of a comparison, but it follows a mask. */
	barrier_var(bytes);
	bpf_seq_write(ctx->meta->seq, frames, bytes & BYTES);
	return 0;
}
