/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Segments of connections with servers of mounts that this host itself drops, sent or received, with the kernel's
 * reason (enum skb_drop_reason of include/net/dropreason-core.h). The reasons' numbers differ between releases; CO-RE
 * finds them by name. This program runs for every packet that the host drops.
 *
 * A packet that an interface drops before TCP sees it has no reason, and one that the card drops never becomes a packet of the
 * kernel's. Only the interface's counters show them. User space reads the counters (interfaces.rs), and runs `interface_dropped` to report.
 */
#include "interface.h"
#include "namespace.h"
#include "packet.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* An event's status is this plus the reason; smaller values are TCP states. */
enum { DROP_STATUS = 32 };

/* In the order of DROP_REASONS in mod.rs, which begins with DROP_FILTER. */
enum drop {
	NO_DROP,
	DROP_FILTER, /* netfilter, or a program attached to a cgroup, a socket or a driver */
	DROP_TRAFFIC_CONTROL, /* an action or filter of tc */
	DROP_QUEUE, /* a queueing discipline */
	DROP_ROUTE, /* no route, or a route that forbids it */
	DROP_REVERSE_PATH, /* the reverse path filter */
	DROP_BACKLOG, /* the queue of a CPU or of a device */
	DROP_MEMORY, /* no memory, or no space in the socket's buffer */
	DROP_POLICY, /* IPsec policy */
	DROP_CHECKSUM, /* the packet arrived damaged */
};

enum skb_drop_reason {
	SKB_DROP_REASON_NETFILTER_DROP = 1,
	SKB_DROP_REASON_BPF_CGROUP_EGRESS,
	SKB_DROP_REASON_SOCKET_FILTER,
	SKB_DROP_REASON_XDP,
	SKB_DROP_REASON_SECURITY_HOOK,
	SKB_DROP_REASON_TC_INGRESS,
	SKB_DROP_REASON_TC_EGRESS,
	SKB_DROP_REASON_QDISC_DROP,
	SKB_DROP_REASON_QDISC_OVERLIMIT,
	SKB_DROP_REASON_QDISC_CONGESTED,
	SKB_DROP_REASON_CAKE_FLOOD,
	SKB_DROP_REASON_FQ_BAND_LIMIT,
	SKB_DROP_REASON_FQ_HORIZON_LIMIT,
	SKB_DROP_REASON_FQ_FLOW_LIMIT,
	SKB_DROP_REASON_IP_OUTNOROUTES,
	SKB_DROP_REASON_IP_RPFILTER,
	SKB_DROP_REASON_CPU_BACKLOG,
	SKB_DROP_REASON_SOCKET_BACKLOG,
	SKB_DROP_REASON_FULL_RING,
	SKB_DROP_REASON_NOMEM,
	SKB_DROP_REASON_PFMEMALLOC,
	SKB_DROP_REASON_PROTO_MEM,
	SKB_DROP_REASON_SOCKET_RCVBUFF,
	SKB_DROP_REASON_XFRM_POLICY,
	SKB_DROP_REASON_IP_CSUM,
	SKB_DROP_REASON_TCP_CSUM,
	SKB_DROP_REASON_SKB_CSUM,
	SKB_DROP_REASON_UNHANDLED_PROTO,
};

