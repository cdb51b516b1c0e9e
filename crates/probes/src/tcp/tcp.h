/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* TCP's types, cut to the fields that are read, and functions that apply to a socket at any time. */
#pragma once

#include "../bpf/sends.h"
#include "../connections/peers.h"
#include "flow.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net___flow {
	struct {
		unsigned int inum;
	} ns;
};

struct cgroup___tree {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[]; /* from the root down to this cgroup (Linux 6.1) */
};

struct sock___flow {
	struct {
		struct {
			struct net___flow *net;
		} skc_net;
		struct in6_addr skc_v6_rcv_saddr;
		__u32 skc_rcv_saddr;
	} __sk_common;
	struct {
		struct cgroup___tree *cgroup;
	} sk_cgrp_data;
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	void *sk_data_ready; /* a function; its owner sets it before connecting the socket */
	__u8 sk_bpf_cb_flags; /* Linux 6.14 */
};

struct inet_connection_sock___flow {
	struct {
		__u32 lrcvtime; /* jiffies */
	} icsk_ack;
};

struct minmax_sample {
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_rack___flow {
	__u64 mstamp; /* when the last acknowledged segment was sent, microseconds */
	__u32 rtt_us; /* time until its acknowledgement */
};

struct tcp_sock___flow {
	__u32 write_seq;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 snd_wnd;
	__u32 snd_cwnd;
	__u32 mss_cache;
	__u32 srtt_us; /* times eight */
	__u32 total_retrans;
	__u32 lost_out;
	__u32 lsndtime; /* jiffies */
	__u32 rcv_tstamp; /* jiffies */
	struct {
		void *rb_node;
	} out_of_order_queue;
	__u32 chrono_start; /* jiffies */
	__u32 chrono_stat[3]; /* jiffies */
	__u8 chrono_type : 2;
	__u8 bpf_sock_ops_cb_flags;
	__u64 bytes_sent;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 tcp_wstamp_ns; /* when pacing lets the next segment go */
	struct minmax rtt_min;
	struct tcp_rack___flow rack;
};

#pragma clang attribute pop

enum {
	TCP_ESTABLISHED = 1,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LISTEN = 10,
	/* enum tcp_chrono */
	CHRONO_BUSY = 1,
	CHRONO_WINDOW = 2,
	CHRONO_BUFFER = 3,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct selection);
} selection SEC(".maps");

static __always_inline struct selection *current_selection(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&selection, &zero);
}

static __always_inline __u32 jiffies32(void)
{
	return bpf_jiffies64();
}

/* Jiffies that a socket has spent in a state of enum tcp_chrono (see tcp_get_info_chrono_stats(), net/ipv4/tcp.c). */
static __always_inline __u32 chrono(const struct tcp_sock___flow *tp, __u32 state)
{
	__u32 jiffies = state == CHRONO_BUSY   ? tp->chrono_stat[0] :
			state == CHRONO_WINDOW ? tp->chrono_stat[1] :
						 tp->chrono_stat[2];

	if (BPF_CORE_READ_BITFIELD(tp, chrono_type) == state)
		jiffies += jiffies32() - tp->chrono_start;
	return jiffies;
}

static __always_inline bool is_below(const struct sock *sk, __u64 cgroup, __u32 level)
{
	const struct cgroup___tree *own = BPF_CORE_READ((const struct sock___flow *)sk, sk_cgrp_data.cgroup);
	const struct cgroup *above = NULL;

	if (!own || BPF_CORE_READ(own, level) < (int)level)
		return false;
	bpf_probe_read_kernel(&above, sizeof(above),
			      (const void *)own + bpf_core_field_offset(struct cgroup___tree, ancestors) +
				      level * sizeof(above));
	return BPF_CORE_READ(above, kn, id) == cgroup;
}

static __always_inline void read_local(__u8 address[16], const struct sock___flow *sk, __u16 family)
{
	if (family == FAMILY_INET6) {
		bpf_probe_read_kernel(address, 16,
				      (const void *)sk +
					      bpf_core_field_offset(struct sock___flow, __sk_common.skc_v6_rcv_saddr));
	} else if (family == FAMILY_INET) {
		__u32 local = sk->__sk_common.skc_rcv_saddr;

		address[10] = address[11] = 0xff;
		__builtin_memcpy(address + 12, &local, 4);
	}
}

static __always_inline void read_ends(struct ends *ends, const struct sock *sk)
{
	const struct sock___flow *own = (const void *)sk;
	struct peer peer;

	read_remote(&peer, sk);
	__builtin_memcpy(ends->peer, peer.address, sizeof(ends->peer));
	read_local(ends->local, own, sk->__sk_common.skc_family);
	ends->local_port = sk->__sk_common.skc_num;
	ends->peer_port = bpf_ntohs(peer.port);
	ends->namespace = BPF_CORE_READ(own, __sk_common.skc_net.net, ns.inum);
}

/* A hash of the cookie from 0 to 65535, evenly spread, by which a share of the connections is selected. */
static __always_inline __u32 spread(__u64 cookie)
{
	return (__u32)cookie * 2654435761U >> 16;
}

/*
 * Whether a socket is selected. Sets `mount` to the mount whose server is the peer, or 0. in_cgroup: the program runs
 * only for sockets of the selected cgroup.
 */
static __always_inline bool is_selected(const struct selection *s, const struct sock *sk, __u64 cookie, bool in_cgroup,
					__u64 *mount)
{
	__u16 port = s->port;
	struct peer peer;
	__u64 *found;

	*mount = 0;
	if (peer_of(&peer, sk)) {
		found = bpf_map_lookup_elem(&servers, &peer);
		if (found)
			*mount = *found;
	} else if (s->ceph && (__u64)((const struct sock___flow *)sk)->sk_data_ready == s->ceph) {
		*mount = s->ceph_mount;
	}
	if (*mount && s->mounts)
		return in_cgroup || !s->cgroup || is_below(sk, s->cgroup, s->level);
	if (!s->others)
		return false;
	if (port && port != sk->__sk_common.skc_num && port != bpf_ntohs(sk->__sk_common.skc_dport))
		return false;
	if (spread(cookie) >= s->share)
		return false;
	if (s->has_address) {
		const __u64 *wanted = (const void *)s->address, *is = (const void *)peer.address;

		read_remote(&peer, sk);
		if (wanted[0] != is[0] || wanted[1] != is[1])
			return false;
	}
	return in_cgroup || !s->cgroup || is_below(sk, s->cgroup, s->level);
}
