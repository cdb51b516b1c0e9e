/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Events of connections with the servers of mounts. They are reported as operations, so that histograms, recorder, ring
 * and rules handle them, too. The objects of this folder share this header: TCP, the SMB client, RPC, the NFS client.
 */
#pragma once

#include "../bpf/observe.h"
#include <bpf/bpf_endian.h>

/* The events, in the order of PROTOCOL.operations (mod.rs). */
enum happening {
	CONNECTION_LOST,
	RECONNECT,
	SESSION_LOST,
	LEASE_LOST,
	LEASE_BREAK_TIMEOUT,
	CREDIT_STARVATION,
	SLOT_STARVATION,
	RPC_TIMEOUT,
	RPC_RETRANSMIT,
	TCP_RESET,
	TCP_RESET_SENT,
	TCP_RETRANSMIT,
	TCP_NO_ANSWER,
	TCP_ZERO_WINDOW,
	TCP_NOT_SENT,
	TCP_DROPPED,
	TCP_DAMAGED,
	TCP_REROUTED,
	TCP_HELD,
	TCP_UNREACHABLE,
	NEIGHBOUR_CHANGED,
	INTERFACE_DROPPED,
	TCP_CONNECTED,
};

enum { MAX_SERVERS = 8192, FAMILY_INET6 = 10 };

/* A server's address and port: IPv4 as ::ffff:a.b.c.d, the port in network byte order. `Peer` of mod.rs. */
struct peer {
	__u8 address[16];
	__u16 port;
	__u16 reserved;
};

/* The servers of mounts, each with the key of its first mount. User space writes them when mounts change. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SERVERS);
	__type(key, struct peer);
	__type(value, __u64);
} servers SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
};

struct sock_common {
	__u16 skc_family;
	__u16 skc_dport; /* network byte order */
	__u16 skc_num; /* the local port */
	__u32 skc_daddr;
	struct in6_addr skc_v6_daddr;
	volatile unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
};

#pragma clang attribute pop

/* Reads an address and a port, both in network byte order, from these places in kernel memory. */
static __always_inline void read_end(struct peer *peer, const void *address, const void *port, bool v6)
{
	__builtin_memset(peer, 0, sizeof(*peer));
	bpf_probe_read_kernel(&peer->port, sizeof(peer->port), port);
	if (v6) {
		bpf_probe_read_kernel(peer->address, 16, address);
		return;
	}
	peer->address[10] = peer->address[11] = 0xff;
	bpf_probe_read_kernel(peer->address + 12, 4, address);
}

/* Reads a struct sockaddr_in (family, port, address) or sockaddr_in6 (family, port, flow, address). */
static __always_inline void read_peer(struct peer *peer, const void *address)
{
	__u16 family = 0;
	bool v6;

	bpf_probe_read_kernel(&family, sizeof(family), address);
	v6 = family == FAMILY_INET6;
	read_end(peer, address + (v6 ? 8 : 4), address + 2, v6);
}

static __always_inline bool is_mapped(const struct peer *peer)
{
	const __u64 *address = (const void *)peer->address;

	return !address[0] && (__u32)address[1] == bpf_htonl(0xffff);
}

static const char format_v4[] = "%pI4:%d";
static const char format_v4_from[] = "%pI4:%d from port %d";
static const char format_v6[] = "[%pI6]:%d";
static const char format_v6_from[] = "[%pI6]:%d from port %d";
static const char format_through[] = " through %s";
static const char format_by_v4[] = " by %pI4";
static const char format_by_v6[] = " by %pI6";
static const char format_via_v4[] = " via %pI4";
static const char format_via_v6[] = " via %pI6";

enum { PEER_LENGTH = 72 }; /* more than the text of a peer takes without a remark */

/* What else an event says; NULL or 0: it does not. */
struct remark {
	/* In the text of the peer: */
	const char *device; /* the kernel's name of the interface that leads to the peer */
	const struct peer *by; /* who says so */
	const struct peer *via; /* the next hop */
	/* Times to live (IPv6: hop limits), as they arrived: */
	__u8 ttl; /* of the segment that the event is about */
	__u8 server_ttl; /* of the segment with which the server accepted the connection */
};

