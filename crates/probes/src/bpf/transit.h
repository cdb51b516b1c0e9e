/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The timing of an operation's own sends, from the stamps of the tcp probe on its connection. */
#pragma once

#include "observe.h"
#include "sends.h"

/* These functions are global, so that the verifier checks each function once, and not for every path through a
 * loop. */
__noinline int add_send(struct moment *sum, const struct send *send)
{
	__u32 local, held, acked;
	__u64 left;

	if (!sum || !send)
		return 0;
	left = send->driver ?: send->sched;
	if (!left || send->acked < left)
		return 0;
	local = microseconds(left - send->sched);
	held = microseconds(send->sched - send->queued);
	acked = microseconds(send->acked - left);
	if (local > sum->local_us)
		sum->local_us = local;
	if (held > sum->held_us)
		sum->held_us = held;
	if (acked > sum->most_us)
		sum->most_us = acked;
	if (!sum->sends || acked < sum->least_us)
		sum->least_us = acked;
	sum->retransmitted += send->retransmitted;
	sum->sends++;
	return 0;
}

__noinline int add_moment(struct moment *sum, const struct moment *moment)
{
	if (!sum || !moment || !moment->sends)
		return 0;
	if (moment->local_us > sum->local_us)
		sum->local_us = moment->local_us;
	if (moment->held_us > sum->held_us)
		sum->held_us = moment->held_us;
	if (moment->most_us > sum->most_us)
		sum->most_us = moment->most_us;
	if (!sum->sends || moment->least_us < sum->least_us)
		sum->least_us = moment->least_us;
	sum->retransmitted += moment->retransmitted;
	sum->sends += moment->sends;
	return 0;
}

struct sends_between {
	const struct sends *sends;
	__u64 from;
	__u64 until;
	__u64 earliest; /* when the first of them was queued */
	struct moment sum;
	bool is_incomplete; /* there was no room for some */
};

static long find_earliest(__u32 index, void *context)
{
	struct sends_between *of = context;
	__u64 queued = of->sends->sends[index & (SENDS - 1)].queued;

	if (queued >= of->from && queued < of->earliest)
		of->earliest = queued;
	return 0;
}

static long sum_send(__u32 index, void *context)
{
	struct sends_between *of = context;
	const struct send *send = &of->sends->sends[index & (SENDS - 1)];

	if (send->queued >= of->from && send->queued <= of->until)
		add_send(&of->sum, send);
	return 0;
}

static long sum_moment(__u32 index, void *context)
{
	struct sends_between *of = context;
	const struct moment *moment = &of->sends->moments[index & (MOMENTS - 1)];

	if (moment->number < moment_of(of->from) || moment->number > moment_of(of->until))
		return 0;
	of->is_incomplete = moment->missed;
	if (!of->is_incomplete)
		add_moment(&of->sum, moment);
	return of->is_incomplete;
}

/*
 * Sums up the sends on a socket that were queued from `from` until `until`; the operation's own are among them. If all
 * sends since `from` are kept, these are exact. On a busy connection, all sends of the same moments count: then the
 * operation's own lie between the fastest and the slowest of them. If there was no room for a send in these moments,
 * nothing is filled in. A sender that had to wait for a CPU may queue its sends after `until`: then the first sends
 * since `from` are taken.
 */
__noinline int read_transit(struct transit *transit, __u64 socket, __u64 from, __u64 until)
{
	struct sends_between of = { .from = from, .until = until, .earliest = ~0ULL };

	of.sends = socket ? sends_of((const void *)socket) : NULL;
	if (!of.sends || !transit)
		return 0;
	if (of.sends->sends[of.sends->next & (SENDS - 1)].queued <= from && of.sends->missed < from) {
		bpf_loop(SENDS, find_earliest, &of, 0);
		if (of.earliest > until)
			of.until += of.earliest - from;
		bpf_loop(SENDS, sum_send, &of, 0);
	} else {
		bpf_loop(MOMENTS, sum_moment, &of, 0);
	}
	if (!of.sum.sends || of.is_incomplete)
		return 0;
	transit->sends = of.sum.sends;
	transit->local_us = of.sum.local_us;
	transit->held_us = of.sum.held_us;
	transit->least_us = of.sum.least_us;
	transit->most_us = of.sum.most_us;
	transit->retransmitted = of.sum.retransmitted;
	return 0;
}
