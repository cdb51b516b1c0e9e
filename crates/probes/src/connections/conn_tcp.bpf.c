// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Retransmissions, resets, closed windows, new routes, changed neighbours and held segments of this host's sockets with
 * servers of mounts.
 * These programs run for every retransmission, reset, route and packet of the host. So they return early for other
 * sockets: for most, the port's bit is not set.
 */
#include "namespace.h"
#include "neighbours.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	/*
	 * Consecutive timeouts without an answer. Each takes twice as long as the one before, from 200 ms on, so three
	 * take 1.4 s. The kernel counts a timeout before it sends the segment again, but a window probe after it has
	 * sent the probe.
	 */
	TIMEOUTS_IN_A_ROW = 3,
	PROBES_IN_A_ROW = 2,
	MOST_SACKED = 0xffff,
	/* A reset's status: above those of received.h and conn_drops.bpf.c, below conn_path.bpf.c's. */
	RESET_STATUS = 48,
	RESET_WITH_ACK = RESET_STATUS + 1,
	RESET_REFUSED = RESET_STATUS + 2, /* of a new connection: it always acknowledges (RFC 9293 3.10.7.1) */
	STATE_SYN_SENT = 2, /* include/net/tcp_states.h */
	/* In the header's byte 13 (RFC 9293 3.1): */
	FLAG_RST = 1 << 2,
	FLAG_ACK = 1 << 4,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct inet_connection_sock {
	__u8 icsk_retransmits; /* timeouts since the peer last acknowledged something */
	__u8 icsk_backoff; /* window probes since the window closed */
};

struct tcp_sock___window {
	__u32 snd_wnd; /* the peer's receive window, bytes */
	__u32 mss_cache;
};

struct net_device___name {
	char name[16];
	int ifindex;
};

struct dst_entry___device {
	struct net_device___name *dev;
};

struct sock___received {
	int sk_rx_dst_ifindex; /* the interface that data last came in by */
};

struct sk_buff {
	struct net_device___namespace *dev;
	__u64 skb_mstamp_ns; /* when TCP sent it, or when it may leave at the earliest (bpf_ktime_get_ns()); 0 where that was cleared */
	struct sock *sk;
	unsigned char *head;
	__u16 network_header; /* offsets from `head`, bytes */
	__u16 transport_header;
};

#pragma clang attribute pop

/* What is remembered of a socket. */
struct known {
	__u64 held; /* time of its last TCP_HELD event, ns */
	__u64 neighbour; /* time of the last change of its next hop that was reported, ns */
	__u32 interface; /* index of the interface by which its segments leave */
	__u32 reset; /* status of the reset that arrives; 0: not known */
	__u8 reset_ttl; /* of that reset */
	__u8 server_ttl; /* of the segment with which the server accepted the connection; 0: not known, the socket is older */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct known);
} known_sockets SEC(".maps");

static __always_inline void tell_with(struct outcome *o, const struct sock *sk, const struct peer *peer, __u32 times,
				      struct remark remark)
{
	struct network network = {};
	__u32 sacked;

	o->flags = EVENT_NETWORK_KNOWN;
	read_network(&network, sk);
	read_network_closely(&network, sk);
	sacked = TCP_FIELD(sk, sacked_out);
	network.sacked = sacked < MOST_SACKED ? sacked : MOST_SACKED;
	happened_with(o, peer, sk->__sk_common.skc_num, &network, times, remark);
}

static __always_inline void tell(enum happening what, const struct sock *sk, const struct peer *peer, __u32 times)
{
	struct outcome o = { .operation = what };

	tell_with(&o, sk, peer, times, (struct remark){});
}

/* The time to live (IPv6: hop limit) of a received packet. */
static __always_inline __u8 ttl_of(const struct sk_buff *skb)
{
	const unsigned char *header = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);
	__u8 first = 0, ttl = 0;

	bpf_probe_read_kernel(&first, sizeof(first), header);
	bpf_probe_read_kernel(&ttl, sizeof(ttl), header + (first >> 4 == 6 ? 7 : 8));
	return ttl;
}

