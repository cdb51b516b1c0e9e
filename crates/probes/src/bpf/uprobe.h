/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Keeps the stack of uprobe programs on the stack of the thread.
 *
 * Since Linux 6.13, a program of type kprobe with a frame of 64 bytes or more has a private stack on each CPU
 * (bpf_enable_priv_stack(), kernel/bpf/verifier.c). The kernel assumes that such a program does not begin on a CPU on
 * which it is running already. Nothing ensures that for uprobes and USDT: they can be preempted (uprobe_prog_run(),
 * bpf_prog_run_array_uprobe()). Then two threads share a stack, and the kernel dereferences an overwritten pointer: an
 * oops. A program with a tail call gets no private stack, even if the call is never made.
 */
#pragma once

#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} no_program SEC(".maps");

/* Always false. The verifier knows that, but the compiler must not, or it would remove the tail call. */
const volatile bool has_program SEC(".rodata.uprobe") = false;

/* Every uprobe program must call this first. */
static __always_inline void stay_on_own_stack(void *context)
{
	if (has_program)
		bpf_tail_call(context, &no_program, 0);
}
