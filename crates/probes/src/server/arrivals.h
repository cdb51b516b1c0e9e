/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * When all of a request had come in. The RPC server knows when a thread began to read. Until then the request lies in the
 * socket, with other requests of its connection before it. So for each arrival of data, a note says how far the stream
 * has come. A thread that has read a request knows where in the stream the request ends, and finds the first note that
 * reaches this place.
 *
 * The kernel gives the memory of a closed socket to a new socket, whose stream begins at another number. Notes of the old
 * socket are recognized by where they reach: not just behind the data that the new socket has received.
 */
#pragma once

#include "../bpf/fields.h"
#include "svc.h"

enum {
	CONNECTIONS = 1024, /* a power of two */
	NOTES = 16, /* a power of two */
	UNIT_SHIFT = 10, /* times are kept in units of 1024 ns, which 32 bits hold for 73 minutes */
	LEAST_APART = 32, /* units: arrivals closer to each other than this are one */
	SPAN_SHIFT = 5, /* ... and closer than this part of how long the oldest unread data has waited */
	LARGEST_WINDOW = 1 << 30, /* bytes that can be on their way at once (RFC 7323 2.3) */
};

struct note {
	__u32 to; /* sequence number behind what has come */
	__u32 at; /* units */
};

/* The newest notes of a connection. The CPU that receives for the socket writes them, one at a time; the thread that has read
 * from the socket reads them. */
struct arrivals {
	__u64 socket; /* whose they are: of two that share the place, the one to which something came last */
	__u64 next;
	struct note notes[NOTES];
};

struct arrivals connections[CONNECTIONS];

#define SERVED_FIELD(socket, field) KERNEL_FIELD(tcp_sock___served, (const void *)(socket), field)

static __always_inline struct arrivals *arrivals_of(__u64 socket)
{
	return &connections[(socket * 0x9e3779b97f4a7c15) >> 54 & (CONNECTIONS - 1)];
}

static __always_inline bool is_before(__u32 one, __u32 other)
{
	return (__s32)(one - other) < 0;
}

static __always_inline void note_arrival(__u64 socket)
{
	__u32 to = SERVED_FIELD(socket, rcv_nxt), read = SERVED_FIELD(socket, copied_seq);
	__u32 at = bpf_ktime_get_ns() >> UNIT_SHIFT, apart = LEAST_APART, waited;
	struct arrivals *a = arrivals_of(socket);
	struct note *newest, *oldest;

	newest = &a->notes[(a->next - 1) & (NOTES - 1)];
	if (a->socket != socket || to - newest->to > LARGEST_WINDOW) {
		/* Notes that reach no valid place. */
		for (int i = 0; i < NOTES; i++)
			a->notes[i] = (struct note){ .to = read, .at = at };
		a->socket = socket;
	}
	oldest = &a->notes[a->next & (NOTES - 1)];
	if (!is_before(newest->to, to))
		return;
	/* The longer a backlog lasts, the farther apart are its notes. So the notes nearly always reach back to the start of
	 * the backlog. */
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
 * How many nanoseconds ago all that has been read had come in, at least; 0: not known. Global, so that the verifier checks
 * the loop once.
 */
__noinline __u64 since_arrival(__u64 socket)
{
	struct arrivals *a = arrivals_of(socket);
	__u32 now = bpf_ktime_get_ns() >> UNIT_SHIFT, at = now, newest, end;
	__u64 next = a->next;

	newest = a->notes[(next - 1) & (NOTES - 1)].to;
	/* After the note, which reaches no farther than what has come by now. */
	barrier();
	end = SERVED_FIELD(socket, copied_seq);
	if (a->socket != socket || newest - end > SERVED_FIELD(socket, rcv_nxt) - end)
		return 0;
	/* Searches from the newest note back, as long as the notes reach this place. */
	for (int i = 1; i <= NOTES; i++) {
		const struct note *note = &a->notes[(next - i) & (NOTES - 1)];

		if (is_before(note->to, end))
			break;
		at = note->at;
	}
	return (__u64)(now - at) << UNIT_SHIFT;
}
