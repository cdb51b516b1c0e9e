/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * When the last sends on a TCP connection left the call, the queueing discipline and the driver, and were acknowledged: kept
 * for the sockets of watched mounts where the kernel has BPF timestamping (Linux 6.14). The tcp probe writes it; a probe that
 * has an operation in flight on a socket reads it by the socket's address.
 *
 * Only the last byte of a call to sendmsg() is stamped: the times of a send of 4 MiB are those of its last segment.
 */
#pragma once

#include "kernel.h"

enum {
	SENDS = 64, /* kept for each socket: a power of two */
	MOMENTS = 64, /* likewise: the last 17 s */
	MOMENT_SHIFT = 28, /* a moment is 2^28 ns: a quarter of a second */
	MAX_SOCKETS = 4096,
};

/* One call to sendmsg(). Nanoseconds of CLOCK_MONOTONIC; 0 is what is not known, or has not happened yet. */
struct send {
	__u64 start; /* of the call; only while somebody pays for knowing it */
	__u64 queued; /* the call has put all of it into the socket's queue */
	__u64 sched; /* TCP has given it to the queueing discipline */
	__u64 driver; /* the driver has it */
	__u64 acked; /* the peer has acknowledged it, and so all before */
	__u32 last; /* sequence number of its last byte */
	__u32 bytes;
	__u32 retransmitted; /* times that its last segment was sent again */
	__u32 total_retransmitted; /* segments of the connection sent again when that was last counted */
	__u32 window_us; /* of its wait in the queue: while the peer's window was closed ... */
	__u32 pacing_us; /* ... and while the connection's own pacing held it */
};

/* All sends of a socket that were queued in one moment and are acknowledged. */
struct moment {
	__u64 number; /* start of the moment >> MOMENT_SHIFT */
	__u32 sends; /* 0: the next five say nothing */
	__u32 retransmitted;
	__u32 local_us; /* these are the longest: scheduler to driver, */
	__u32 held_us; /* queue, */
	__u32 most_us; /* and until acknowledged; */
	__u32 least_us; /* this is the shortest until acknowledged */
	__u32 missed; /* that had no room among the socket's, so that nothing is known of them */
	__u32 reserved;
};

struct sends {
	__u64 cookie; /* the socket's: one that has come to the same address later has another */
	__u64 mount; /* that is mounted from its peer; 0: none */
	__u64 call; /* when the call under way began; this and the next three only while somebody pays for knowing it */
	__u64 waiting; /* since when data waits to be read; 0: none does */
	__u64 arrived; /* when its reader was last woken for data */
	__u64 read; /* when data was last read */
	__u64 missed; /* when a send last found no room among these */
	__u32 next; /* sends so far; the next is sends[next % SENDS] */
	__u32 oldest; /* the oldest that is not acknowledged; next, if all are */
	__u32 written; /* sequence number behind the last byte that was put into the queue */
	__u32 reserved;
	struct send sends[SENDS];
	struct moment moments[MOMENTS]; /* by number % MOMENTS */
};

/* By the address of struct sock. An entry goes with its connection. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, __u64);
	__type(value, struct sends);
} sends SEC(".maps");

static __always_inline __u64 moment_of(__u64 time)
{
	return time >> MOMENT_SHIFT;
}

static __always_inline struct sends *sends_of(const void *sock)
{
	__u64 address = (__u64)sock;

	return bpf_map_lookup_elem(&sends, &address);
}
