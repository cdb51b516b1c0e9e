/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One call of the VFS, from its entry to its return. It is kept by thread and operation. An operation may call itself:
 * do_fsync calls vfs_fsync_range on some kernels, and is the same function on others; one file system may lie on
 * another. Then the innermost call takes the entry over, and the outer call's return finds none.
 */
#pragma once

#include "../bpf/caller.h"
#include "../bpf/files.h"
#include "../bpf/observe.h"
#include "path.h"
#include "vfs.h"

enum { SLOTS = 8192, MAX_INFLIGHT = 10240 };

/* 50 us: no server answers that fast. The page cache does, and one second of its operations would fill the recorder. */
enum { LEAST_RECORDED = 50000 };

#define A_DAY (24 * 3600 * 1000000000ULL)

struct call {
	struct flight op; /* no probe's while an open has not yet reached a file system that is watched */
	__u64 key; /* thread, operation; 0: the slot is free */
	__u64 inode;
	const struct dentry *dentry; /* of the file, or of the folder that `name` is looked up in */
	const struct qstr *name;
	const void *position; /* loff_t * of the caller, moved on by what is read or written; NULL: see offset */
	__u64 offset;
	__u64 asked;
	__u32 request;
	__u32 reserved;
};

/* Calls under way, each in the slot that its thread and operation lead to: no hash is inserted into and deleted from again
 * for each cached read, which would take longer than the read. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct call);
} slots SEC(".maps");

/* Those that found their slot taken. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INFLIGHT);
	__type(key, __u64);
	__type(value, struct call);
} inflight SEC(".maps");

/* This check comes first at every entry: it runs for each read of every pipe. */
static __always_inline bool is_watched(const struct super_block *sb, bool typed)
{
	struct settings *s = current_settings();
	unsigned long magic = FIELD(typed, sb, s_magic);

	if (!s)
		return false;
	if (s->magic)
		return (__u32)magic == s->magic;
	/* Every other file system too, but not every pipe and socket. */
	return is_remote(magic) || (s->any_filesystem && magic && !(FIELD(typed, sb, s_flags) & SB_KERNMOUNT));
}

/* This check comes first at every return. The watched file systems may have changed since the entry, so it lets more calls
 * through. */
static __always_inline bool may_be_watched(const struct super_block *sb, bool typed)
{
	struct settings *s = current_settings();

	return is_remote(FIELD(typed, sb, s_magic)) || (s && (s->magic || s->any_filesystem));
}

static __always_inline __u64 key_of(enum operation operation, __u64 pid_tgid)
{
	return pid_tgid << 32 | (operation + 1);
}

/* Threads are numbered one after the other, so neighbours never share a slot; nor do the operations of one thread. */
static __always_inline struct call *slot_of(__u64 key)
{
	__u32 index = ((key >> 32) + (__u32)key * (SLOTS / VFS_OPERATIONS)) & (SLOTS - 1);

	return bpf_map_lookup_elem(&slots, &index);
}

static __always_inline struct call *call_of_current(enum operation operation)
{
	__u64 key = key_of(operation, bpf_get_current_pid_tgid());
	struct call *c = slot_of(key);

	return c && c->key == key ? c : bpf_map_lookup_elem(&inflight, &key);
}

static __always_inline int forget(struct call *c)
{
	__u64 key = c->key;

	if (c == slot_of(key)) {
		c->op.start = 0;
		barrier();
		c->key = 0;
	} else {
		bpf_map_delete_elem(&inflight, &key);
	}
	return 0;
}

/* Returns whether the operation is the thread's only one of its kind. If not, the entry of a call that was counted already
 * goes on. */
