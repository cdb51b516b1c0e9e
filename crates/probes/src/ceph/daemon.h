/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Common to both objects of the probe: a request is kept from its start to its end, with the daemon that it was sent to. A
 * daemon is a number: 1 and the id of an OSD, or DAEMON_MDS, 1 and the rank of a metadata server; 0 if the daemon is not
 * known.
 */
#pragma once

#include "../bpf/caller.h"
#include "../bpf/ended.h"
#include "../bpf/network.h"
#include "../bpf/observe.h"
#include "../bpf/transit.h"
#include "../bpf/waits.h"
#include "client.h"

/* As mod.rs has them. */
enum { MAX_INFLIGHT = 16384, MAX_DAEMONS = 2048, OPERATION_OTHER = 0, MAX_ERRNO_SEEN = 511, EINTR = 4 };

#define DAEMON_MDS (1U << 31)

/* How long a request takes to get into the socket's queue, once it was handed to the messenger. */
#define TRANSMIT_NS 5000000ULL
/* The longest time after the answer for which the requester may not have run yet. */
#define DELIVERY_NS 10000000000ULL

/* What flight.session says of the daemon of a request in flight, beside the milliseconds for which the daemon's host has acknowledged
 * nothing although there is something to acknowledge. Twin of State in mod.rs. */
#define STATE_KNOWN (1ULL << 32)
#define STATE_CONNECTED (1ULL << 33) /* there is a socket */
#define STATE_LAGGY (1ULL << 34) /* metadata server: the monitors hear nothing of it */
#define STATE_BLOCKLISTED (1ULL << 35) /* this client is shut out by the cluster */
#define STATE_SENT (1ULL << 36) /* the request was sent to it */
enum { STATE_OF_MDS = 40 }; /* 8 bits: CEPH_MDS_STATE_* */

/* Which request of the kernel's each of this object's operations is; 0: none. User space writes it from the lists in operations.rs. */
const volatile __u32 request_codes[MAX_OPERATIONS] SEC(".rodata.codes") = {};

struct inflight {
	/* message: the client's number of the request; tree: the daemon; session: STATE_* */
	struct flight op;
	__u64 sent; /* when it was last handed to the messenger; 0: not yet */
	__u64 socket; /* struct sock of the daemon's connection then; 0: not known */
	__u64 cgroup;
	__u64 inode; /* of a wait for capabilities */
	__u32 uid;
	__u32 reserved;
	char comm[COMM_LENGTH];
};

/* By the address of the kernel's object for the request; of waits for capabilities by thread, which is no such address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INFLIGHT);
	__type(key, __u64);
	__type(value, struct inflight);
} inflight SEC(".maps");

struct daemon_key {
	__u64 mount;
	__u32 daemon;
	__u32 reserved;
};

/* Where a daemon is. IPv4 as ::ffff:a.b.c.d; the port in network byte order. */
struct daemon_address {
	__u8 address[16];
	__u16 port;
	__u16 reserved;
};

/* For user space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_DAEMONS);
	__type(key, struct daemon_key);
	__type(value, struct daemon_address);
} daemons SEC(".maps");

/* How a request ended. */
struct ending {
	__u64 answered; /* when its answer was there; 0: with its end */
	__u64 socket; /* struct sock of the daemon's connection now; 0: not known */
	__u64 bytes;
	__u64 inode;
	__u64 name; /* address of its file's or object's name; 0: none */
	__u32 error; /* errno, positive */
	__u32 unanswered; /* 1: no daemon has answered so */
	__u32 attempts; /* how often it was sent */
	__u32 forwarded;
	__u32 asynchronous; /* 1: no thread waited for it */
	__u32 reserved;
};

static __always_inline __u64 mount_of(const struct ceph_fs_client *client)
{
	return BPF_CORE_READ(client, sb, s_dev);
}

/* Global, so that the verifier follows the loop once. */
__noinline __u32 operation_of(__u32 code)
{
	for (__u32 operation = 0; operation < MAX_OPERATIONS; operation++)
		if (request_codes[operation] == code)
			return operation;
	return OPERATION_OTHER;
}

static __always_inline __u32 mds(int rank)
{
	return rank < 0 ? 0 : DAEMON_MDS | (rank + 1);
}

static __always_inline __u32 osd(int id)
{
	return id < 0 ? 0 : id + 1;
}

/* A number of the connection: a client has one for each daemon, and each superblock has a client. */
static __always_inline __u32 connection_number(__u64 mount, __u32 daemon)
{
	if (!daemon)
		return 0;
	return (mount & 0xfff) << 20 | (daemon & DAEMON_MDS ? 1 << 19 : 0) | (daemon & 0x7ffff);
}

static __always_inline __u64 socket_of(__u64 connection)
{
	return connection ? (__u64)BPF_CORE_READ((const struct ceph_connection *)connection, sock, sk) : 0;
}

/* Notes where the daemon is, once; and again if that may have changed. */
static __always_inline void note_address(__u64 mount, __u32 daemon, __u64 connection, bool again)
{
	struct daemon_key key = { .mount = mount, .daemon = daemon };
	struct daemon_address value = {};
	const char *address;
	__u16 family = 0;

	if (!daemon || !connection || (!again && bpf_map_lookup_elem(&daemons, &key)))
		return;
	address = (const char *)connection + bpf_core_field_offset(struct ceph_connection, peer_addr.in_addr);
	bpf_probe_read_kernel(&family, sizeof(family), address);
	bpf_probe_read_kernel(&value.port, sizeof(value.port), address + 2);
	if (family == 10 /* AF_INET6 */) {
		bpf_probe_read_kernel(value.address, 16, address + 8);
	} else {
		value.address[10] = value.address[11] = 0xff;
		bpf_probe_read_kernel(value.address + 12, 4, address + 4);
	}
	if (value.port)
		bpf_map_update_elem(&daemons, &key, &value, BPF_ANY);
}

