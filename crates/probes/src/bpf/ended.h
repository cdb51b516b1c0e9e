/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Operations whose end no program saw. The kernel does not run a program while the same program is preempted on that
 * CPU (bpf_prog->active). That can happen at a function's entry, and since Linux 7.0 at a tracepoint. Such an operation
 * would seem to hang until the kernel reuses its memory.
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

/* An operation younger than this may just be ending, and is left alone. */
#define UNSEEN_NS 1000000000ULL

/*
 * For one entry of a map of operations in flight, keyed by the address of the kernel's object for it: marks the
 * operation as ended unless `goes_on` says that it is under way. User space runs this before it reports old operations
 * as hanging.
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
