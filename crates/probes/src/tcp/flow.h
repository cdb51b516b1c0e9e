/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The tcp probe's interface to user space; the Rust types are generated from it (bpf/shared.bpf.c). */
#pragma once

#include "../bpf/event.h"

/* The stages of a send, in the order of PROTOCOL.operations (mod.rs). */
enum stage {
	STAGE_CALL, /* from the call's start until all of its bytes are in the socket's queue */
	STAGE_QUEUE, /* until TCP gives the last byte to the queueing discipline */
	STAGE_SCHEDULER, /* until the driver has the last byte */
	STAGE_NETWORK, /* until the peer has acknowledged the last byte */
	STAGE_SEND, /* all of these, from the first that is known */
	STAGE_READ, /* of received data: from its arrival until the reader takes it */
	STAGES,
};

enum {
	MAX_FLOWS = 4096,
	MAX_PORTS = 65536,
};

/* Which sockets are watched; written by user space. */
struct selection {
	__u8 address[16]; /* of the peer; IPv4 as ::ffff:a.b.c.d */
	__u64 cgroup; /* id of a cgroup; those below it count, too; 0: any */
	__u64 ceph; /* address of the function that the Ceph client's sockets call for data; 0: no Ceph mount */
	__u64 ceph_mount; /* the mount to which these sockets are attributed */
	__u32 level; /* the cgroup's level in its hierarchy */
	__u32 share; /* in 65536ths: sockets whose cookie's hash is below */
	__u16 port; /* of either end; 0: any */
	__u8 has_address;
	__u8 mounts; /* select sockets whose peer is the server of a mount */
	__u8 others; /* select other sockets that meet all of the above */
	__u8 every; /* report every stage of every send */
	/* Which stamped sockets that are not selected `choose` stops stamping: */
	__u8 clear_mounts; /* those whose peer is the server of a mount */
	__u8 clear_others; /* the others */
	__u8 only_own; /* of both, only those that this object has stamped */
	__u8 reserved[7];
};

struct stage_times {
	__u64 count;
	__u64 sum; /* nanoseconds */
	__u64 max;
	__u32 buckets[HISTOGRAM_BUCKETS]; /* as in struct histogram */
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

/* The times of one stamped connection, by its socket's cookie. */
struct flow {
	struct ends ends;
	__u64 mount;
	__u64 sends; /* calls that sent something */
	__u64 stamped; /* of those, calls whose stages are in `stages`, or will be once acknowledged */
	__u64 bytes;
	__u64 retransmitted; /* how often the last segments of stamped sends were sent again */
	__u64 window_ns; /* how long the peer's window was closed while stamped sends were in the queue */
	__u64 pacing_ns; /* how long pacing held stamped sends in the queue */
	__u64 closed; /* when it closed; 0: it is open, and the next three are not known yet */
	__u32 srtt_us;
	__u32 min_rtt_us;
	__u32 retransmits;
	__u32 measured; /* without stamps: when TCP last measured a round trip, microseconds, never 0; else 0 */
	struct stage_times stages[STAGES];
};

/* What TCP itself knows of a connection, without stamps. */
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
	__u32 lost; /* segments that TCP now considers lost */
	__u32 unsent; /* bytes in the queue that TCP has not sent */
	__u32 unacked; /* bytes sent that the peer has not acknowledged */
	__u32 unread; /* bytes received that no reader has taken */
	__u32 window; /* the peer's receive window, bytes */
	__u32 congestion_window; /* segments */
	__u32 segment; /* size of a segment, bytes */
	__u32 busy_ms; /* time with data to send, or sent and not acknowledged */
	__u32 window_limited_ms; /* part of busy_ms: the peer's window was closed */
	__u32 buffer_limited_ms; /* part of busy_ms: the socket's send buffer was full */
	__u32 sent_ago_ms; /* since data was last sent */
	__u32 arrived_ago_ms; /* since data last arrived */
	__u32 acked_ago_ms; /* since the peer last acknowledged anything */
	__u32 gap; /* data has arrived, and data before it is still missing */
};

/* For --every-send, in the same ring as events: one stage of one send. */
struct stamp {
	struct ring_head head;
	__u32 stage; /* enum stage: the one that has ended */
	__u64 cookie;
	__u64 time;
	__u64 start; /* STAGE_CALL: when the call began; 0: not known */
	__u32 last; /* sequence number of the send's last byte */
	__u32 bytes; /* STAGE_CALL: bytes of the send */
};

ASSERT_RING_RECORD(stamp, 40);