/* Fills in the requester, which is the current thread. */
static __always_inline void begin(struct inflight *f, __u64 mount, __u32 operation)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	f->op.start = f->op.used = bpf_ktime_get_ns();
	f->op.probe = PROBE_CEPH;
	f->op.mount = mount;
	f->op.operation = operation;
	f->op.pid = pid_tgid >> 32;
	f->op.tid = pid_tgid;
	f->op.caller = current_caller();
	f->op.flags = f->op.caller == CALLER_KERNEL ? EVENT_BY_KERNEL : 0;
	f->uid = bpf_get_current_uid_gid();
	f->cgroup = bpf_get_current_cgroup_id();
	bpf_get_current_comm(f->comm, sizeof(f->comm));
}

static __always_inline void keep(__u64 key, const struct inflight *f)
{
	if (bpf_map_update_elem(&inflight, &key, f, BPF_ANY))
		count(PROBE_CEPH, COUNT_LOST_INFLIGHT);
	else
		count(PROBE_CEPH, COUNT_STARTED);
}

static __always_inline struct inflight *inflight_of(__u64 key)
{
	struct inflight *f = bpf_map_lookup_elem(&inflight, &key);

	return f && f->op.start ? f : NULL;
}

/* The request was handed to the messenger for this daemon. */
static __always_inline void sent(struct inflight *f, __u32 daemon, __u64 connection, __u64 number)
{
	bool again = f->sent && f->op.tree != daemon;

	f->sent = bpf_ktime_get_ns();
	f->op.message = number;
	f->op.tree = daemon;
	f->op.connection = connection_number(f->op.mount, daemon);
	f->socket = socket_of(connection);
	note_address(f->op.mount, daemon, connection, again);
}

/* Counts and reports a request that is over. Global, so that the verifier checks it once for all callers. */
__noinline int finish(struct inflight *f, const struct ending *end)
{
	struct outcome o = { .end = bpf_ktime_get_ns(), .probe = PROBE_CEPH };
	__u64 answered, socket;
	struct event *e;

	if (!f || !end || !f->op.start)
		return 0;
	o.start = f->op.start;
	o.mount = f->op.mount;
	o.pid = f->op.pid;
	o.tid = f->op.tid;
	o.operation = f->op.operation;
	o.connection = f->op.connection;
	o.flags = f->op.flags;
	o.bytes = end->bytes;
	o.error = end->error;
	if (end->error)
		o.flags |= EVENT_FAILED;
	if (end->unanswered)
		o.flags |= EVENT_UNANSWERED;
	else
		o.status = end->error;
	if (end->asynchronous)
		o.flags |= EVENT_ASYNCHRONOUS;
	/* Before a request is sent, it waits for the cluster: a session, a map, an OSD that takes it. */
	answered = end->answered;
	if (answered < o.start || answered > o.end)
		answered = o.end;
	o.wire = answered - o.start;
	/* The counters of a new socket say nothing about the old one. */
	socket = end->socket == f->socket ? f->socket : 0;
	if (socket) {
		o.rtt_us = newest_rtt_us((const void *)socket);
		o.retransmits = retransmits((const void *)socket);
		o.arrival_ms = arrival_ms((const void *)socket);
		o.flags |= EVENT_NETWORK_KNOWN;
	}
	e = observe(&o);
	if (e) {
		e->network.arrival_ms = o.arrival_ms;
		if (socket)
			e->network.srtt_us = srtt_us((const void *)socket);
		if (o.end - o.start >= SHORT_NS) {
			read_network_at(&e->network, socket, microseconds(o.end - answered));
			read_progress_at(&e->progress, socket);
			/* Where it waits for the answer. */
			if ((__u32)bpf_get_current_pid_tgid() == f->op.tid)
				read_requester(&e->progress, bpf_get_current_task_btf(), f->op.tid, 0);
		}
		if (end->attempts <= 1)
			read_transit(&e->transit, socket, f->op.start, f->sent + TRANSMIT_NS);
		e->message = f->op.message;
		e->tree = f->op.tree;
		e->inode = end->inode ?: f->inode;
		e->resent = end->attempts ? end->attempts - 1 : 0;
		e->sequence = end->forwarded;
		e->caller = f->op.caller;
		e->uid = f->uid;
		e->cgroup = f->cgroup;
		__builtin_memcpy(e->comm, f->comm, sizeof(e->comm));
		if (end->name)
			bpf_probe_read_kernel_str(e->file, sizeof(e->file), (const char *)end->name);
		report(e);
	}
	count(PROBE_CEPH, COUNT_FINISHED);
	f->op.start = 0;
	return 0;
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct tcp_sock___acknowledged {
	__u32 write_seq;
	__u32 snd_una;
	__u32 rcv_tstamp; /* jiffies: when anything was last acknowledged */
};

#pragma clang attribute pop

/* STATE_* of a daemon's connection. */
static __always_inline __u64 state_of(__u64 connection)
{
	const struct tcp_sock___acknowledged *tcp = (const void *)socket_of(connection);
	__u64 state = STATE_KNOWN;
	__u32 ticks;

	if (!tcp)
		return state;
	state |= STATE_CONNECTED;
	if (BPF_CORE_READ(tcp, write_seq) == BPF_CORE_READ(tcp, snd_una))
		return state;
	ticks = (__u32)bpf_jiffies64() - BPF_CORE_READ(tcp, rcv_tstamp);
	return state | (__u32)(ticks * fixed.tick_ns / 1000000 ?: 1);
}
