/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The fields that are read of a task, however the task is found. All fields are loaded directly: the verifier knows the types. */
#pragma once

#include "../bpf/kernel.h"
#include "record.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kgid {
	__u32 val;
};

struct cred___both {
	struct kuid uid;
	struct kgid gid;
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct task_io_accounting {
	__u64 rchar;
	__u64 wchar;
	__u64 read_bytes;
	__u64 write_bytes;
};

struct signal_struct {
	int nr_threads;
	struct list_head thread_head;
	struct task_io_accounting ioac; /* of threads that have ended */
	unsigned long long sum_sched_runtime; /* likewise */
};

struct percpu_counter {
	__s64 count;
};

struct mm_struct___since_6_2 {
	struct percpu_counter rss_stat[4];
};

struct mm_rss_stat {
	__s64 count[4]; /* atomic_long_t */
};

struct mm_struct___until_6_1 {
	struct mm_rss_stat rss_stat;
};

struct mm_struct;

struct task_struct___all {
	unsigned int __state;
	unsigned int flags;
	int exit_state;
	/* With SMP. A byte since 7.3: libbpf changes the length of a load only if it is unsigned. */
	unsigned int on_cpu;
	int pid;
	int tgid;
	char comm[16];
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_boottime;
	struct sched_entity se;
	struct task_io_accounting ioac;
	struct mm_struct *mm;
	struct task_struct___all *real_parent;
	const struct cred___both *real_cred;
	struct css_set *cgroups;
	struct signal_struct *signal;
	struct list_head thread_node;
};
#pragma clang attribute pop

enum {
	TASK_OF_KERNEL = 0x00200000, /* PF_KTHREAD */
	/* include/linux/sched.h, the same since Linux 5.14 but for those that are newer */
	STATE_INTERRUPTIBLE = 0x1,
	STATE_UNINTERRUPTIBLE = 0x2,
	STATE_STOPPED = 0x4,
	STATE_TRACED = 0x8,
	STATE_DEAD = 0x10,
	STATE_ZOMBIE = 0x20,
	STATE_PARKED = 0x40,
	STATE_IDLE = 0x402, /* uninterruptible, and no load */
	STATE_BLOCKED = 0x9002, /* uninterruptible; waiting for a lock on a real-time kernel; frozen */
};

/* get_task_state() of fs/proc/array.c: the highest bit counts. */
static __always_inline char letter_of(const struct task_struct___all *task)
{
	unsigned int state = task->__state | task->exit_state;

	if (state & STATE_PARKED)
		return 'P';
	if (state & STATE_ZOMBIE)
		return 'Z';
	if (state & STATE_DEAD)
		return 'X';
	if (state & STATE_TRACED)
		return 't';
	if (state & STATE_STOPPED)
		return 'T';
	if ((state & STATE_IDLE) == STATE_IDLE)
		return 'I';
	if (state & STATE_BLOCKED)
		return 'D';
	return state & STATE_INTERRUPTIBLE ? 'S' : 'R';
}

/* In pages: files, anonymous and shared memory, as get_mm_rss() adds them up; what each CPU has not yet handed in is missing. */
static __always_inline __s64 resident(const struct mm_struct *mm)
{
	const struct mm_struct___since_6_2 *counters = (const void *)mm;
	__s64 pages, copy[4] = {};

	if (bpf_core_field_exists(counters->rss_stat[0].count)) {
		pages = counters->rss_stat[0].count + counters->rss_stat[1].count + counters->rss_stat[3].count;
	} else { /* the verifier of 6.1 does not see through the type of these */
		bpf_probe_read_kernel(copy, sizeof(copy),
				      (const char *)mm + bpf_core_field_offset(struct mm_struct___until_6_1, rss_stat));
		pages = copy[0] + copy[1] + copy[3];
	}
	return pages > 0 ? pages : 0;
}

/* A thread's own part of what is summed up. */
static __always_inline void add(struct task_record *r, const struct task_struct___all *task)
{
	r->cpu_ns += task->se.sum_exec_runtime;
	r->read_chars += task->ioac.rchar;
	r->written_chars += task->ioac.wchar;
	r->read_bytes += task->ioac.read_bytes;
	r->written_bytes += task->ioac.write_bytes;
}

/*
 * For loading pointers. When a program loads a pointer from one that the verifier trusts, the verifier asks whether it trusts that as well: it
 * compares up to four names with those of all types of the kernel (btf_nested_type_is_trusted, since Linux 6.4). That was three quarters of what
 * loading these programs took. It asks nothing of a pointer that it does not trust, and a load from it may fail and gives 0 then.
 */
#define UNTRUSTED(task)                                                                                        \
	(bpf_ksym_exists(bpf_rdonly_cast) ? (struct task_struct___all *)bpf_rdonly_cast(                       \
						    task, bpf_core_type_id_kernel(struct task_struct___all)) : \
					    (task))

/* All of a record that one task says. With `whole`, what its process's dead threads have left is in the sums. */
static __always_inline void fill(struct task_record *r, struct task_struct___all *task, bool whole)
{
	const struct task_struct___all *untrusted = UNTRUSTED(task);
	const struct signal_struct *signal = untrusted->signal;
	const struct mm_struct *mm = untrusted->mm;

	r->start = task->start_boottime;
	r->cpu_ns = task->se.sum_exec_runtime;
	r->read_chars = task->ioac.rchar;
	r->written_chars = task->ioac.wchar;
	r->read_bytes = task->ioac.read_bytes;
	r->written_bytes = task->ioac.write_bytes;
	if (whole) {
		r->cpu_ns += signal->sum_sched_runtime;
		r->read_chars += signal->ioac.rchar;
		r->written_chars += signal->ioac.wchar;
		r->read_bytes += signal->ioac.read_bytes;
		r->written_bytes += signal->ioac.write_bytes;
	}
	r->threads = signal->nr_threads;
	r->rss_pages = mm ? resident(mm) : 0;
	r->cgroup = untrusted->cgroups->dfl_cgrp->kn->id;
	r->pid = task->pid;
	r->tgid = task->tgid;
	r->ppid = untrusted->real_parent->tgid;
	r->uid = untrusted->real_cred->uid.val;
	r->gid = untrusted->real_cred->gid.val;
	__builtin_memcpy(r->comm, task->comm, sizeof(r->comm));
	r->state = letter_of(task);
	r->kernel = !!(task->flags & TASK_OF_KERNEL);
}
