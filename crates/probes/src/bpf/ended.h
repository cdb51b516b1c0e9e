/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Operations whose end no program saw. The kernel refuses to run a program while the same one is preempted on that CPU
 * (bpf_prog->active), which it may be at a function's entry, and since Linux 7.0 at a tracepoint, too. Such an operation would look as
 * if it hung until its memory is used again.
 */
#pragma once

#include "maps.h"
#include "observe.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_iter__bpf_map_elem {
	__u64 *key;
	void *value;
};

#pragma clang attribute pop

/* What began later may just be ending. */
#define UNSEEN_NS 1000000000ULL

/*
 * Of a map of operations in flight, by the address of what the kernel has for each: notes that one has ended for which `goes_on` says
 * so. User space runs it before it takes what is old for what hangs.
 */
static __always_inline int forget_ended_by(struct bpf_iter__bpf_map_elem *ctx, enum probe_id probe,
					   bool (*goes_on)(__u64 address))
{
	struct flight *op = ctx->value;
	__u64 *address = ctx->key;

	if (!address || !op || !op->start || bpf_ktime_get_ns() - op->start < UNSEEN_NS || goes_on(*address))
		return 0;
	op->start = 0;
	count(probe, COUNT_SWEPT);
	return 0;
}