/* Returns the length with the final NUL, or an error. */
static __always_inline long name_peer(char *text, const struct peer *peer, __u16 local_port)
{
	bool v4 = is_mapped(peer);
	__u64 values[] = { (__u64)(v4 ? peer->address + 12 : peer->address), bpf_ntohs(peer->port), local_port };

	if (v4 && local_port)
		return bpf_snprintf(text, PEER_LENGTH, format_v4_from, values, 24);
	if (v4)
		return bpf_snprintf(text, PEER_LENGTH, format_v4, values, 16);
	if (local_port)
		return bpf_snprintf(text, PEER_LENGTH, format_v6_from, values, 24);
	return bpf_snprintf(text, PEER_LENGTH, format_v6, values, 16);
}

static __always_inline void name_remark(char *text, struct remark remark)
{
	const struct peer *host = remark.by ?: remark.via;
	bool v4 = host && is_mapped(host);
	__u64 value = (__u64)(!host ? remark.device :
			      v4    ? (const char *)host->address + 12 :
				      (const char *)host->address);

	if (!host && !remark.device)
		return;
	if (!host)
		bpf_snprintf(text, FILE_LENGTH - PEER_LENGTH, format_through, &value, 8);
	else if (v4 && remark.by)
		bpf_snprintf(text, FILE_LENGTH - PEER_LENGTH, format_by_v4, &value, 8);
	else if (v4)
		bpf_snprintf(text, FILE_LENGTH - PEER_LENGTH, format_via_v4, &value, 8);
	else if (remark.by)
		bpf_snprintf(text, FILE_LENGTH - PEER_LENGTH, format_by_v6, &value, 8);
	else
		bpf_snprintf(text, FILE_LENGTH - PEER_LENGTH, format_via_v6, &value, 8);
}

static __always_inline bool is_server(const struct peer *peer)
{
	return bpf_map_lookup_elem(&servers, peer);
}

/*
 * Counts, records and reports an event. The caller fills in the operation and, if the event took time, its start.
 * network: the socket's figures; NULL if not known. times: consecutive occurrences, this one included.
 */
static __always_inline void happened_with(struct outcome *o, const struct peer *peer, __u16 local_port,
					  const struct network *network, __u32 times, struct remark remark)
{
	__u64 *mount = bpf_map_lookup_elem(&servers, peer);
	struct event *e;
	__u64 end;

	o->probe = PROBE_CONNECTIONS;
	o->end = bpf_ktime_get_ns();
	if (!o->start || o->start > o->end)
		o->start = o->end;
	if (mount)
		o->mount = *mount;
	if (network) {
		o->rtt_us = network->rtt_us;
		o->retransmits = network->retransmits;
		o->arrival_ms = network->arrival_ms;
	}
	count(PROBE_CONNECTIONS, COUNT_STARTED);
	count(PROBE_CONNECTIONS, COUNT_FINISHED);
	e = observe(o);
	if (!e)
		return;
	if (network)
		e->network = *network;
	e->resent = times;
	e->request = remark.ttl;
	e->tree = remark.server_ttl;
	e->deliver = 0;
	/* One event stands for all packets between two looks. */
	if (o->operation == INTERFACE_DROPPED) {
		e->weight *= times;
		e->network.retransmits = 0;
	}
	if (peer->port) {
		end = name_peer(e->file, peer, local_port) - 1;
		barrier_var(end); /* or the compiler compares another register than the one that it adds */
		if (end < PEER_LENGTH)
			name_remark(e->file + end, remark);
	}
	report(e);
}

static __always_inline void happened(struct outcome *o, const struct peer *peer, __u16 local_port,
				     const struct network *network, __u32 times)
{
	happened_with(o, peer, local_port, network, times, (struct remark){});
}
