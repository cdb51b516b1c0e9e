/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The state of a connection's socket just after an answer was read from it: struct network. */
#pragma once

#include "fields.h"
#include "observe.h"

#include <bpf/bpf_endian.h>

/* Operations shorter than this carry no details of their connection. */
#define SHORT_NS 10000000ULL

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct minmax_sample {
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_rack {
	__u32 rtt_us;
};

struct tcp_options_received {
	__u32 rcv_tsval;
	__u16 wscale_ok : 1; /* both ends offered window scaling (RFC 7323) */
	__u16 rcv_wscale : 4;
};

struct tcp_sock___network {
	struct tcp_options_received rx_opt;
	__u64 tcp_mstamp; /* microseconds of CLOCK_MONOTONIC: when a segment was last received or data sent */
	__u32 srtt_us;
	__u32 total_retrans;
	__u32 dsack_dups;
	__u32 rcv_ooopack;
	__u32 data_segs_out;
	__u32 sacked_out;
	__u32 rcv_wnd;
	__u32 segs_out;
	__u32 segs_in;
	__u32 delivered;
	__u16 total_rto; /* since Linux 6.7 */
	__u32 mss_cache;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u8 rate_app_limited : 1;
	__u32 chrono_start; /* jiffies */
	__u32 chrono_stat[3]; /* jiffies */
	__u8 chrono_type : 2;
	struct tcp_rack rack;
	struct minmax rtt_min;
};

struct inet_connection_sock___network {
	struct {
		__u32 lrcvtime; /* jiffies */
	} icsk_ack;
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct Qdisc {
	struct qdisc_skb_head q;
};

struct netdev_queue {
	struct Qdisc *qdisc;
};

struct net_device___queues {
	struct netdev_queue *_tx;
	unsigned int num_tx_queues;
};

struct xfrm_state {
};

struct dst_entry {
	struct net_device___queues *dev;
	unsigned long _metrics; /* address of the route's metrics; flags in the two lowest bits */
	struct xfrm_state *xfrm; /* without CONFIG_XFRM: absent */
};

struct sock___network {
	struct dst_entry *sk_dst_cache;
	int sk_rx_dst_ifindex; /* the interface by which data last came in */
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
};

struct netns_ipv4___scaling {
	__u8 sysctl_tcp_window_scaling;
};

struct net___scaling {
	struct netns_ipv4___scaling ipv4;
};

struct possible_net___scaling {
	struct net___scaling *net;
};

struct sock_common___network {
	struct possible_net___scaling skc_net;
	unsigned short skc_family;
	__u16 skc_tx_queue_mapping;
	__be16 skc_dport;
};

#pragma clang attribute pop

#define TCP_FIELD(sock, field) KERNEL_FIELD(tcp_sock___network, sock, field)

/*
 * The arrival of the newest segment by this host's clock, less its timestamp by the peer's clock, which ticks in
 * milliseconds on Linux. The difference changes by as much as the way from the peer. The factor is 2^33 / 1000; an
 * overflow only affects bits above the 16 that are kept.
 */
static __always_inline __u16 arrival_ms(const void *sock)
{
	__u32 sent = TCP_FIELD(sock, rx_opt.rcv_tsval);
	__u16 offset = (TCP_FIELD(sock, tcp_mstamp) * 8589935 >> 33) - sent;

	return sent ? offset ?: 1 : 0;
}

static __always_inline __u32 srtt_us(const void *sock)
{
	return TCP_FIELD(sock, srtt_us) >> 3; /* kept in eighths */
}

static __always_inline __u32 newest_rtt_us(const void *sock)
{
	return TCP_FIELD(sock, rack.rtt_us);
}

/* A loss probe that a late acknowledgement overtakes was needless (RFC 2883). */
static __always_inline __u32 retransmits(const void *sock)
{
	__u32 sent = TCP_FIELD(sock, total_retrans), needless;

	if (!sent)
		return 0;
	needless = TCP_FIELD(sock, dsack_dups);
	return sent < needless ? 0 : sent - needless;
}

/* Fills in the fields for every operation, but for the smoothed round-trip time, which only events have. */
static __always_inline void read_network_briefly(struct network *n, const void *sock)
{
	n->rtt_us = newest_rtt_us(sock);
	n->retransmits = retransmits(sock);
	n->arrival_ms = arrival_ms(sock);
}

static __always_inline void read_network(struct network *n, const void *sock)
{
	n->srtt_us = srtt_us(sock);
	read_network_briefly(n, sock);
}

/* The number of packets in the socket's queueing discipline; 0 if its interface has none (a bridge). */
static __always_inline __u32 own_queue(const void *sock)
{
	const void *route = KERNEL_FIELD(sock___network, sock, sk_dst_cache), *device, *queues, *discipline;
	__u32 index = KERNEL_FIELD(sock_common___network, sock, skc_tx_queue_mapping);

	if (!route)
		return 0;
	device = KERNEL_FIELD(dst_entry, route, dev);
	if (!device)
		return 0;
	queues = KERNEL_FIELD(net_device___queues, device, _tx);
	/* No queue is chosen until something is sent. */
	if (index >= KERNEL_FIELD(net_device___queues, device, num_tx_queues))
		index = 0;
	if (!queues)
		return 0;
	queues += index * bpf_core_type_size(struct netdev_queue);
	discipline = KERNEL_FIELD(netdev_queue, queues, qdisc);
	return discipline ? KERNEL_FIELD(Qdisc, discipline, q.qlen) : 0;
}

/* Fills in the fields for slow operations and for events of connections. */
static __always_inline void read_network_closely(struct network *n, const void *sock)
{
	__u32 arrived = KERNEL_FIELD(inet_connection_sock___network, sock, icsk_ack.lrcvtime);

	n->unread_us = arrived ? ((__u32)bpf_jiffies64() - arrived) * fixed.tick_ns / 1000 : 0;
	n->min_rtt_us = TCP_FIELD(sock, rtt_min.s[0].v);
	n->out_of_order = TCP_FIELD(sock, rcv_ooopack);
	n->segments = TCP_FIELD(sock, data_segs_out);
	n->own_queue = own_queue(sock);
}

/*
 * The same for the struct sock at this address, from which the answer was read `taken_us` microseconds ago. Global, so
 * that the verifier checks it once; it takes an address, since global functions take no kernel pointers.
 */
__noinline int read_network_at(struct network *n, __u64 address, __u32 taken_us)
{
	if (!n || !address)
		return 0;
	read_network_closely(n, (const void *)address);
	/* The answer waited until it was read, not until now. */
	n->unread_us -= taken_us < n->unread_us ? taken_us : n->unread_us;
	return 0;
}

/*
 * The receive window that this host offered last, bytes. Without window scaling, the header has no room for more than
 * 65535 (tcp_select_window()). 0: not known, since the peer, or a host on the path, refused scaling: such a window is
 * not this host's choice. This host's setting is read now, and not as it was when the connection was made.
 */
static __always_inline __u32 own_window(const void *sock)
{
	const struct tcp_sock___network *tp = sock;
	__u32 window = TCP_FIELD(tp, rcv_wnd), most = 0xffff;
	const void *net;

	if (BPF_CORE_READ_BITFIELD_PROBED(tp, rx_opt.wscale_ok)) {
		most <<= BPF_CORE_READ_BITFIELD_PROBED(tp, rx_opt.rcv_wscale) & 15;
	} else {
		net = KERNEL_FIELD(sock_common___network, sock, skc_net.net);
		if (!net || BPF_CORE_READ((const struct net___scaling *)net, ipv4.sysctl_tcp_window_scaling))
			return 0;
	}
	return window < most ? window : most;
}

enum { METRIC_MTU = 1 }; /* the place of RTAX_MTU (include/uapi/linux/rtnetlink.h) */

/*
 * The MTU that somebody has set on this host's route to the peer; 0: none, or not known. Only IPv4 keeps it apart from
 * an MTU that the path has reported (rt_pmtu of struct rtable): IPv6 and IPsec write the latter into the same metric.
 */
static __always_inline __u16 route_mtu(const void *sock)
{
	const void *route = KERNEL_FIELD(sock___network, sock, sk_dst_cache);
	const __u32 *metrics;
	__u32 mtu = 0;

	if (!route || KERNEL_FIELD(sock_common___network, sock, skc_family) != FAMILY_INET)
		return 0;
	if (bpf_core_field_exists(((struct dst_entry *)0)->xfrm) && KERNEL_FIELD(dst_entry, route, xfrm))
		return 0;
	metrics = (const void *)(KERNEL_FIELD(dst_entry, route, _metrics) & ~3UL);
	if (metrics)
		bpf_probe_read_kernel(&mtu, sizeof(mtu), metrics + METRIC_MTU);
	return mtu < 0xffff ? mtu : 0xffff;
}

enum { LOOPBACK_IFINDEX = 1 }; /* in each network namespace (include/net/flow.h) */
enum { CHRONOS = 3 }; /* busy, window, buffer: enum tcp_chrono less one */

/* Fills in the socket's part of struct progress. Global, so that the verifier checks it once. */
__noinline int read_progress_at(struct progress *p, __u64 address)
{
	const struct tcp_sock___network *tp = (const void *)address;
	const struct sock___network *sk = (const void *)address;
	__u32 since, state, ticks, interval, all = 0, jiffies[CHRONOS] = {};

	if (!p || !address)
		return 0;
	p->segments_out = TCP_FIELD(tp, segs_out);
	p->segments_in = TCP_FIELD(tp, segs_in);
	p->delivered = TCP_FIELD(tp, delivered);
	p->needless = TCP_FIELD(tp, dsack_dups);
	p->own_window = own_window(tp);
	p->mss = TCP_FIELD(tp, mss_cache);
	p->route_mtu = route_mtu(tp);
	if (bpf_core_field_exists(tp->total_rto))
		p->timeouts = TCP_FIELD(tp, total_rto);
	/* The socket is in one state at a time (tcp_get_info_chrono_stats() of net/ipv4/tcp.c). */
	since = bpf_jiffies64() - TCP_FIELD(tp, chrono_start);
	state = BPF_CORE_READ_BITFIELD_PROBED(tp, chrono_type);
	jiffies[0] = TCP_FIELD(tp, chrono_stat[0]);
	jiffies[1] = TCP_FIELD(tp, chrono_stat[1]);
	jiffies[2] = TCP_FIELD(tp, chrono_stat[2]);
	for (int i = 0; i < CHRONOS; i++) {
		ticks = jiffies[i] + (state == i + 1 ? since : 0);
		all += ticks;
		jiffies[i] = ticks;
	}
	p->busy_ms = all * fixed.tick_ns / 1000000;
	p->window_ms = jiffies[1] * fixed.tick_ns / 1000000;
	p->buffer_ms = jiffies[2] * fixed.tick_ns / 1000000;
	if (KERNEL_FIELD(sock___network, sk, sk_pacing_status))
		p->pacing_rate = KERNEL_FIELD(sock___network, sk, sk_pacing_rate);
	p->port = bpf_ntohs(KERNEL_FIELD(sock_common___network, sk, skc_dport));
	p->by_loopback = KERNEL_FIELD(sock___network, sk, sk_rx_dst_ifindex) == LOOPBACK_IFINDEX;
	interval = TCP_FIELD(tp, rate_interval_us);
	if (interval) {
		p->delivery_rate = TCP_FIELD(tp, rate_delivered) * 1000000ULL * TCP_FIELD(tp, mss_cache) / interval;
		p->application_limited = BPF_CORE_READ_BITFIELD_PROBED(tp, rate_app_limited);
	}
	return 0;
}
