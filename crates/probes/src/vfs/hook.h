/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The programs of one function of the VFS: HOOK(operation, function, superblock, arguments). `superblock` finds the file
 * system by the function's arguments. It runs first, at entry and at return, so that calls on other file systems cost
 * little. `arguments` fills in the call. Both are told whether the verifier knows the arguments' types.
 */
#pragma once

#include "call.h"

/* For each function's return: only one of fexit and kretprobe, which follow each other, is loaded. */
#define NUMBER_OF_THIS (__COUNTER__ / 2)

#define ON_ENTRY(operation, function, superblock, sb_typed, arguments)                      \
	SEC("fentry/" #function)                                                            \
	int fentry_##function(__u64 *ctx)                                                   \
	{                                                                                   \
		const struct super_block *sb = superblock(ctx, true);                       \
		struct call c = {};                                                         \
                                                                                            \
		if (!is_watched(sb, sb_typed))                                              \
			return 0;                                                           \
		c.op.mount = FIELD(sb_typed, sb, s_dev);                                    \
		arguments(&c, ctx, true);                                                   \
		return started(operation, &c);                                              \
	}                                                                                   \
                                                                                            \
	SEC("kprobe/" #function)                                                            \
	int kprobe_##function(struct pt_regs *ctx)                                          \
	{                                                                                   \
		__u64 a[] = { PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx),   \
			      PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx), PT_REGS_PARM6(ctx) }; \
		const struct super_block *sb = superblock(a, false);                        \
		struct call c = {};                                                         \
                                                                                            \
		if (!is_watched(sb, false))                                                 \
			return 0;                                                           \
		c.op.mount = FIELD(false, sb, s_dev);                                       \
		arguments(&c, a, false);                                                    \
		return started(operation, &c);                                              \
	}

/* `result` is in scope where `outcome` is evaluated. */
#define ON_RETURN(operation, function, watched, outcome)                \
	SEC("fexit/" #function)                                         \
	int fexit_##function(__u64 *ctx)                                \
	{                                                               \
		__u64 result = 0;                                       \
                                                                        \
		if (!(watched))                                         \
			return 0;                                       \
		bpf_get_func_ret(ctx, &result);                         \
		return finished(operation, outcome, NUMBER_OF_THIS);    \
	}                                                               \
                                                                        \
	SEC("kretprobe/" #function)                                     \
	int kretprobe_##function(struct pt_regs *ctx)                   \
	{                                                               \
		__u64 result __attribute__((unused)) = PT_REGS_RC(ctx); \
                                                                        \
		return finished(operation, outcome, NUMBER_OF_THIS);    \
	}

#define HOOK(operation, function, superblock, arguments)           \
	ON_ENTRY(operation, function, superblock, true, arguments) \
	ON_RETURN(operation, function, may_be_watched(superblock(ctx, true), true), result)

/* A function that returns its file: at the return, the file may be another one. */
#define HOOK_THAT_FREES(operation, function, superblock, arguments, outcome) \
	ON_ENTRY(operation, function, superblock, true, arguments)           \
	ON_RETURN(operation, function, true, outcome)

/* A function that takes a descriptor: the verifier does not know the type of the descriptor's file. */
#define HOOK_BY_DESCRIPTOR(operation, function, superblock, arguments) \
	ON_ENTRY(operation, function, superblock, false, arguments)    \
	ON_RETURN(operation, function, true, result)
