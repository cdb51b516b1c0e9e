/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Computes the times of a send's stages from its stamps. */
#pragma once

#include "../bpf/observe.h"
#include "../bpf/transit.h"
#include "tcp.h"

enum { PACING_NONE, PACING_BY_TCP };

struct bpf_sock_ops_kern;

extern int bpf_sock_ops_enable_tx_tstamp(struct bpf_sock_ops_kern *ops, __u64 flags) __ksym __weak;
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/* By the socket's cookie. A closed connection stays until user space has read it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FLOWS);
	__type(key, __u64);
	__type(value, struct flow);
} flows SEC(".maps");

static const struct flow empty_flow;
static const struct sends empty_sends;

/* Adds a socket to the maps. False if they are full. */
static __always_inline bool begin(const struct tcp_sock *tp, __u64 cookie, __u64 mount)
{
	__u64 address = (__u64)tp;
	struct sends *s;
	struct flow *f;

	if (bpf_map_update_elem(&flows, &cookie, &empty_flow, BPF_ANY)) {
		count(PROBE_TCP, COUNT_LOST_INFLIGHT);
		return false;
	}
	if (bpf_map_update_elem(&sends, &address, &empty_sends, BPF_ANY)) {
		count(PROBE_TCP, COUNT_LOST_INFLIGHT);
		bpf_map_delete_elem(&flows, &cookie);
		return false;
	}
	f = bpf_map_lookup_elem(&flows, &cookie);
	s = bpf_map_lookup_elem(&sends, &address);
	if (!f || !s)
		return false;
	read_ends(&f->ends, (const struct sock *)tp);
	f->mount = mount;
	s->cookie = cookie;
	s->mount = mount;
	s->written = ((const struct tcp_sock___flow *)tp)->write_seq;
	return true;
}

/*
 * The socket's peer is now the server of another mount. The times so far stay with the old mount, as those of a closed
 * connection: under a number that no socket has.
 */
static __always_inline void set_aside(__u64 cookie)
{
	struct flow *f = bpf_map_lookup_elem(&flows, &cookie);
	__u64 aside = cookie | 1ULL << 63;

	if (!f)
		return;
	f->closed = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&flows, &aside, f, BPF_ANY))
		count(PROBE_TCP, COUNT_LOST_INFLIGHT);
}

static __always_inline void tell_stage(const struct selection *sel, const struct sends *s, enum stage stage, __u32 last,
				       __u32 bytes, __u64 start, __u64 now)
{
	struct stamp *stamp;

	if (!sel->every)
		return;
	count(PROBE_TCP, COUNT_PRODUCED);
	stamp = bpf_ringbuf_reserve(&events, sizeof(*stamp), 0);
	if (!stamp) {
		count(PROBE_TCP, COUNT_LOST_RING);
		return;
	}
	stamp->head.kind = RING_STAMP;
	stamp->head.size = sizeof(*stamp);
	stamp->stage = stage;
	stamp->cookie = s->cookie;
	stamp->time = now;
	stamp->start = start;
	stamp->last = last;
	stamp->bytes = bytes;
	bpf_ringbuf_submit(stamp, 0);
}

/* How long pacing alone delays the last byte of the queue, microseconds. */
static __always_inline __u32 paced_us(const struct tcp_sock___flow *tp, __u64 now)
{
	const struct sock___flow *sk = (const void *)tp;
	__u64 rate = sk->sk_pacing_rate, due = tp->tcp_wstamp_ns, us = 0;

	if (sk->sk_pacing_status == PACING_NONE || !rate || rate == ~0UL)
		return 0;
	if (due > now)
		us = (due - now) / 1000;
	us += (__u64)(tp->write_seq - tp->snd_nxt) * 1000000 / rate;
	return us < ~0U ? us : ~0U;
}

static __always_inline struct moment *moment_at(struct sends *s, __u64 time)
{
	__u64 number = moment_of(time);
	struct moment *moment = &s->moments[number & (MOMENTS - 1)];

	if (moment->number != number) {
		moment->sends = 0;
		moment->missed = 0;
		moment->retransmitted = 0;
		moment->local_us = 0;
		moment->held_us = 0;
		moment->most_us = 0;
		moment->number = number;
	}
	return moment;
}

