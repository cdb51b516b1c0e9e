/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What happens with a finished operation. It always goes into the histogram and the flight recorder; into the ring only
 * if it reaches its threshold and passes the filter. A probe fills a struct outcome and calls observe(). If that
 * returns an event, the probe adds the details that only slow operations get, and calls report().
 */
#pragma once

#include "maps.h"

/* What a probe knows of every operation at little cost. Times are nanoseconds of CLOCK_MONOTONIC. */
struct outcome {
	__u64 start;
	__u64 end;
	__u64 queue;
	__u64 wire;
	__u64 mount;
	__u64 bytes;
	__u64 connection;
	__u64 worth_recording; /* ns; a faster operation is counted but not recorded: it would displace others */
	__u32 pid;
	__u32 tid;
	__u32 status;
	__u32 error;
	__u32 rtt_us; /* this and the next two: as in struct network */
	__u32 retransmits;
	__u16 arrival_ms;
	__u16 operation;
	__u8 probe;
	__u8 flags;
};

static const struct histogram empty_histogram;
static const struct usage empty_usage;

static __always_inline void count(__u32 probe, enum counter which)
{
	__u32 index = probe * MAX_COUNTERS + which;
	__u64 *counter = bpf_map_lookup_elem(&counters, &index);

	/* Atomic although per CPU: a program can be preempted between load and store. */
	if (counter)
		__sync_fetch_and_add(counter, 1);
}

static __always_inline struct settings *current_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}

/* The lesser of the two. Code that indexes by it compares once more, since the verifier needs that as a bound. */
static __always_inline __u64 at_most(__u64 value, __u64 last)
{
	if (value > last)
		value = last;
	barrier_var(value);
	return value;
}

/* The quarter of an octave, counted from 1, in which each value below 1024 lies; 0 below 4. */
#define QUARTER(octave, n) [(3 + (n)) << (octave)...((4 + (n)) << (octave)) - 1] = 4 * (octave) + (n)
#define QUARTERS(octave) QUARTER(octave, 1), QUARTER(octave, 2), QUARTER(octave, 3), QUARTER(octave, 4)
static const __u8 quarters[1024] = { QUARTERS(0), QUARTERS(1), QUARTERS(2), QUARTERS(3),
				     QUARTERS(4), QUARTERS(5), QUARTERS(6), QUARTERS(7) };

/* `shift`, a power of two, if `value` is greater than `last`, else 0; both are below 2^63. A branch would double the verifier's paths. */
static __always_inline __u64 shift_above(__u64 value, __u64 last, __u64 shift)
{
	__u64 negative = last - value;

	barrier_var(negative); /* or the compiler sees that it is a comparison */
	return negative >> (63 - __builtin_ctzll(shift)) & shift;
}

/* Leaves the three most significant bits of a value that is less than 2^34, and some more, but less than 1024. Returns by how much it was
 * shifted. To find the highest bit by halving takes twice as long. */
static __always_inline __u64 scale_down(__u64 *value)
{
	__u64 far = shift_above(*value, (1 << 18) - 1, 16), near;

	*value >>= far;
	near = shift_above(*value, 1023, 8);
	*value = *value >> near & 1023;
	return far + near;
}

/* Twin of model's Histogram::bucket_of; shared.bpf.c lets a test compare the two. Buckets begin at 2^10 ns, the last one at 2^38. */
static __always_inline __u64 bucket_of(__u64 ns)
{
	__u64 value = at_most(ns >> 8, 1 << 30), shift = scale_down(&value);

	return quarters[value] + 4 * shift;
}

/* Twin of model's Histogram::size_of, of which the last is from 2^31 on. Not for 0. */
static __always_inline __u64 size_of(__u64 bytes)
{
	__u64 value = at_most(bytes, 1ULL << (SIZE_BUCKETS - 1)) << 2, shift = scale_down(&value);
	__u32 quarter = quarters[value];

	return ((quarter - 1) >> 2) + shift;
}