#define IS_REASON(reason, name)                                                      \
	(bpf_core_enum_value_exists(enum skb_drop_reason, SKB_DROP_REASON_##name) && \
	 (reason) == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_##name))

/* Maps the kernel's reason, to an enum drop. A neighbour that does not answer is no drop of this host: the peer or the path is gone.
 * Global, so that the verifier does not follow each result through the caller. */
__noinline __u32 drop_of(__u32 reason)
{
	if (IS_REASON(reason, QDISC_DROP) || IS_REASON(reason, QDISC_OVERLIMIT) || IS_REASON(reason, QDISC_CONGESTED) ||
	    IS_REASON(reason, CAKE_FLOOD) || IS_REASON(reason, FQ_BAND_LIMIT) || IS_REASON(reason, FQ_HORIZON_LIMIT) ||
	    IS_REASON(reason, FQ_FLOW_LIMIT))
		return DROP_QUEUE;
	if (IS_REASON(reason, NETFILTER_DROP) || IS_REASON(reason, BPF_CGROUP_EGRESS) ||
	    IS_REASON(reason, SOCKET_FILTER) || IS_REASON(reason, XDP) || IS_REASON(reason, SECURITY_HOOK))
		return DROP_FILTER;
	if (IS_REASON(reason, TC_INGRESS) || IS_REASON(reason, TC_EGRESS))
		return DROP_TRAFFIC_CONTROL;
	if (IS_REASON(reason, IP_OUTNOROUTES))
		return DROP_ROUTE;
	if (IS_REASON(reason, IP_RPFILTER))
		return DROP_REVERSE_PATH;
	if (IS_REASON(reason, CPU_BACKLOG) || IS_REASON(reason, SOCKET_BACKLOG) || IS_REASON(reason, FULL_RING))
		return DROP_BACKLOG;
	if (IS_REASON(reason, NOMEM) || IS_REASON(reason, PFMEMALLOC) || IS_REASON(reason, PROTO_MEM) ||
	    IS_REASON(reason, SOCKET_RCVBUFF))
		return DROP_MEMORY;
	if (IS_REASON(reason, XFRM_POLICY))
		return DROP_POLICY;
	if (IS_REASON(reason, IP_CSUM) || IS_REASON(reason, TCP_CSUM) || IS_REASON(reason, SKB_CSUM))
		return DROP_CHECKSUM;
	return NO_DROP;
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock___namespace {
	struct {
		struct possible_net skc_net;
	} __sk_common;
};

struct sk_buff___dropped {
	struct net_device___namespace *dev;
	const struct sock *sk;
};

struct net_device___unhandled {
	int ifindex;
	struct possible_net nd_net;
};

struct sk_buff___unhandled {
	struct net_device___unhandled *dev;
};

#pragma clang attribute pop

/* Packets of protocols that this host does not know (LLDP, for instance), by the interface's index modulo UNHANDLED. The kernel also counts
 * them as dropped by the interface, so every healthy host has some. */
enum { UNHANDLED = 1024 };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNHANDLED);
	__type(key, __u32);
	__type(value, __u64);
} unhandled SEC(".maps");

enum {
	/* Namespaces' inode numbers are greater: PROC_DYNAMIC_FIRST of fs/proc/generic.c, and fixed ones before it. */
	FIRST_NAMESPACE = 0xe0000000,
	/* include/net/tcp_states.h. TIME_WAIT has another structure; sockets in LISTEN and later have no peer yet. */
	STATE_ESTABLISHED = 1,
	STATE_TIME_WAIT = 6,
	STATE_LAST_WITH_PEER = 9,
};

/*
 * Whether the packet was dropped in the daemon's network namespace. A packet that has crossed a veth pair still has the
 * sender's socket, so the device's namespace counts first. While TCP queues a segment, the device's place holds a
 * pointer of an rbtree. The number read through that pointer is hardly a namespace's; then the socket's namespace
 * counts.
 */
static __always_inline bool is_here(const struct net *device, const struct net *socket)
{
	__u32 own = own_number(), of_device;

	if (!own)
		return false;
	of_device = BPF_CORE_READ(device, ns.inum);
	if (of_device >= FIRST_NAMESPACE)
		return of_device == own;
	return BPF_CORE_READ(socket, ns.inum) == own;
}

/* Whether a socket's state is one with a peer. */
static __always_inline bool has_peer(const struct sock *sk)
{
	unsigned char state = sk->__sk_common.skc_state;

	return state >= STATE_ESTABLISHED && state <= STATE_LAST_WITH_PEER && state != STATE_TIME_WAIT;
}

static __always_inline void count_unhandled(const struct sk_buff___unhandled *skb)
{
	const struct net_device___unhandled *dev = BPF_CORE_READ(skb, dev);
	__u32 index = BPF_CORE_READ(dev, ifindex) & (UNHANDLED - 1);
	__u64 *count;

	if (!is_own(BPF_CORE_READ(dev, nd_net.net)))
		return;
	count = bpf_map_lookup_elem(&unhandled, &index);
	if (count)
		__sync_fetch_and_add(count, 1);
}

/* Returns early: most packets are dropped for other reasons, or belong to no server of a mount. */
SEC("tp_btf/kfree_skb")
int tp_dropped(unsigned long long *ctx)
{
	const struct sk_buff___dropped *skb = (void *)ctx[0];
	__u32 why = drop_of(ctx[2]);
	struct outcome o = { .operation = TCP_DROPPED, .status = DROP_STATUS + why };
	const struct net *of_socket = NULL;
	const struct sock *sk;
	__u16 local_port = 0;
	struct peer peer;

	if (!skb)
		return 0;
	if (IS_REASON((__u32)ctx[2], UNHANDLED_PROTO))
		count_unhandled((const void *)skb);
	if (!why)
		return 0;
	if (why == DROP_CHECKSUM)
		o.operation = TCP_DAMAGED;
	sk = skb->sk;
	/* A packet without a header yet has its socket. */
	if (sk && has_peer(sk)) {
		if (!peer_of(&peer, sk))
			return 0;
		of_socket = BPF_CORE_READ((const struct sock___namespace *)sk, __sk_common.skc_net.net);
		local_port = sk->__sk_common.skc_num;
	} else if (!server_of(&peer, &local_port, (const void *)skb)) {
		return 0;
	}
	if (!is_here(BPF_CORE_READ(skb, dev, nd_net.net), of_socket))
		return 0;
	happened(&o, &peer, local_port, NULL, 1);
	return 0;
}

/* Run by user space when an interface that leads to a server has dropped packets. */
SEC("syscall")
int interface_dropped(struct interface_drops *seen)
{
	struct outcome o = { .operation = INTERFACE_DROPPED };
	char interface[sizeof(seen->interface)];
	struct peer peer;

	o.start = seen->since;
	o.status = seen->status;
	o.retransmits = seen->packets; /* in the flight recorder's record, which has no other place for it */
	__builtin_memcpy(&peer, seen->server, sizeof(peer));
	__builtin_memcpy(interface, seen->interface, sizeof(interface));
	if (is_server(&peer))
		happened_with(&o, &peer, 0, NULL, seen->packets, (struct remark){ .device = interface });
	return 0;
}
