/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Keeps the stack of uprobe programs on the stack of the thread.
 *
 * From Linux 6.13 on, a program of type kprobe whose frame takes 64 bytes and more has one stack for each CPU (bpf_enable_priv_stack(),
 * kernel/bpf/verifier.c). The kernel takes for granted that such a program does not begin on a CPU on which it is running already. Nothing
 * ensures that for uprobes and USDT: they can be preempted (uprobe_prog_run(), bpf_prog_run_array_uprobe()). Then two threads share a stack,
 * and the kernel follows what it takes for a pointer: an oops. A program with a tail call has no such stack, even if it is never taken.
 */
#pragma once

#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} no_program SEC(".maps");

/* Always false: the verifier knows, the compiler does not. */
const volatile bool has_program SEC(".rodata.uprobe") = false;

/* Every uprobe program begins with this. */
static __always_inline void stay_on_own_stack(void *context)
{
	if (has_program)
		bpf_tail_call(context, &no_program, 0);
}
