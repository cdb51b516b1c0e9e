/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The times at which the last sends on a TCP connection were queued, left the queueing discipline, reached the driver
 * and were acknowledged. They are kept for the sockets of watched mounts where the kernel has BPF timestamping (Linux
 * 6.14). The tcp probe writes them; a probe with an operation in flight on a socket reads them by the socket's address.
 *
 * Only the last byte of a call to sendmsg() is stamped: the times of a send of 4 MiB are those of its last segment.
 */
#pragma once

#include "kernel.h"

enum {
	SENDS = 64, /* kept for each socket; a power of two */
	MOMENTS = 64, /* kept for each socket, the last 17 s; a power of two */
	MOMENT_SHIFT = 28, /* a moment is 2^28 ns: a quarter of a second */
	MAX_SOCKETS = 4096,
};

/* One call to sendmsg(). Times are nanoseconds of CLOCK_MONOTONIC; 0: not known, or not happened yet. */
struct send {
	__u64 start; /* the call began; known only with `net --full` */
	__u64 queued; /* the call has put all bytes into the socket's queue */
	__u64 sched; /* TCP has given the last byte to the queueing discipline */
	__u64 driver; /* the driver has the last byte */
	__u64 acked; /* the peer has acknowledged the last byte, and so all before */
	__u32 last; /* sequence number of its last byte */
	__u32 bytes;
	__u32 retransmitted; /* how often its last segment was sent again */
	__u32 total_retransmitted; /* the connection's retransmitted segments when `retransmitted` was last updated */
	__u32 window_us; /* part of its wait in the queue during which the peer's window was closed */
	__u32 pacing_us; /* part of its wait in the queue that the connection's own pacing caused */
};

/* All sends of a socket that were queued in one moment and are acknowledged. */
struct moment {
	__u64 number; /* start of the moment >> MOMENT_SHIFT */
	__u32 sends; /* 0: the next five fields are not valid */
	__u32 retransmitted;
	__u32 local_us; /* the longest from the queueing discipline to the driver */
	__u32 held_us; /* the longest in the socket's queue */
	__u32 most_us; /* the longest from the driver to the acknowledgement */
	__u32 least_us; /* the shortest from the driver to the acknowledgement */
	__u32 missed; /* sends without room among the socket's sends, so that their times are not known */
	__u32 reserved;
};

struct sends {
	__u64 cookie; /* the socket's cookie; a later socket at the same address has another */
	__u64 mount; /* the mount whose server is the peer; 0: none */
	__u64 call; /* when the current call began; this and the next three are known only with `net --full` */
	__u64 waiting; /* since when data waits to be read; 0: none waits */
	__u64 arrived; /* when the reader was last woken for data */
	__u64 read; /* when data was last read */
	__u64 missed; /* when there was last no room for a send */
	__u32 next; /* sends so far; the next is sends[next % SENDS] */
	__u32 oldest; /* the oldest send that is not acknowledged; equals `next` if all are */
	__u32 written; /* sequence number after the last byte in the queue */
	__u32 reserved;
	struct send sends[SENDS];
	struct moment moments[MOMENTS]; /* by number % MOMENTS */
};

/* By the address of struct sock. An entry is removed when its connection closes. */
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