static __always_inline void add_to_histogram(const struct outcome *o, __u64 duration)
{
	struct histogram_key key = { .mount = o->mount, .operation = o->operation, .probe = o->probe };
	struct histogram *h = bpf_map_lookup_elem(&histograms, &key);
	__u64 bucket, size;

	if (!h) {
		bpf_map_update_elem(&histograms, &key, &empty_histogram, BPF_NOEXIST);
		h = bpf_map_lookup_elem(&histograms, &key);
		if (!h) {
			count(o->probe, COUNT_LOST_HISTOGRAM);
			return;
		}
	}
	__sync_fetch_and_add(&h->count, 1);
	__sync_fetch_and_add(&h->sum, duration);
	if (o->bytes) {
		__sync_fetch_and_add(&h->bytes, o->bytes);
		size = size_of(o->bytes);
		if (size < SIZE_BUCKETS)
			__sync_fetch_and_add(&h->sizes[size], 1);
	}
	if (o->flags & EVENT_FAILED)
		__sync_fetch_and_add(&h->errors, 1);
	bucket = bucket_of(duration);
	if (bucket < HISTOGRAM_BUCKETS)
		__sync_fetch_and_add(&h->buckets[bucket], 1);
}

static __always_inline struct usage *usage_of(const struct outcome *o, struct usage_key *key, bool is_current)
{
	struct usage *u = bpf_map_lookup_elem(&usage, key);

	if (u)
		return u;
	bpf_map_update_elem(&usage, key, &empty_usage, BPF_NOEXIST);
	u = bpf_map_lookup_elem(&usage, key);
	if (u) {
		if (is_current)
			bpf_get_current_comm(u->comm, sizeof(u->comm));
		return u;
	}
	count(o->probe, COUNT_OTHER_USAGE);
	key->mount = 0;
	key->cgroup = 0;
	key->pid = 0;
	return bpf_map_lookup_elem(&usage, key); /* made by user space */
}

/* Adds to the requester's usage. The cgroup is known only if the requester ends the operation, not a kernel worker. */
static __always_inline void account(const struct settings *s, const struct outcome *o, __u64 duration)
{
	struct usage_key key = { .mount = o->mount, .operation = o->operation, .probe = o->probe };
	bool is_current = bpf_get_current_pid_tgid() >> 32 == o->pid;
	__u64 size, bucket;
	struct usage *u;

	if (is_current)
		key.cgroup = bpf_get_current_cgroup_id();
	if (s->account == ACCOUNT_PROCESS || !is_current)
		key.pid = o->pid;
	u = usage_of(o, &key, is_current && key.pid);
	if (!u)
		return;
	__sync_fetch_and_add(&u->calls, 1);
	__sync_fetch_and_add(&u->ns, duration);
	if (o->bytes) {
		__sync_fetch_and_add(&u->bytes, o->bytes);
		size = size_of(o->bytes);
		if (size < SIZE_BUCKETS)
			__sync_fetch_and_add(&u->sizes[size], 1);
	}
	if (o->flags & EVENT_FAILED)
		__sync_fetch_and_add(&u->errors, 1);
	bucket = bucket_of(duration);
	if (bucket < HISTOGRAM_BUCKETS)
		__sync_fetch_and_add(&u->buckets[bucket], 1);
}

static __always_inline __u32 microseconds(__u64 ns)
{
	__u64 us;

	/* 2^38 / 1000, rounded up, is exact for 32 bits: a 64-bit division takes longer than all else that record() does. */
	if (!(ns >> 32))
		return ns * 274877907 >> 38;
	us = ns / 1000;
	return us < ~0U ? us : ~0U;
}

static __always_inline void record(const struct outcome *o, __u64 duration)
{
	__u32 recorded = COUNT_RECORDED, slot;
	__u64 *head = bpf_map_lookup_elem(&counters, &recorded);
	struct record *r;

	if (!head)
		return;
	slot = bpf_get_smp_processor_id() * (fixed.recorder_mask + 1) +
	       (__sync_fetch_and_add(head, 1) & fixed.recorder_mask);
	r = bpf_map_lookup_elem(&recorder, &slot);
	if (!r)
		return;
	r->end = 0;
	barrier_var(r);
	r->mount = o->mount;
	r->duration_us = microseconds(duration);
	r->queue_us = microseconds(o->queue);
	r->wire_us = microseconds(o->wire);
	r->pid = o->pid;
	r->tid = o->tid;
	r->status = o->status;
	r->error = o->error;
	r->arrival_ms = o->arrival_ms;
	r->bytes = o->bytes < ~0U ? o->bytes : ~0U;
	r->rtt_us = o->rtt_us;
	r->retransmits = o->retransmits;
	r->operation = o->operation;
	r->probe = o->probe;
	r->flags = o->flags;
	r->connection = o->connection;
	barrier();
	r->end = o->end;
}

struct ordinary_search {
	const struct settings *settings;
	__u32 first; /* of the probe's codes */
	__u32 code;
	bool is_found;
};

