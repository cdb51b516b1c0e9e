/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Operations in flight in the slots of an array, by the address of the kernel's object for each. The address gives the object's own
 * slot; the next slot is the object's second. Finding an operation there takes some 15 instructions; in a hash map it takes 80. The
 * few operations that find both slots taken get another one, and the hash map `displaced` says which.
 *
 * A slot is free while its op.start is 0, and keeps the values of its last operation. A program that takes a slot sets
 * op.start to SLOT_TAKEN by an atomic operation, fills the slot in, and calls begins(). A probe that includes this file
 * defines struct inflight, which begins with a struct flight, and goes_on() and count_ended().
 */
#pragma once

#include "maps.h"
#include "observe.h"
#include "spread.h"

enum {
	SLOT_BITS = 10,
	SLOTS = 1 << SLOT_BITS, /* that an address can lead to */
	MAX_INFLIGHT = 10240, /* with those for the displaced */
	DISPLACED_TRIES = 64,
	SLOT_TAKEN = 1, /* no operation began a nanosecond after the machine */
	UNENDED = 1U << 30, /* beside an index: the object's last operation was still there */
	NO_SLOT = ~0U,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_INFLIGHT);
	__type(key, __u32);
	__type(value, struct inflight);
} inflight SEC(".maps");

/* The slots of operations that found both of theirs taken, by object. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INFLIGHT);
	__type(key, __u64);
	__type(value, __u32);
} displaced SEC(".maps");

/* The slots of the operations under way, as look() last found them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_INFLIGHT);
	__type(key, __u32);
	__type(value, __u32);
} under_way SEC(".maps");

/* How often an operation was displaced. While it is 0, the search for displaced operations is left out. */
__u32 times_displaced;

/* Whether the operation in this slot is still under way, by the kernel's object for it. */
static __always_inline bool goes_on(const struct inflight *f);

/* Counts an operation whose end no program saw. */
static __always_inline void count_ended(const struct inflight *f);

static __always_inline __u32 slot_of(__u64 object)
{
	return spread(object, SLOT_BITS);
}

static __always_inline struct inflight *slot_at(__u32 index)
{
	return bpf_map_lookup_elem(&inflight, &index);
}

static __always_inline bool holds(const struct inflight *f, __u64 object)
{
	return f && f->op.object == object && f->op.start > SLOT_TAKEN;
}

static __always_inline bool take(struct inflight *f, __u64 from)
{
	return __sync_val_compare_and_swap(&f->op.start, from, SLOT_TAKEN) == from;
}

/*
 * Global, as are the next three: the verifier checks each function once, and not in each program for each path that leads to it. The
 * functions take the object's address from memory, since such a function may not be given a pointer as a number.
 */
__noinline __u32 find_elsewhere(const __u64 *address)
{
	__u64 object = address ? *address : 0;
	__u32 index = slot_of(object) ^ 1, *slot;

	if (holds(slot_at(index), object))
		return index;
	if (!times_displaced)
		return NO_SLOT;
	slot = bpf_map_lookup_elem(&displaced, &object);
	if (!slot)
		return NO_SLOT;
	index = *slot;
	return holds(slot_at(index), object) ? index : NO_SLOT;
}

/* The object's operation under way; NULL: none is known. */
static __always_inline struct inflight *inflight_of(__u64 object)
{
	struct inflight *f = slot_at(slot_of(object));
	__u32 index;

	if (holds(f, object))
		return f;
	index = find_elsewhere(&object);
	return index == NO_SLOT ? NULL : slot_at(index);
}

struct displacement {
	__u64 object;
	__u32 index; /* of its slot; NO_SLOT: none yet */
};

static long try_displaced(__u32 number, void *context)
{
	struct displacement *of = context;
	__u32 index = SLOTS + __sync_fetch_and_add(&times_displaced, 1) % (MAX_INFLIGHT - SLOTS);
	struct inflight *f = slot_at(index);

	if (!f || f->op.start || !take(f, 0))
		return 0;
	f->op.object = of->object;
	f->op.displaced = 1;
	if (bpf_map_update_elem(&displaced, &of->object, &index, BPF_ANY))
		f->op.start = 0;
	else
		of->index = index;
	return 1;
}

