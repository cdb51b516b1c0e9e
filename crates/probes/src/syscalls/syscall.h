/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A system call's number and arguments by architecture. */
#pragma once

#include "../bpf/kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs___kernel {
	unsigned long di, si, dx, r10, r8, orig_ax;
};

struct thread_info___x86 {
	unsigned int status;
};

struct task_struct___x86 {
	struct thread_info___x86 thread_info;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs___kernel {
	__u64 regs[31];
	__u64 orig_x0; /* regs[0] has the result when the call has ended */
	int syscallno;
};

struct thread_info___arm64 {
	unsigned long flags;
};

struct task_struct___arm64 {
	struct thread_info___arm64 thread_info;
};
#endif

#pragma clang attribute pop

#if defined(__TARGET_ARCH_x86)
#define ARGUMENT_0(regs) ((regs)->di)
#define ARGUMENT_1(regs) ((regs)->si)
#define ARGUMENT_2(regs) ((regs)->dx)
#define ARGUMENT_3(regs) ((regs)->r10)
#define ARGUMENT_4(regs) ((regs)->r8)
#define ARGUMENT_0_AT_END(regs) ARGUMENT_0(regs)

static __always_inline long call_number(const struct pt_regs___kernel *regs)
{
	return regs->orig_ax;
}

/* 32-bit programs number their calls differently: TS_COMPAT (arch/x86/include/asm/thread_info.h). */
static __always_inline bool is_compat(const struct task_struct *task)
{
	return ((const struct task_struct___x86 *)task)->thread_info.status & 0x2;
}
#elif defined(__TARGET_ARCH_arm64)
#define ARGUMENT_0(args) ((args)->regs[0])
#define ARGUMENT_1(args) ((args)->regs[1])
#define ARGUMENT_2(args) ((args)->regs[2])
#define ARGUMENT_3(args) ((args)->regs[3])
#define ARGUMENT_4(args) ((args)->regs[4])
#define ARGUMENT_0_AT_END(args) ((args)->orig_x0)

static __always_inline long call_number(const struct pt_regs___kernel *args)
{
	return args->syscallno;
}

/* TIF_32BIT (arch/arm64/include/asm/thread_info.h) */
static __always_inline bool is_compat(const struct task_struct *task)
{
	return ((const struct task_struct___arm64 *)task)->thread_info.flags & (1 << 22);
}
#endif