static long match_ordinary(__u32 number, void *context)
{
	struct ordinary_search *search = context;
	__u32 index = (search->first + number) & (MAX_PROBES * MAX_ORDINARY - 1);

	if (search->settings->ordinary[index] == search->code)
		search->is_found = true;
	return search->is_found;
}

/* Whether a failure by this code is ordinary for the probe. Global, so that the verifier checks it once. */
__noinline bool is_ordinary(__u32 probe, __u32 code)
{
	struct ordinary_search search = { current_settings(), probe * MAX_ORDINARY, code, false };

	if (search.settings && code)
		bpf_loop(MAX_ORDINARY, match_ordinary, &search, 0);
	return search.is_found;
}

/* Whether this failure is worth an event, however fast it was. */
static __always_inline bool failed_badly(const struct settings *s, const struct outcome *o)
{
	return o->flags & EVENT_FAILED &&
	       s->failures[(o->probe * MAX_OPERATIONS + o->operation) & (ALL_OPERATIONS - 1)] &&
	       !is_ordinary(o->probe, o->status ?: o->error);
}

static __always_inline bool wanted(const struct settings *s, const struct outcome *o, __u64 duration)
{
	/* The mask bounds the index for the verifier, which does not know the probe's values. */
	if (duration < s->threshold[(o->probe * MAX_OPERATIONS + o->operation) & (ALL_OPERATIONS - 1)] &&
	    !failed_badly(s, o))
		return false;
	if (s->pid && s->pid != o->pid)
		return false;
	if (s->mount && s->mount != o->mount)
		return false;
	/* An operation that a kernel thread does for the followed processes belongs to no process. */
	if (fixed.only_followed && !(o->flags & EVENT_BY_KERNEL) && !bpf_map_lookup_elem(&followed, &o->pid))
		return false;
	return !s->errors_only || o->flags & EVENT_FAILED;
}

/* Reserves the event of a finished operation, to be completed and reported. NULL if sampled out, or the ring is full. */
static __always_inline struct event *event_of(const struct settings *s, const struct outcome *o, __u64 duration)
{
	struct event *e;

	if (s->sample_shift && (bpf_get_prandom_u32() & ((1 << (s->sample_shift & 31)) - 1))) {
		count(o->probe, COUNT_SAMPLED_OUT);
		return NULL;
	}
	count(o->probe, COUNT_PRODUCED);
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count(o->probe, COUNT_LOST_RING);
		return NULL;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->head.kind = RING_EVENT;
	e->head.size = sizeof(*e);
	e->start = o->start;
	e->duration = duration;
	e->queue = o->queue;
	e->wire = o->wire;
	e->deliver = o->queue | o->wire ? duration - o->queue - o->wire : 0;
	e->bytes = o->bytes;
	e->mount = o->mount;
	e->connection = o->connection;
	e->pid = o->pid;
	e->tid = o->tid;
	e->status = o->status;
	e->error = o->error;
	e->network.rtt_us = o->rtt_us;
	e->network.retransmits = o->retransmits;
	e->weight = 1 << (s->sample_shift & 31);
	e->operation = o->operation;
	e->probe = o->probe;
	e->flags = o->flags;
	return e;
}

/* Counts and records a finished operation. Returns an event to complete and report(), or NULL if it is not wanted. */
static __always_inline struct event *observe_by(const struct settings *s, const struct outcome *o)
{
	__u64 duration = o->end - o->start;

	add_to_histogram(o, duration);
	if (fixed.accounts && s->account)
		account(s, o, duration);
	if (duration >= o->worth_recording)
		record(o, duration);
	return wanted(s, o, duration) ? event_of(s, o, duration) : NULL;
}

static __always_inline struct event *observe(const struct outcome *o)
{
	struct settings *s = current_settings();

	return s ? observe_by(s, o) : NULL;
}

/* Fills in the requester's user, cgroup and name. */
static __always_inline void name_requester(struct event *e, const struct task_struct *task)
{
	e->uid = BPF_CORE_READ(task, cred, uid.val);
	e->cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	BPF_CORE_READ_INTO(&e->comm, task, comm);
}

/* Hands an event to user space, which drains the ring every interval; wakes it before only if enough data waits. */
static __always_inline void report(struct event *e)
{
	struct settings *s = current_settings();
	__u64 wake = s ? s->wake_bytes : 0, flags = 0;

	if (wake)
		flags = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) >= wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
	bpf_ringbuf_submit(e, flags);
}