__noinline __u32 displace(const __u64 *address)
{
	struct displacement of = { .object = address ? *address : 0, .index = NO_SLOT };

	bpf_loop(DISPLACED_TRIES, try_displaced, &of, 0);
	return of.index;
}

__noinline __u32 take_elsewhere(const __u64 *address)
{
	__u64 object = address ? *address : 0;
	__u32 index = slot_of(object);
	struct inflight *f = slot_at(index);
	__u64 start;

	if (!holds(f, object)) {
		index = find_elsewhere(&object);
		if (index != NO_SLOT)
			f = slot_at(index);
	}
	start = f ? f->op.start : 0;
	if (f && index != NO_SLOT && start > SLOT_TAKEN && take(f, start))
		return index | UNENDED;
	index = slot_of(object) ^ 1;
	f = slot_at(index);
	if (f && !f->op.start && take(f, 0)) {
		f->op.object = object;
		return index;
	}
	return NO_SLOT;
}

/*
 * A slot for an operation of this object, to be filled in. NULL: there is none, and this is counted. If the end of the object's last
 * operation was missed, that is counted, too.
 */
static __always_inline struct inflight *take_slot(__u64 object, __u32 probe)
{
	struct inflight *f = slot_at(slot_of(object));
	__u32 index;

	if (f && !f->op.start && take(f, 0)) {
		f->op.object = object;
		return f;
	}
	index = take_elsewhere(&object);
	/* displace() is called here, since one more function in the call chain would take too much stack for some programs. */
	if (index == NO_SLOT)
		index = displace(&object);
	f = slot_at(index & ~UNENDED);
	if (!f)
		count(probe, COUNT_LOST_INFLIGHT);
	else if (index & UNENDED)
		count_ended(f);
	return f;
}

/* The slot of an object's operation that has ended, if the slot has not been taken since: for the object's next operation. */
__noinline __u32 take_again(const __u64 *address)
{
	__u64 object = address ? *address : 0;

	for (__u32 second = 0; second < 2; second++) {
		__u32 index = slot_of(object) ^ second;
		struct inflight *f = slot_at(index);

		if (!f || f->op.object != object || f->op.start || !take(f, 0))
			continue;
		if (f->op.object == object)
			return index;
		f->op.start = 0;
	}
	return NO_SLOT;
}

/* The slot is filled in. The exchange is a barrier, as is the one in ends(): a program that sees the slot's new state also sees the
 * slot's contents. */
static __always_inline void begins(struct inflight *f, __u64 start)
{
	__sync_lock_test_and_set(&f->op.start, start);
}

/* Nothing in the slot is read after this. */
static __always_inline void ends(struct inflight *f)
{
	if (f->op.displaced) {
		__u64 object = f->op.object;

		bpf_map_delete_elem(&displaced, &object);
	}
	__sync_lock_test_and_set(&f->op.start, 0);
}

static long look_at(__u32 index, void *context)
{
	struct inflight *f = slot_at(index);
	__u32 *found = context, at = *found;
	__u64 start;

	if (!f)
		return 1;
	start = f->op.start;
	if (start <= SLOT_TAKEN)
		return 0;
	if (goes_on(f)) {
		if (!bpf_map_update_elem(&under_way, &at, &index, BPF_ANY))
			*found = at + 1;
	} else if (take(f, start)) {
		/* The kernel may use the object's memory again meanwhile, but no other operation can take this slot. */
		count_ended(f);
		ends(f);
	}
	return 0;
}

/*
 * Lists the slots of the operations under way, and returns how many there are. An operation has ended if the kernel's object says so:
 * a call that is never sent, or an operation at whose end the kernel refused to run our program (as it does while the same program is
 * preempted on that CPU: bpf_prog->active). User space runs this before it reports old operations as hanging, and every few seconds.
 */
SEC("syscall")
int look(void *ctx)
{
	__u32 found = 0;

	bpf_loop(times_displaced ? MAX_INFLIGHT : SLOTS, look_at, &found, 0);
	return found;
}
