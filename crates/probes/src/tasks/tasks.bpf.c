// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The process table in one system call: a walk over all tasks into memory that user space has mapped. User space runs the walk
 * with BPF_PROG_TEST_RUN. The open-coded iterator over tasks exists since Linux 6.7 (c68a78ffe2cb).
 */
#include "task.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct walk_options options SEC(".rodata.options") = {};

struct bpf_iter_task {
	__u64 opaque[3];
} __attribute__((aligned(8)));

extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct___all *task, unsigned int flags) __ksym;
extern struct task_struct___all *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;
extern struct task_struct___all *bpf_task_acquire(struct task_struct___all *task) __ksym;
extern void bpf_task_release(struct task_struct___all *task) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

enum { /* kernel/bpf/task_iter.c */
       ALL_PROCESSES = 0, /* BPF_TASK_ITER_ALL_PROCS */
       ALL_THREADS = 1, /* BPF_TASK_ITER_ALL_THREADS */
       OWN_THREADS = 2, /* BPF_TASK_ITER_PROC_THREADS */
};

/* Sized to what there is before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct task_record);
} records SEC(".maps");

/* What the process's other threads add to it. */
static __always_inline void add_others(struct task_record *r, struct task_struct___all *leader)
{
	struct task_struct___all *task;
	struct bpf_iter_task it;
	struct mm_struct *mm;

	leader = bpf_task_acquire(leader); /* or the iterator does not take it */
	if (!leader)
		return;
	bpf_iter_task_new(&it, leader, OWN_THREADS);
	while ((task = bpf_iter_task_next(&it))) {
		if (task->pid == r->pid)
			continue;
		add(r, task);
		mm = UNTRUSTED(task)->mm;
		if (!r->rss_pages && mm) /* the leader has ended */
			r->rss_pages = resident(mm);
	}
	bpf_iter_task_destroy(&it);
	bpf_task_release(leader);
}

/* Returns how many there are, also if there was no room for all of them. */
SEC("syscall")
int walk(void *ctx)
{
	struct task_struct___all *task;
	struct bpf_iter_task it;
	struct task_record *r;
	__u32 found = 0;

	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, NULL, options.threads ? ALL_THREADS : ALL_PROCESSES);
	while ((task = bpf_iter_task_next(&it))) {
		if (options.nothing) {
			found++;
			continue;
		}
		if (!task->pid) /* the idle one of the first CPU */
			continue;
		r = bpf_map_lookup_elem(&records, &found);
		found++;
		if (!r)
			continue;
		fill(r, task, !options.threads);
		if (!options.threads && r->threads > 1)
			add_others(r, task);
	}
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
	return found;
}
