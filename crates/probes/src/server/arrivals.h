/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * When a request came in, all of it. The RPC server knows when a thread began to read; until then the request lies in the
 * socket, with others of its connection before it. So each arrival of data is noted with how far the stream has come by
 * it. Who has read a request knows where in the stream it ends, and finds the first note that reaches so far.
 */
#pragma once

#include "svc.h"

enum {
	CONNECTIONS = 1024, /* a power of two */
	NOTES = 16, /* a power of two */
	UNIT_SHIFT = 10, /* times are kept in units of 1024 ns, which 32 bits hold for 73 minutes */
	LEAST_APART = 32, /* units: arrivals closer to each other than this are one */
	SPAN_SHIFT = 5, /* ... and closer than this part of how long the oldest unread data has waited */
};

struct note {
	__u32 to; /* sequence number behind what has come */
	__u32 at; /* units */
};

/* The newest notes of a connection. Written by who receives for the socket, one at a time; read by who has read from it. */
struct arrivals {
	__u64 socket; /* whose they are: of two that share the place, the one to which something came last */
	__u64 next;
	struct note notes[NOTES];
};

struct arrivals connections[CONNECTIONS];

static __always_inline struct arrivals *arrivals_of(__u64 socket)
{
	return &connections[(socket * 0x9e3779b97f4a7c15) >> 54 & (CONNECTIONS - 1)];
}

static __always_inline bool is_before(__u32 one, __u32 other)
{
	return (__s32)(one - other) < 0;
}

static __always_inline void note_arrival(__u64 socket, __u32 to, __u32 read)
{
	__u32 at = bpf_ktime_get_ns() >> UNIT_SHIFT, apart = LEAST_APART, waited;
	struct arrivals *a = arrivals_of(socket);
	struct note *newest, *oldest;

	if (a->socket != socket) {
		/* Notes that reach nowhere. */
		for (int i = 0; i < NOTES; i++)
			a->notes[i] = (struct note){ .to = read, .at = at };
		a->socket = socket;
	}
	newest = &a->notes[(a->next - 1) & (NOTES - 1)];
	oldest = &a->notes[a->next & (NOTES - 1)];
	if (!is_before(newest->to, to))
		return;
	/* The longer a backlog lasts, the farther apart are its notes: so they always reach back to its beginning, nearly. */
	waited = (at - oldest->at) >> SPAN_SHIFT;
	if (is_before(read, oldest->to) && waited > apart)
		apart = waited;
	if (is_before(read, newest->to) && at - newest->at < apart) {
		newest->to = to;
		return;
	}
	oldest->to = to;
	oldest->at = at;
	a->next++;
}

/*
 * How many nanoseconds ago the data before `end` had come in, at least; 0: not known. Global, so that the verifier checks
 * the loop once.
 */
__noinline __u64 since_arrival(__u64 socket, __u32 end)
{
	struct arrivals *a = arrivals_of(socket);
	__u32 now = bpf_ktime_get_ns() >> UNIT_SHIFT, at = now;
	__u64 next = a->next;

	if (a->socket != socket)
		return 0;
	/* From the newest back, as long as they reach so far. */
	for (int i = 1; i <= NOTES; i++) {
		const struct note *note = &a->notes[(next - i) & (NOTES - 1)];

		if (is_before(note->to, end))
			break;
		at = note->at;
	}
	return (__u64)(now - at) << UNIT_SHIFT;
}
