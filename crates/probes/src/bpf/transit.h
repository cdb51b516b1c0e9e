/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The timing of an operation's own sends, from the stamps of the tcp probe on its connection. */
#pragma once

#include "observe.h"
#include "sends.h"

/* These functions are global, so that the verifier checks each once, and not for every path through a loop. */
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

/*
 * Sums up the sends on a socket that were queued from `from` until `until`; the operation's own are among them. If all
 * sends since `from` are kept, these are exact. On a busy connection, all sends of the same moments count: then the
 * operation's own lie between the fastest and the slowest of them. If there was no room for a send in these moments,
 * nothing is filled in. A sender that had to wait for a CPU may queue its sends after `until`: then the first sends
 * since `from` are taken.
 */
__noinline int read_transit(struct transit *transit, __u64 socket, __u64 from, __u64 until)
{
	const struct sends *s = socket ? sends_of((const void *)socket) : NULL;
	__u64 first = moment_of(from), last = moment_of(until);
	struct moment sum = {};

	if (!s || !transit)
		return 0;
	if (s->sends[s->next & (SENDS - 1)].queued <= from && s->missed < from) {
		__u64 earliest = ~0ULL;

		for (int i = 0; i < SENDS; i++)
			if (s->sends[i].queued >= from && s->sends[i].queued < earliest)
				earliest = s->sends[i].queued;
		if (earliest > until)
			until += earliest - from;
		for (int i = 0; i < SENDS; i++)
			if (s->sends[i].queued >= from && s->sends[i].queued <= until)
				add_send(&sum, &s->sends[i]);
	} else {
		for (int i = 0; i < MOMENTS; i++) {
			if (s->moments[i].number < first || s->moments[i].number > last)
				continue;
			if (s->moments[i].missed)
				return 0;
			add_moment(&sum, &s->moments[i]);
		}
	}
	if (!sum.sends)
		return 0;
	transit->sends = sum.sends;
	transit->local_us = sum.local_us;
	transit->held_us = sum.held_us;
	transit->least_us = sum.least_us;
	transit->most_us = sum.most_us;
	transit->retransmitted = sum.retransmitted;
	return 0;
}