/* A call has put all of its bytes into the queue. If there is room for its times, its last segment is stamped. */
static __always_inline void queued(struct bpf_sock_ops *ops, const struct tcp_sock___flow *tp, struct sends *s,
				   const struct selection *sel)
{
	__u32 written = tp->write_seq, bytes = written - s->written, next = s->next;
	__u64 now = bpf_ktime_get_ns(), start = s->call, cookie = s->cookie;
	struct flow *f = bpf_map_lookup_elem(&flows, &cookie);
	struct send *send;
	bool room = next - s->oldest < SENDS;

	s->written = written;
	s->call = 0;
	if (!f)
		return;
	f->sends++;
	f->bytes += bytes;
	if (!room) {
		s->missed = now;
		moment_at(s, now)->missed++;
	}
	if (!room && !sel->every)
		return;
	bpf_sock_ops_enable_tx_tstamp(bpf_cast_to_kern_ctx(ops), 0);
	tell_stage(sel, s, STAGE_CALL, written - 1, bytes, start, now);
	if (!room)
		return;
	f->stamped++;
	send = &s->sends[next & (SENDS - 1)];
	send->start = start;
	send->queued = now;
	send->sched = 0;
	send->driver = 0;
	send->acked = 0;
	send->last = written - 1;
	send->bytes = bytes;
	send->retransmitted = 0;
	send->window_us = chrono(tp, CHRONO_WINDOW); /* jiffies at the start, until pass() computes the time */
	send->pacing_us = paced_us(tp, now);
	barrier();
	s->next = next + 1;
}

static __always_inline __u32 least(__u64 one, __u64 other)
{
	__u64 least = one < other ? one : other;

	return least < ~0U ? least : ~0U;
}

/* A stamp, with what all sends that it covers need. */
struct passing {
	__u64 now;
	__u64 window; /* jiffies for which the peer's window was closed over the connection's life */
	__u64 tick_us;
	__u32 last;
	__u32 total_retransmitted;
	__u8 stage; /* enum stage: the one that has ended */
	__u8 paced; /* TCP itself paces the connection */
};

/* Updates a send that a stamp covers. The bodies of loops over sends are global, so the verifier checks each once. */
__noinline int pass(struct send *send, const struct passing *p)
{
	if (!send || !p)
		return 0;
	if (p->stage == STAGE_SCHEDULER) {
		if (!send->driver)
			send->driver = p->now;
	} else if (!send->sched) {
		__u64 us = (p->now - send->queued) / 1000;

		send->window_us = least((p->window - send->window_us) * p->tick_us, us);
		if (p->paced)
			send->pacing_us = least(send->pacing_us, us - send->window_us);
		send->sched = p->now;
		send->total_retransmitted = p->total_retransmitted;
	} else if (send->last == p->last && p->total_retransmitted != send->total_retransmitted) {
		/* The count tells a retransmission from one more device on the way (a VLAN, say), which stamps, too. */
		send->total_retransmitted = p->total_retransmitted;
		send->retransmitted++;
	}
	return 0;
}

/* All bytes up to and including `last` have reached the queueing discipline, or the driver. */
static __always_inline void passed(const struct tcp_sock___flow *tp, struct sends *s, const struct selection *sel,
				   __u32 last, enum stage stage)
{
	struct passing p = { .now = bpf_ktime_get_ns(), .last = last, .stage = stage };
	__u32 at = s->oldest, next = s->next;

	/* The driver's stamp needs none of this. */
	if (stage != STAGE_SCHEDULER) {
		p.window = chrono(tp, CHRONO_WINDOW);
		p.tick_us = fixed.tick_ns / 1000;
		p.total_retransmitted = tp->total_retrans;
		p.paced = ((const struct sock___flow *)tp)->sk_pacing_status == PACING_BY_TCP;
	}
	for (int i = 0; i < SENDS && at != next; i++, at++) {
		struct send *send = &s->sends[at & (SENDS - 1)];

		if ((__s32)(last - send->last) < 0)
			break;
		pass(send, &p);
	}
	tell_stage(sel, s, stage, last, 0, 0, p.now);
}

