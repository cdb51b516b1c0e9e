// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The stages of TCP's sends by BPF timestamping (Linux 6.14): call, queue, scheduler, driver, network. Timestamping is
 * switched on for each socket. For other sockets, a program runs only once, when they are connected. On older kernels,
 * the iterator `look` reads what TCP itself knows of connections.
 */
#include "../bpf/fields.h"
#include "stages.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Names that differ from the kernel's, since recent kernel headers define those. */
enum {
	SOCKET_OPTIONS = 1, /* SOL_SOCKET */
	TCP_OPTIONS = 6, /* SOL_TCP */
	CALLBACKS = 1008, /* TCP_BPF_SOCK_OPS_CB_FLAGS */
	SEND_CALLBACKS = 1009, /* SK_BPF_CB_FLAGS, since Linux 6.14 */
	TIMESTAMPING = 1, /* SK_BPF_CB_TX_TIMESTAMPING */
	/* Of the enum in include/uapi/linux/bpf.h; the last five since Linux 6.14. */
	ON_CONNECTED = 4,
	ON_ACCEPTED = 5,
	ON_STATE = 10,
	ON_SCHED = 16,
	ON_DRIVER = 17,
	ON_CARD = 18,
	ON_ACK = 19,
	ON_QUEUED = 20,
	STATE_CALLBACKS = 1 << 2,
	MSG_DONTWAIT = 0x40,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sk_buff {
	unsigned char *head;
	__u32 end; /* an offset from `head`, as on all 64-bit kernels */
};

struct skb_shared_info {
	__u32 tskey;
};

struct bpf_sock_ops_kern {
	struct sk_buff *skb;
};

struct msghdr {
	unsigned int msg_flags;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

/* The sequence number of the stamped byte. */
static __always_inline __u32 stamped_byte(struct bpf_sock_ops *ops)
{
	struct bpf_sock_ops_kern *kern = bpf_cast_to_kern_ctx(ops);
	struct sk_buff *skb = kern->skb;
	struct skb_shared_info *shared = bpf_rdonly_cast(skb->head + skb->end, TYPE_ID(skb_shared_info));

	return shared->tskey;
}

static __always_inline void connected(struct bpf_sock_ops *ops, const struct tcp_sock *tp, const struct selection *sel)
{
	__u64 cookie = bpf_get_socket_cookie(ops), mount;
	int on = TIMESTAMPING;

	if (!is_selected(sel, (const struct sock *)tp, cookie, true, &mount) || !begin(tp, cookie, mount))
		return;
	bpf_setsockopt(ops, SOCKET_OPTIONS, SEND_CALLBACKS, &on, sizeof(on));
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | STATE_CALLBACKS);
}

SEC("sockops")
int plumb_stamp(struct bpf_sock_ops *ops)
{
	struct selection *sel = current_selection();
	struct bpf_sock *sk = ops->sk;
	__u32 op = ops->op;
	struct tcp_sock *tp;
	struct sends *s;

	if (!sel || !sk ||
	    (op != ON_CONNECTED && op != ON_ACCEPTED && op != ON_STATE && (op < ON_SCHED || op > ON_QUEUED)))
		return 1;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 1;
	if (op == ON_CONNECTED || op == ON_ACCEPTED) {
		connected(ops, tp, sel);
		return 1;
	}
	s = sends_of(tp);
	if (!s)
		return 1;
	switch (op) {
	case ON_QUEUED:
		queued(ops, (const struct tcp_sock___flow *)tp, s, sel);
		break;
	case ON_SCHED:
		passed((const struct tcp_sock___flow *)tp, s, sel, stamped_byte(ops), STAGE_QUEUE);
		break;
	case ON_DRIVER:
	case ON_CARD: /* from drivers without a software stamp; the card's own clock is not comparable, so now counts */
		passed((const struct tcp_sock___flow *)tp, s, sel, stamped_byte(ops), STAGE_SCHEDULER);
		break;
	case ON_ACK:
		acknowledged(s, sel, stamped_byte(ops));
		break;
	case ON_STATE:
		if (ops->args[1] == TCP_CLOSE)
			over(s, tp);
		break;
	}
	return 1;
}

static __always_inline bool is_stamped(const struct tcp_sock *tp)
{
	return ((const struct sock___flow *)tp)->sk_bpf_cb_flags & TIMESTAMPING;
}

static __always_inline void set_callbacks(struct tcp_sock *tp, int stamps, __u32 state)
{
	int flags = (((struct tcp_sock___flow *)tp)->bpf_sock_ops_cb_flags & ~STATE_CALLBACKS) | state;

	bpf_setsockopt(tp, SOCKET_OPTIONS, SEND_CALLBACKS, &stamps, sizeof(stamps));
	bpf_setsockopt(tp, TCP_OPTIONS, CALLBACKS, &flags, sizeof(flags));
}

/*
 * Switches timestamping on for the selected sockets of one network namespace, and off for those that struct selection
 * says. Writes a byte for each socket that is no longer stamped.
 */
SEC("iter/tcp")
int choose(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct selection *sel = current_selection();
	const __u8 cleared = 1;
	struct tcp_sock *tp;
	struct sends *s;
	__u64 cookie, mount;

	if (!common || !sel)
		return 0;
	tp = bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	if (common->skc_state != TCP_ESTABLISHED && common->skc_state != TCP_CLOSE_WAIT && !is_stamped(tp))
		return 0;
	cookie = bpf_get_socket_cookie(tp);
	if (is_selected(sel, (const struct sock *)tp, cookie, false, &mount)) {
		s = sends_of(tp);
		if (s && s->cookie == cookie && s->mount != mount) {
			set_aside(cookie);
			s = NULL;
		}
		if ((s && s->cookie == cookie) || begin(tp, cookie, mount))
			set_callbacks(tp, TIMESTAMPING, STATE_CALLBACKS);
	} else if (is_stamped(tp) && (mount ? sel->clear_mounts : sel->clear_others)) {
		s = sends_of(tp);
		if (!s && sel->only_own)
			return 0;
		set_callbacks(tp, 0, 0);
		bpf_seq_write(ctx->meta->seq, &cleared, sizeof(cleared));
		if (s)
			over(s, tp);
	}
	return 0;
}

static __always_inline __u32 ago_ms(__u32 jiffies, __u64 tick_us)
{
	return jiffies ? (jiffies32() - jiffies) * tick_us / 1000 : ~0U;
}

/* Writes a struct connection for each selected socket of one network namespace. */
SEC("iter/tcp")
int look(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct selection *sel = current_selection();
	const struct inet_connection_sock___flow *icsk;
	__u64 tick_us = fixed.tick_ns / 1000;
	const struct tcp_sock___flow *tp;
	const struct sock___flow *sk;
	struct connection c = {};

	if (!common || !sel)
		return 0;
	tp = (const void *)bpf_skc_to_tcp_sock(common);
	if (!tp || common->skc_state == TCP_LISTEN)
		return 0;
	sk = (const void *)tp;
	icsk = (const void *)tp;
	c.cookie = bpf_get_socket_cookie((void *)tp);
	if (!is_selected(sel, (const struct sock *)tp, c.cookie, false, &c.mount))
		return 0;
	c.cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
	c.bytes_sent = tp->bytes_sent;
	c.bytes_acked = tp->bytes_acked;
	c.bytes_received = tp->bytes_received;
	c.pacing_rate = sk->sk_pacing_rate;
	c.pacing = sk->sk_pacing_status;
	read_ends(&c.ends, (const struct sock *)tp);
	c.state = common->skc_state;
	if (bpf_core_field_exists(sk->sk_bpf_cb_flags))
		c.stamped = is_stamped((const struct tcp_sock *)tp);
	c.srtt_us = tp->srtt_us >> 3;
	c.min_rtt_us = BPF_CORE_READ(tp, rtt_min.s[0].v);
	c.retransmits = tp->total_retrans;
	c.lost = tp->lost_out;
	c.unsent = tp->write_seq - tp->snd_nxt;
	c.unacked = tp->snd_nxt - tp->snd_una;
	c.unread = tp->rcv_nxt - tp->copied_seq;
	c.window = tp->snd_wnd;
	c.congestion_window = tp->snd_cwnd;
	c.segment = tp->mss_cache;
	c.busy_ms = (chrono(tp, CHRONO_BUSY) + chrono(tp, CHRONO_WINDOW) + chrono(tp, CHRONO_BUFFER)) * tick_us / 1000;
	c.window_limited_ms = chrono(tp, CHRONO_WINDOW) * tick_us / 1000;
	c.buffer_limited_ms = chrono(tp, CHRONO_BUFFER) * tick_us / 1000;
	c.sent_ago_ms = ago_ms(tp->lsndtime, tick_us);
	c.arrived_ago_ms = ago_ms(icsk->icsk_ack.lrcvtime, tick_us);
	c.acked_ago_ms = ago_ms(tp->rcv_tstamp, tick_us);
	c.gap = !!tp->out_of_order_queue.rb_node;
	bpf_seq_write(ctx->meta->seq, &c, sizeof(c));
	return 0;
}

static __always_inline struct sends *if_stamped(const struct sock *sk)
{
	/* This check must be cheap, since it runs for every socket of the host. */
	if (!(((const struct sock___flow *)sk)->sk_bpf_cb_flags & TIMESTAMPING))
		return NULL;
	return sends_of(sk);
}

/*
 * The following programs run for all connections of the host while they are attached, so they are attached on request
 * only. The kernel calls this one for each part of a call that it copies. The first part is the one before which
 * nothing new is in the queue. A call that does not wait may find no room in the queue and end without another event. A
 * call that waits runs this again.
 */
SEC("tp_btf/tcp_sendmsg_locked")
int call_begins(unsigned long long *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	const struct msghdr *msg = (void *)ctx[1];
	struct sends *s = if_stamped(sk);
	const struct tcp_sock___flow *tp;

	if (!s)
		return 0;
	tp = (const void *)bpf_skc_to_tcp_sock((void *)sk);
	if (tp && tp->write_seq == s->written && (!s->call || msg->msg_flags & MSG_DONTWAIT))
		s->call = bpf_ktime_get_ns();
	return 0;
}

/*
 * Used without stamps: at each received segment, adds the last round trip that TCP itself has measured (RACK). That
 * time begins when TCP passed the segment on, so it includes the queueing discipline.
 */
SEC("tp_btf/tcp_probe")
int segment_came(unsigned long long *ctx)
{
	const struct sock *sk = (void *)ctx[0];
	struct selection *sel = current_selection();
	const struct tcp_sock___flow *tp;
	__u64 cookie, mount;
	struct flow *f;
	__u32 measured;

	if (!sel)
		return 0;
	tp = (const void *)bpf_skc_to_tcp_sock((void *)sk);
	if (!tp)
		return 0;
	cookie = bpf_get_socket_cookie((void *)sk);
	if (!is_selected(sel, sk, cookie, false, &mount))
		return 0;
	f = bpf_map_lookup_elem(&flows, &cookie);
	if (!f) {
		if (bpf_map_update_elem(&flows, &cookie, &empty_flow, BPF_ANY)) {
			count(PROBE_TCP, COUNT_LOST_INFLIGHT);
			return 0;
		}
		f = bpf_map_lookup_elem(&flows, &cookie);
		if (!f)
			return 0;
		read_ends(&f->ends, sk);
		f->mount = mount;
		f->measured = tp->rack.mstamp | 1;
	}
	measured = tp->rack.mstamp | 1;
	if (measured != f->measured && tp->rack.rtt_us)
		add_time(f, STAGE_NETWORK, 1, 1 + tp->rack.rtt_us * 1000ULL);
	f->measured = measured;
	return 0;
}

SEC("tp_btf/sk_data_ready")
int data_ready(unsigned long long *ctx)
{
	struct sends *s = if_stamped((void *)ctx[0]);

	if (!s)
		return 0;
	s->arrived = bpf_ktime_get_ns();
	if (!s->waiting)
		s->waiting = s->arrived;
	return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int data_read(unsigned long long *ctx)
{
	struct sends *s = if_stamped((void *)ctx[0]);
	__u64 since, cookie;
	struct flow *f;

	if (!s)
		return 0;
	s->read = bpf_ktime_get_ns();
	since = s->waiting;
	s->waiting = 0;
	if (!since)
		return 0;
	cookie = s->cookie;
	f = bpf_map_lookup_elem(&flows, &cookie);
	if (f)
		add_time(f, STAGE_READ, since, s->read);
	return 0;
}
