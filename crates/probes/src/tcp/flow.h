/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the tcp probe tells user space; the Rust types are made from it (bpf/shared.bpf.c). */
#pragma once

#include "../bpf/event.h"

/* Of a send, in the order of PROTOCOL.operations (mod.rs). */
enum stage {
	STAGE_CALL, /* the call began .. all of it is in the socket's queue */
	STAGE_QUEUE, /* .. TCP gave its last byte to the queueing discipline */
	STAGE_SCHEDULER, /* .. the driver had it */
	STAGE_NETWORK, /* .. the peer had acknowledged it */
	STAGE_SEND, /* from the first of these that is known to the last */
	STAGE_READ, /* data was there .. the reader took it */
	STAGES,
};

enum {
	MAX_FLOWS = 4096,
	MAX_PORTS = 65536,
};

/* Which sockets are looked at; written by user space. */
struct selection {
	__u8 address[16]; /* of the peer; IPv4 as ::ffff:a.b.c.d */
	__u64 cgroup; /* id; and all below it; 0: any */
	__u64 ceph; /* address of the function that the Ceph client has sockets call when data comes; 0: nothing of it is mounted */
	__u64 ceph_mount; /* what its sockets are taken for */
	__u32 level; /* of that cgroup */
	__u32 share; /* of 65536: those whose cookie's hash is below */
	__u16 port; /* of either side; 0: any */
	__u8 has_address;
	__u8 mounts; /* those whose peer is the server of a mount */
	__u8 others; /* those that all of the above is true of */
	__u8 every; /* tell of every stage of every send */
	/* Which of those that are not selected and yet stamped are so no longer, once `choose` has met them. */
	__u8 clear_mounts; /* those whose peer is the server of a mount */
	__u8 clear_others;
	__u8 only_own; /* but none that this program has not been stamping */
	__u8 reserved[7];
};

struct stage_times {
	__u64 count;
	__u64 sum; /* nanoseconds */
	__u64 max;
	__u32 buckets[HISTOGRAM_BUCKETS]; /* as of struct histogram */
	__u32 reserved;
	__u64 reserved_too;
};

/* Both ends of a connection; IPv4 as ::ffff:a.b.c.d. */
struct ends {
	__u8 local[16];
	__u8 peer[16];
	__u16 local_port;
	__u16 peer_port;
	__u32 namespace; /* the network namespace's inode number */
};

/* One connection that is stamped; by its cookie. */
struct flow {
	struct ends ends;
	__u64 mount;
	__u64 sends; /* calls that sent something */
	__u64 stamped; /* of those, calls whose every stage is in `stages`, or will be */
	__u64 bytes;
	__u64 retransmitted; /* stamped sends whose last segment was sent again, by the number of times */
	__u64 window_ns; /* while stamped sends were in the queue, the peer's window was closed for so long */
	__u64 pacing_ns; /* likewise, they were held by pacing */
	__u64 closed; /* when; 0: it is there, and the next three are not known yet */
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 retransmits;
	__u32 measured; /* where there are no stamps: when TCP last measured a round trip, microseconds; never 0 then */
	struct stage_times stages[STAGES];
};

/* What the kernel knows of a connection by itself. */
struct connection {
	struct ends ends;
	__u64 cookie;
	__u64 mount;
	__u64 cgroup;
	__u64 bytes_sent;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 pacing_rate; /* bytes a second; all ones: none */
	__u8 state;
	__u8 stamped;
	__u8 pacing; /* enum sk_pacing: 0 none, 1 by TCP, 2 by the fq queueing discipline */
	__u8 reserved;
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 retransmits; /* segments */
	__u32 lost; /* segments thought lost now */
	__u32 unsent; /* bytes in the queue that TCP has not sent */
	__u32 unacked; /* bytes sent that the peer has not acknowledged */
	__u32 unread; /* bytes received that nobody has read */
	__u32 window; /* the peer's, bytes */
	__u32 congestion_window; /* segments */
	__u32 segment; /* bytes */
	__u32 busy_ms; /* had something to send or to be acknowledged ... */
	__u32 window_limited_ms; /* ... of that: the peer's window was closed ... */
	__u32 buffer_limited_ms; /* ... or the socket's own send buffer was full */
	__u32 sent_ago_ms; /* since data was last sent */
	__u32 arrived_ago_ms; /* since data last arrived */
	__u32 acked_ago_ms; /* since the peer last acknowledged anything */
	__u32 gap; /* data has come in behind some that is missing still */
};

/* For --every-send, in the same ring as events: one stage of one send. */
struct stamp {
	struct ring_head head;
	__u32 stage; /* enum stage: which has ended */
	__u64 cookie;
	__u64 time;
	__u64 start; /* STAGE_CALL: of the call; 0: not known */
	__u32 last;
	__u32 bytes; /* STAGE_CALL */
};

ASSERT_RING_RECORD(stamp, 40);