static __always_inline void add_time(struct flow *f, enum stage stage, __u64 from, __u64 to)
{
	struct stage_times *times = &f->stages[stage];
	__u64 ns = to - from, bucket;

	if (!from || to < from)
		return;
	times->count++;
	times->sum += ns;
	if (ns > times->max)
		times->max = ns;
	bucket = bucket_of(ns);
	if (bucket < HISTOGRAM_BUCKETS)
		times->buckets[bucket]++;
}

/* Reports a slow send as an event, if a rule sets a threshold for it. */
static __always_inline void tell_slow(const struct sends *s, const struct send *send, __u64 began)
{
	struct outcome o = { .probe = PROBE_TCP, .operation = STAGE_SEND };
	struct settings *set = current_settings();
	struct event *e;

	if (!set || send->acked - began < set->threshold[PROBE_TCP * MAX_OPERATIONS + STAGE_SEND])
		return;
	o.start = began;
	o.end = send->acked;
	o.queue = (send->driver ?: send->sched) - began;
	o.wire = send->acked - (send->driver ?: send->sched);
	o.mount = s->mount;
	o.connection = s->cookie;
	o.bytes = send->bytes;
	o.retransmits = send->retransmitted;
	e = event_of(set, &o, o.end - o.start);
	if (e)
		report(e);
}

/* A send is acknowledged: adds its times to the connection's. */
__noinline int finish_send(struct sends *s, struct flow *f, struct send *send, __u64 now)
{
	__u64 began;

	if (!s || !f || !send)
		return 0;
	began = send->start ?: send->queued;
	send->acked = now;
	add_time(f, STAGE_CALL, send->start, send->queued);
	if (send->sched) {
		add_time(f, STAGE_QUEUE, send->queued, send->sched);
		add_time(f, STAGE_NETWORK, send->driver ?: send->sched, now);
	}
	if (send->driver)
		add_time(f, STAGE_SCHEDULER, send->sched, send->driver);
	add_time(f, STAGE_SEND, began, now);
	f->retransmitted += send->retransmitted;
	f->window_ns += send->window_us * 1000ULL;
	f->pacing_ns += send->pacing_us * 1000ULL;
	add_send(moment_at(s, send->queued), send);
	tell_slow(s, send, began);
	return 0;
}

/* All bytes up to and including `last` are acknowledged: finishes these sends. */
static __always_inline void acknowledged(struct sends *s, const struct selection *sel, __u32 last)
{
	__u64 now = bpf_ktime_get_ns(), cookie = s->cookie;
	struct flow *f = bpf_map_lookup_elem(&flows, &cookie);
	__u32 at = s->oldest, next = s->next;

	for (int i = 0; i < SENDS && f && at != next; i++, at++) {
		struct send *send = &s->sends[at & (SENDS - 1)];

		if ((__s32)(last - send->last) < 0)
			break;
		finish_send(s, f, send, now);
	}
	s->oldest = at;
	tell_stage(sel, s, STAGE_NETWORK, last, 0, 0, now);
}

/* The connection is closed, or no longer stamped: notes its last figures, and removes its sends. */
static __always_inline void over(const struct sends *s, const struct tcp_sock *tp)
{
	__u64 address = (__u64)tp, cookie = s->cookie;
	struct flow *f = bpf_map_lookup_elem(&flows, &cookie);

	if (f) {
		const struct tcp_sock___flow *last = (const void *)tp;

		f->srtt_us = last->srtt_us >> 3;
		f->min_rtt_us = BPF_CORE_READ(last, rtt_min.s[0].v);
		f->retransmits = last->total_retrans;
		f->closed = bpf_ktime_get_ns();
	}
	bpf_map_delete_elem(&sends, &address);
}
