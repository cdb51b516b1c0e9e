/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How long threads waited for a CPU or memory, by the kernel's counts: the threads' part of struct progress. */
#pragma once

#include "event.h"
#include "kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct psi_group {
	/* Nanoseconds, by enum psi_states. The kernel's array has another dimension before this one, enum
	 * psi_aggregators, whose first is PSI_AVGS, updated every two seconds. BTF has an array of arrays as one. */
	__u64 total[5];
};

struct cgroup___waits {
	struct psi_group *psi;
};

struct css_set___waits {
	struct cgroup___waits *dfl_cgrp;
};

struct task_struct___waits {
	struct sched_info sched_info;
	struct css_set___waits *cgroups;
};

#pragma clang attribute pop

enum {
	PSI_MEM_SOME = 2, /* enum psi_states */
	PSI_CPU_SOME = 4,
};

/* How long the task has been runnable without a CPU since it started, microseconds modulo 2^32. */
static __always_inline __u32 cpu_wait_us(const void *task)
{
	const struct task_struct___waits *t = task;

	return BPF_CORE_READ(t, sched_info.run_delay) / 1000;
}

/* The same of the current task, nanoseconds, for the way of every operation: a load from a thread's own fields is cheap. */
static __always_inline __u64 own_cpu_wait_ns(const struct task_struct *current)
{
	return current->sched_info.run_delay;
}

/* Fills in the requester's part; `tid` is its thread id, `began_ns` its own_cpu_wait_ns() when the operation began, or 0. */
static __always_inline void read_requester(struct progress *p, const void *task, __u32 tid, __u64 began_ns)
{
	const struct task_struct___waits *t = task;
	const struct psi_group *pressure;

	if (!t)
		return;
	p->requester = tid;
	p->requester_us = cpu_wait_us(t);
	p->requester_began_us = began_ns / 1000;
	if (!bpf_core_field_exists(struct psi_group, total)) /* CONFIG_PSI */
		return;
	pressure = BPF_CORE_READ(t, cgroups, dfl_cgrp, psi);
	if (!pressure)
		return;
	p->cpu_pressure_ms = BPF_CORE_READ(pressure, total[PSI_CPU_SOME]) / 1000000;
	p->memory_pressure_ms = BPF_CORE_READ(pressure, total[PSI_MEM_SOME]) / 1000000;
}