static __always_inline bool keep(struct call *c)
{
	struct call *slot = slot_of(c->key);
	__u64 taken;

	if (!slot)
		return false;
	taken = __sync_val_compare_and_swap(&slot->key, 0, c->key);
	/* Another call may have begun since this one noted the time. */
	if (taken && taken != c->key && slot->op.start && c->op.start > slot->op.start &&
	    c->op.start - slot->op.start > A_DAY) {
		/* Its end was missed: the kernel refuses a program that it has preempted on this CPU. */
		count(PROBE_VFS, COUNT_SWEPT);
		taken = __sync_val_compare_and_swap(&slot->key, taken, c->key) == taken ? 0 : taken;
	}
	if (!taken || taken == c->key) {
		*slot = *c;
		return !taken;
	}
	if (!bpf_map_update_elem(&inflight, &c->key, c, BPF_NOEXIST))
		return true;
	if (bpf_map_update_elem(&inflight, &c->key, c, BPF_EXIST))
		count(PROBE_VFS, COUNT_LOST_INFLIGHT);
	return false;
}

static __always_inline int started(enum operation operation, struct call *c)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct settings *s = current_settings();

	if (!s || pid_tgid >> 32 == s->own_pid)
		return 0;
	c->key = key_of(operation, pid_tgid);
	c->op.start = bpf_ktime_get_ns();
	c->op.pid = pid_tgid >> 32;
	c->op.tid = pid_tgid;
	c->op.operation = operation;
	c->op.probe = c->op.mount ? PROBE_VFS : 0;
	/* For these operations, only the end shows whether they count. */
	if (keep(c) && operation != VFS_OPEN && operation != VFS_REVALIDATE)
		count(PROBE_VFS, COUNT_STARTED);
	return 0;
}

/* The errno in an int, a long or a pointer: an int leaves the upper half zero, the others fill it with ones. */
static __always_inline __u32 error_of(__u64 result)
{
	__u32 high = result >> 32, error = -(__u32)result;

	if ((high && high != ~0U) || !error || error > MAX_ERRNO || error == EIOCBQUEUED)
		return 0;
	return error >= ERESTARTSYS && error <= ERESTARTSYS + 4 ? EINTR : error;
}

static __always_inline bool moves_bytes(enum operation operation)
{
	return operation == VFS_READ || operation == VFS_WRITE || operation == VFS_COPY_FILE_RANGE ||
	       operation == VFS_SPLICE_READ;
}

/* Fills in the fields that are read only for reported calls. */
static __always_inline void describe(struct event *e, const struct call *c, __u32 program)
{
	const struct dentry *dentry = c->dentry;

	e->inode = c->inode;
	if (!e->inode && !c->name)
		e->inode = BPF_CORE_READ(dentry, d_inode, i_ino); /* the inode has been created meanwhile */
	e->offset = c->offset;
	if (c->position && !bpf_probe_read_kernel(&e->offset, sizeof(e->offset), c->position))
		e->offset -= e->bytes;
	e->asked = c->asked;
	e->caller = current_caller();
	e->request = c->request;
	name_path(e, dentry, c->name, program);
	name_requester(e, bpf_get_current_task_btf());
}

/* `program` tells the programs that are loaded apart. */
static __always_inline int end(enum operation operation, struct call *c, __u64 result, __u32 program)
{
	struct outcome o = { .probe = PROBE_VFS, .operation = operation, .worth_recording = LEAST_RECORDED };
	struct event *e;

	o.start = c->op.start;
	o.end = bpf_ktime_get_ns();
	o.mount = c->op.mount;
	o.pid = c->op.pid;
	o.tid = c->op.tid;
	o.error = error_of(result);
	if (o.error)
		o.flags = EVENT_FAILED;
	else if (moves_bytes(operation) && (__s64)result > 0)
		o.bytes = result;
	e = observe(&o);
	if (e) {
		describe(e, c, program);
		report(e);
	}
	count(PROBE_VFS, COUNT_FINISHED);
	return forget(c);
}

static __always_inline int finished(enum operation operation, __u64 result, __u32 program)
{
	struct call *c = call_of_current(operation);

	return c ? end(operation, c, result, program) : 0;
}
