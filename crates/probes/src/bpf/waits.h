/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How long threads waited for a CPU or memory, by the kernel's counts: the threads' part of struct progress. */
#pragma once

#include "event.h"
#include "kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_info {
	unsigned long long run_delay; /* nanoseconds */
};

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

/* Fills in the requester's part; `tid` is its thread id. */
static __always_inline void read_requester(struct progress *p, const void *task, __u32 tid)
{
	const struct task_struct___waits *t = task;
	const struct psi_group *pressure;

	if (!t)
		return;
	p->requester = tid;
	p->requester_us = cpu_wait_us(t);
	if (!bpf_core_field_exists(struct psi_group, total)) /* CONFIG_PSI */
		return;
	pressure = BPF_CORE_READ(t, cgroups, dfl_cgrp, psi);
	if (!pressure)
		return;
	p->cpu_pressure_ms = BPF_CORE_READ(pressure, total[PSI_CPU_SOME]) / 1000000;
	p->memory_pressure_ms = BPF_CORE_READ(pressure, total[PSI_MEM_SOME]) / 1000000;
}
