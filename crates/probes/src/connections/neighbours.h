/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether the link-layer address of a connection's next hop has changed, by hand or by a message of the network, and
 * nothing has come back since. Each change is kept. A connection looks it up when it sends a segment again.
 */
#pragma once

#include "../bpf/network.h"
#include "peers.h"

/* An event's status; NEIGHBOUR_CHANGES of mod.rs has them in this order. */
enum { CHANGED_BY_ADMIN = 96, CHANGED_AS_LEARNED };

enum {
	MAX_CHANGES = 256,
	MAX_LINK_ADDRESS = 32, /* MAX_ADDR_LEN, bytes */
	/* include/uapi/linux/neighbour.h: states in which an entry has an address, and that only an administrator changes */
	NUD_HAS_ADDRESS = 0xde,
	NUD_FIXED = 0xc0,
	/* include/net/neighbour.h */
	UPDATE_OVERRIDES = 1,
	ROUTE_HAS_GATEWAY = 2, /* RTF_GATEWAY of IPv6 */
	/* What was on its way when the address changed may come back for a round trip, and some scheduling. */
	ON_THE_WAY_NS = 50 * 1000 * 1000,
};

/* NEIGH_UPDATE_F_ADMIN: bit 7 since Linux 5.16, which no kernel before used, and bit 31 before. */
#define UPDATED_BY_ADMIN 0x80000080U

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct neigh_table {
	int family;
};

struct net_device___neighbour {
	unsigned char addr_len;
};

struct neighbour {
	struct neigh_table *tbl;
	__u8 nud_state;
	unsigned char ha[MAX_LINK_ADDRESS];
	struct net_device___neighbour *dev;
	__u8 primary_key[0];
};

struct dst_ops {
	unsigned short family;
};

struct dst_entry___hop {
	struct net_device___neighbour *dev;
	struct dst_ops *ops;
};

struct rtable {
	__u8 rt_gw_family;
	__u32 rt_gw4;
	struct in6_addr rt_gw6;
};

struct rt6_info {
	struct in6_addr rt6i_gateway;
	__u32 rt6i_flags;
};

struct tcp_sock___acknowledged {
	__u32 rcv_tstamp; /* jiffies: when something was last acknowledged */
};

#pragma clang attribute pop

/* A neighbour: the address of its struct net_device, and its own address. */
struct hop {
	__u64 device;
	struct peer host; /* without a port */
	__u32 reserved;
};

struct change {
	__u64 at; /* ns */
	__u32 status;
	__u32 reserved;
};

/* The last change of each neighbour's link-layer address. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CHANGES);
	__type(key, struct hop);
	__type(value, struct change);
} changed_neighbours SEC(".maps");

static __always_inline void read_host(struct peer *host, const void *address, bool v6)
{
	if (v6) {
		bpf_probe_read_kernel(host->address, 16, address);
		return;
	}
	host->address[10] = host->address[11] = 0xff;
	bpf_probe_read_kernel(host->address + 12, 4, address);
}

/*
 * Whether __neigh_update() will change the entry's address to `to`. It takes an entry's first address from the network
 * for granted, too: only one that was set by hand counts as a change then.
 */
static __always_inline bool changes_address(const struct neighbour *n, const void *to, __u8 state, __u32 flags)
{
	__u64 old[MAX_LINK_ADDRESS / 8] = {}, new[MAX_LINK_ADDRESS / 8] = {};
	__u8 length = BPF_CORE_READ(n, dev, addr_len), before = BPF_CORE_READ(n, nud_state);
	bool by_admin = flags & UPDATED_BY_ADMIN;

	if (!to || !(state & NUD_HAS_ADDRESS) || !length || length > MAX_LINK_ADDRESS)
		return false;
	if ((!by_admin && before & NUD_FIXED) || (before & NUD_HAS_ADDRESS && !(flags & UPDATE_OVERRIDES)))
		return false;
	bpf_probe_read_kernel(old, length, n->ha);
	bpf_probe_read_kernel(new, length, to);
	if (!by_admin && !(old[0] | old[1] | old[2] | old[3]))
		return false;
	return old[0] != new[0] || old[1] != new[1] || old[2] != new[2] || old[3] != new[3];
}

static __always_inline void note_change(const struct neighbour *n, __u32 flags)
{
	struct change change = { .at = bpf_ktime_get_ns(),
				 .status = flags & UPDATED_BY_ADMIN ? CHANGED_BY_ADMIN : CHANGED_AS_LEARNED };
	struct hop hop = { .device = (__u64)BPF_CORE_READ(n, dev) };
	int family = BPF_CORE_READ(n, tbl, family);

	if (family != FAMILY_INET && family != FAMILY_INET6)
		return;
	read_host(&hop.host, n->primary_key, family == FAMILY_INET6);
	bpf_map_update_elem(&changed_neighbours, &hop, &change, BPF_ANY);
}

/* Finds the neighbour that a connection's segments go to; false if the socket has no route now. */
static __always_inline bool next_hop(struct hop *hop, const struct sock *sk, const struct peer *peer)
{
	const struct dst_entry___hop *route = (const void *)KERNEL_FIELD(sock___network, sk, sk_dst_cache);
	const struct rtable *v4 = (const void *)route;
	const struct rt6_info *v6 = (const void *)route;
	__u8 gateway;

	if (!route)
		return false;
	hop->device = (__u64)BPF_CORE_READ(route, dev);
	if (BPF_CORE_READ(route, ops, family) == FAMILY_INET) {
		gateway = BPF_CORE_READ(v4, rt_gw_family);
		if (gateway == FAMILY_INET)
			read_host(&hop->host, &v4->rt_gw4, false);
		else if (gateway)
			read_host(&hop->host, &v4->rt_gw6, true);
		else
			__builtin_memcpy(hop->host.address, peer->address, 16);
	} else if (BPF_CORE_READ(v6, rt6i_flags) & ROUTE_HAS_GATEWAY) {
		read_host(&hop->host, &v6->rt6i_gateway, true);
	} else {
		__builtin_memcpy(hop->host.address, peer->address, 16);
	}
	return true;
}

/* When the peer last acknowledged something, ns; to a jiffy. */
static __always_inline __u64 last_acknowledged(const struct sock *sk)
{
	__u32 since = bpf_jiffies64() - KERNEL_FIELD(tcp_sock___acknowledged, sk, rcv_tstamp);
	__u64 now = bpf_ktime_get_ns(), ago = since * fixed.tick_ns;

	return ago < now ? now - ago : 0;
}

/*
 * Reports a change of the connection's next hop, if nothing was acknowledged since. `told`: when the last change was of
 * which this connection told, ns.
 */
static __always_inline void tell_of_neighbour(const struct sock *sk, const struct peer *peer,
					      const struct network *network, __u64 *told)
{
	struct outcome o = { .operation = NEIGHBOUR_CHANGED, .flags = EVENT_NETWORK_KNOWN };
	struct hop hop = {};
	struct change *change;

	if (!next_hop(&hop, sk, peer))
		return;
	change = bpf_map_lookup_elem(&changed_neighbours, &hop);
	if (!change || change->at <= *told ||
	    last_acknowledged(sk) > change->at + ON_THE_WAY_NS + network->srtt_us * 1000ULL)
		return;
	*told = change->at;
	o.start = change->at;
	o.status = change->status;
	happened_with(&o, peer, sk->__sk_common.skc_num, network, 0, (struct remark){ .via = &hop.host });
}
