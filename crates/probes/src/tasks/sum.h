/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Sums of a process's other threads, for iterators that visit one task at a time. */
#pragma once

#include "task.h"

enum { MAX_THREADS = 1 << 20 };

struct others {
	struct task_record *r;
	const struct list_head *at;
	const struct list_head *head;
};

/* The same as resident(), for pointers that the verifier does not know. */
static __always_inline __s64 copied_resident(const struct mm_struct *mm)
{
	const struct mm_struct___since_6_2 *counters = (const void *)mm;
	__s64 pages, copy[4] = {};

	if (bpf_core_field_exists(counters->rss_stat[0].count)) {
		pages = BPF_CORE_READ(counters, rss_stat[0].count) + BPF_CORE_READ(counters, rss_stat[1].count) +
			BPF_CORE_READ(counters, rss_stat[3].count);
	} else {
		bpf_probe_read_kernel(copy, sizeof(copy),
				      (const char *)mm + bpf_core_field_offset(struct mm_struct___until_6_1, rss_stat));
		pages = copy[0] + copy[1] + copy[3];
	}
	return pages > 0 ? pages : 0;
}

static long add_other(__u32 index, struct others *others)
{
	const struct list_head *at = others->at;
	const struct task_struct___all *task;
	struct task_record *r = others->r;
	const struct mm_struct *mm;

	if (!at || at == others->head)
		return 1;
	task = (const void *)at - bpf_core_field_offset(struct task_struct___all, thread_node);
	others->at = BPF_CORE_READ(at, next);
	if (BPF_CORE_READ(task, pid) == r->pid)
		return 0;
	r->cpu_ns += BPF_CORE_READ(task, se.sum_exec_runtime);
	r->read_chars += BPF_CORE_READ(task, ioac.rchar);
	r->written_chars += BPF_CORE_READ(task, ioac.wchar);
	r->read_bytes += BPF_CORE_READ(task, ioac.read_bytes);
	r->written_bytes += BPF_CORE_READ(task, ioac.write_bytes);
	mm = BPF_CORE_READ(task, mm);
	if (!r->rss_pages && mm) /* the leader has ended */
		r->rss_pages = copied_resident(mm);
	return 0;
}

/* An iterator runs in one RCU section: entries that were removed from the list meanwhile can still be followed. */
static __always_inline void add_others(struct task_record *r, struct task_struct___all *task)
{
	const struct signal_struct *signal;
	struct others others = { .r = r };

	if (r->threads < 2)
		return;
	signal = UNTRUSTED(task)->signal;
	others.head = (const void *)signal + bpf_core_field_offset(struct signal_struct, thread_head);
	others.at = signal->thread_head.next;
	bpf_loop(MAX_THREADS, add_other, &others, 0);
}
