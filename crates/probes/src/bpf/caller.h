/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The layer above an operation: what the current thread is doing. It is known only while the operation starts. */
#pragma once

#include "../syscalls/syscall.h"
#include "event.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct___flags {
	unsigned int flags;
};
#pragma clang attribute pop

enum {
	/* include/linux/sched.h; workers of io_uring and vhost have PF_IO_WORKER (0x10) or PF_USER_WORKER (0x4000) */
	TASK_WITHOUT_CALLS = 0x00200000 /* PF_KTHREAD */ | 0x10 | 0x4000,
};

/* Of the current thread, which is `task`: an enum caller, or the number of the system call plus one. */
static __always_inline __u16 caller_of(struct task_struct *task)
{
	long number;

	if (((struct task_struct___flags *)task)->flags & TASK_WITHOUT_CALLS)
		return CALLER_KERNEL;
	if (is_compat(task))
		return CALLER_UNKNOWN;
	number = call_number((const void *)bpf_task_pt_regs(task));
	/* In an exception, the number of the system call is -1. */
	if (number < 0)
		return CALLER_PAGE_FAULT;
	return number < CALLER_KERNEL - 1 ? number + 1 : CALLER_UNKNOWN;
}

static __always_inline __u16 current_caller(void)
{
	return caller_of(bpf_get_current_task_btf());
}