/* Whether a full segment fits the peer's window. */
static __always_inline bool is_open(const struct sock *sk)
{
	const struct tcp_sock___window *tp = (const void *)sk;

	return BPF_CORE_READ(tp, snd_wnd) >= BPF_CORE_READ(tp, mss_cache);
}

/* An outage causes few retransmissions, since each wait is twice as long as the last: consecutive timeouts show an outage. */
SEC("tp_btf/tcp_retransmit_skb")
int tp_retransmit(unsigned long long *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct network network = {};
	struct known *known;
	struct peer peer;
	__u32 row;

	if (!sk || !peer_of(&peer, sk))
		return 0;
	known = bpf_sk_storage_get(&known_sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (known) {
		read_network(&network, sk);
		tell_of_neighbour(sk, &peer, &network, &known->neighbour);
	}
	row = BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_retransmits);
	tell(row >= TIMEOUTS_IN_A_ROW ? TCP_NO_ANSWER : TCP_RETRANSMIT, sk, &peer, row ?: 1);
	return 0;
}

/*
 * The server has accepted a connection. How many hops its segments have left tells them from those that a host on the
 * path sends in the server's name.
 */
SEC("fentry/tcp_finish_connect")
int fentry_connected(unsigned long long *ctx)
{
	struct sock *sk = (void *)ctx[0];
	const struct sk_buff *skb = (void *)ctx[1];
	struct outcome o = { .operation = TCP_CONNECTED };
	struct known *known;
	struct peer peer;

	if (!skb || !peer_of(&peer, sk))
		return 0;
	known = bpf_sk_storage_get(&known_sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!known)
		return 0;
	known->server_ttl = ttl_of(skb);
	happened_with(&o, &peer, sk->__sk_common.skc_num, NULL, 0, (struct remark){ .ttl = known->server_ttl });
	return 0;
}

/*
 * Runs before tp_reset, which does not get the segment. The kernel also gives a connection up for a segment without RST: data for
 * which there is no reader any more.
 */
SEC("fentry/tcp_reset")
int fentry_reset(unsigned long long *ctx)
{
	struct sock *sk = (void *)ctx[0];
	const struct sk_buff *skb = (void *)ctx[1];
	struct known *known;
	struct peer peer;
	__u8 flags = 0;

	if (!skb || !peer_of(&peer, sk))
		return 0;
	known = bpf_sk_storage_get(&known_sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!known)
		return 0;
	known->reset = 0;
	known->reset_ttl = 0;
	bpf_probe_read_kernel(&flags, sizeof(flags),
			      BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, transport_header) + 13);
	if (!(flags & FLAG_RST))
		return 0;
	if (sk->__sk_common.skc_state == STATE_SYN_SENT)
		known->server_ttl = 0; /* that of the connection before, on this socket */
	known->reset = sk->__sk_common.skc_state == STATE_SYN_SENT ? RESET_REFUSED :
		       flags & FLAG_ACK				   ? RESET_WITH_ACK :
								     RESET_STATUS;
	known->reset_ttl = ttl_of(skb);
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int tp_reset(unsigned long long *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct outcome o = { .operation = TCP_RESET };
	struct remark remark = {};
	struct known *known;
	struct peer peer;

	if (!sk || !peer_of(&peer, sk))
		return 0;
	known = bpf_sk_storage_get(&known_sockets, sk, NULL, 0);
	if (known) {
		o.status = known->reset;
		remark.ttl = known->reset_ttl;
		remark.server_ttl = known->server_ttl;
		known->reset = 0;
		known->reset_ttl = 0;
	}
	tell_with(&o, sk, &peer, 0, remark);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int tp_reset_sent(unsigned long long *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	struct peer peer;

	if (sk && peer_of(&peer, sk))
		tell(TCP_RESET_SENT, sk, &peer, 0);
	return 0;
}

/*
 * A receiver closes its window for a moment to ask for a pause. A window that is still closed at the third probe is an
 * event. TCP also probes an open window if there is data to send and nothing is on its way: then the interface refused
 * a segment, or there is no route (tcp_check_probe_timer()).
 */
SEC("fentry/tcp_send_probe0")
int fentry_probe0(unsigned long long *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	struct peer peer;
	__u32 row;

	if (!peer_of(&peer, sk))
		return 0;
	row = BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_backoff);
	if (row >= PROBES_IN_A_ROW)
		tell(is_open(sk) ? TCP_NOT_SENT : TCP_ZERO_WINDOW, sk, &peer, row + 1);
	return 0;
}

/*
 * The kernel has looked up a route for a socket that is about to send. The socket had none yet, or its route became
 * invalid because routes, addresses or interfaces of this host changed. For a socket older than this program, the
 * interface by which its data comes in is taken for the one by which its segments left.
 */
SEC("fentry/sk_setup_caps")
int fentry_routed(unsigned long long *ctx)
{
	struct sock *sk = (void *)ctx[0];
	const struct dst_entry___device *route = (void *)ctx[1];
	struct outcome o = { .operation = TCP_REROUTED, .flags = EVENT_NETWORK_KNOWN };
	const struct net_device___name *device;
	struct network network = {};
	struct known *known;
	struct peer peer;
	__u32 before, now;

	if (!sk || !peer_of(&peer, sk))
		return 0;
	device = BPF_CORE_READ(route, dev);
	now = BPF_CORE_READ(device, ifindex);
	known = bpf_sk_storage_get(&known_sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!known || !now)
		return 0;
	before = known->interface ?: BPF_CORE_READ((const struct sock___received *)sk, sk_rx_dst_ifindex);
	known->interface = now;
	if (!before || before == now)
		return 0;
	read_network(&network, sk);
	happened_with(&o, &peer, sk->__sk_common.skc_num, &network, 0, (struct remark){ .device = device->name });
	return 0;
}

/* A neighbour's entry is about to change. This program runs for each confirmation of an entry, too. */
SEC("tp_btf/neigh_update")
int tp_neighbour(unsigned long long *ctx)
{
	const struct neighbour *n = (void *)ctx[0];

	if (n && changes_address(n, (const void *)ctx[1], ctx[2], ctx[3]))
		note_change(n, ctx[3]);
	return 0;
}

/*
 * A packet is handed to an interface's driver. TCP stamped its segments when it sent them. Since then this host has
 * held the segment: in a queueing discipline, a queue of netfilter, or a full interface. This program runs again for
 * each further interface on the way (a bridge, ifb). Those of other network namespaces do not count: they may be a
 * router's.
 */
SEC("tp_btf/net_dev_start_xmit")
int tp_transmit(unsigned long long *ctx)
{
	const struct sk_buff *skb = (void *)ctx[0];
	struct outcome o = { .operation = TCP_HELD, .flags = EVENT_NETWORK_KNOWN };
	struct network network = {};
	struct known *known;
	struct sock *sk;
	struct peer peer;
	__u64 now;

	sk = skb->sk;
	if (!sk || !has_server(sk->__sk_common.skc_dport))
		return 0;
	o.start = skb->skb_mstamp_ns;
	now = bpf_ktime_get_ns();
	/* A start in the future comes from another clock. */
	if (!o.start || now < o.start + HELD_NS || !peer_of(&peer, sk))
		return 0;
	if (!is_own(BPF_CORE_READ(skb, dev, nd_net.net)))
		return 0;
	known = bpf_sk_storage_get(&known_sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!known || now < known->held + HELD_EVERY_NS)
		return 0;
	known->held = now;
	read_network(&network, sk);
	happened(&o, &peer, sk->__sk_common.skc_num, &network, 0);
	return 0;
}
