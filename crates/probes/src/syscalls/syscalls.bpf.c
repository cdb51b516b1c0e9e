// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times the system calls that reach a watched file system: reading and writing by descriptor, opening, closing, syncing
 * and asking for attributes. Which call is what comes from user space (`calls`), so that nothing here knows numbers.
 *
 * A call by descriptor is attributed when it begins. A call by path is attributed when it ends: to the file that was
 * opened, or to the device that the kernel wrote into the caller's stat buffer. So symbolic links, other name spaces
 * and races cannot mislead the probe. Only a call that failed is attributed by its path.
 */
#include "../bpf/fields.h"
#include "../bpf/files.h"
#include "../bpf/observe.h"
#include "../bpf/waits.h"
#include "../threads/iterator.h"
#include "paths.h"
#include "syscall.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { MAX_CALLS = 512, MAX_ERRNO = 4095, AT_FDCWD = -100, EINTR = 4, ERESTARTSYS = 512 };

/* Where a call says which file it means. */
enum target {
	TARGET_NONE, /* not watched */
	TARGET_DESCRIPTOR, /* argument 0 */
	TARGET_OPENED, /* the result; path in argument 0 */
	TARGET_OPENED_AT, /* the result; directory in argument 0, path in argument 1 */
	TARGET_STAT, /* struct stat in argument 1, path in argument 0 */
	TARGET_STAT_AT, /* struct stat in argument 2, directory in argument 0, path in argument 1 */
	TARGET_STATX_AT, /* struct statx in argument 4, directory in argument 0, path in argument 1 */
};

struct call {
	__u8 operation;
	__u8 target;
};

const volatile struct call calls[MAX_CALLS] SEC(".rodata.calls");
enum target target_type;

struct pending {
	__u64 start; /* 0: nothing pending */
	__u64 mount;
	__u64 inode;
	__u64 buffer; /* struct stat or statx of the caller */
	__u64 path;
	int descriptor; /* of the file, or of the directory that a path starts from */
	__u16 number;
	__u8 operation;
	__u8 target;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pending);
} pending_calls SEC(".maps");

/* How many threads have a call pending, by the last bits of their ids: most calls are not watched, and task storage is
 * expensive. The number is never too low: a thread that is killed in its call stays counted, which only costs time. */
enum { PENDING_SLOTS = 4096 };
__u32 pending_threads[PENDING_SLOTS];

/* Devices of the watched mounts, by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u8);
} watched_devices SEC(".maps");

/* Too large for the stack; a second task on this CPU is refused the same program meanwhile. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_prefix);
} path_scratch SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct nameidata {
	struct path path;
	struct qstr last;
};

struct task_struct___walk {
	struct nameidata *nameidata;
};
#pragma clang attribute pop

static __always_inline bool is_watched(const struct settings *s, struct inode *inode, struct super_block *sb)
{
	__u16 mode;

	if (is_remote(KERNEL_FIELD(super_block, sb, s_magic)))
		return true;
	if (!s->any_filesystem)
		return false;
	/* Every other file system, but not every pipe and socket. */
	mode = KERNEL_FIELD(inode, inode, i_mode);
	return S_ISREG(mode) || S_ISDIR(mode);
}

/* Fills in mount and inode if the file is on a watched file system. */
static __always_inline bool attribute(struct pending *p, const struct settings *s, const struct task_struct *task,
				      int descriptor)
{
	struct file *file = file_of(task, descriptor);
	struct super_block *sb;
	struct inode *inode;

	if (!file)
		return false;
	inode = KERNEL_FIELD(file, file, f_inode);
	sb = KERNEL_FIELD(inode, inode, i_sb);
	if (!is_watched(s, inode, sb))
		return false;
	p->mount = KERNEL_FIELD(super_block, sb, s_dev);
	p->inode = KERNEL_FIELD(inode, inode, i_ino);
	return true;
}

static __always_inline __u32 *pending_slot(const struct task_struct *task)
{
	return &pending_threads[task->pid & (PENDING_SLOTS - 1)];
}

static __always_inline struct pending *pending_of(struct task_struct *task)
{
	struct pending *p;

	if (!*pending_slot(task))
		return NULL;
	p = bpf_task_storage_get(&pending_calls, task, 0, 0);
	return p && p->start ? p : NULL;
}

static __always_inline void no_longer_pending(struct pending *p, const struct task_struct *task)
{
	p->start = 0;
	__sync_fetch_and_add(pending_slot(task), -1);
}

/* The kernel refuses a program that it has preempted on this CPU. So the end of an earlier call may have been missed,
 * and this end must not be taken for the end of the earlier call. */
static __always_inline int not_watched(struct task_struct *task)
{
	struct pending *stale = pending_of(task);

	if (stale)
		no_longer_pending(stale, task);
	return 0;
}

/* This check comes first: most calls of most programs end here. */
static __always_inline bool is_tracked(long number)
{
	return (unsigned long)number < MAX_CALLS && calls[number].target != TARGET_NONE;
}

static __always_inline int entered(const struct pt_regs___kernel *regs, long number)
{
	struct pending p = {}, *stored;
	struct task_struct *task;
	struct settings *s;

	if (!is_tracked(number))
		return 0;
	task = bpf_get_current_task_btf();
	s = current_settings();
	if (!s || task->tgid == s->own_pid || is_compat(task))
		return 0;
	p.target = calls[number].target;
	p.operation = calls[number].operation;
	p.number = number;
	p.descriptor = ARGUMENT_0(regs);
	switch (p.target) {
	case TARGET_DESCRIPTOR:
		if (!attribute(&p, s, task, p.descriptor))
			return not_watched(task);
		break;
	case TARGET_OPENED:
		p.path = ARGUMENT_0(regs);
		p.descriptor = AT_FDCWD;
		break;
	case TARGET_OPENED_AT:
		p.path = ARGUMENT_1(regs);
		break;
	case TARGET_STAT:
		p.path = ARGUMENT_0(regs);
		p.buffer = ARGUMENT_1(regs);
		p.descriptor = AT_FDCWD;
		break;
	case TARGET_STAT_AT:
		p.path = ARGUMENT_1(regs);
		p.buffer = ARGUMENT_2(regs);
		break;
	case TARGET_STATX_AT:
		p.path = ARGUMENT_1(regs);
		p.buffer = ARGUMENT_4(regs);
		break;
	}
	stored = bpf_task_storage_get(&pending_calls, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!stored) {
		count(PROBE_SYSCALLS, COUNT_LOST_INFLIGHT);
		return 0;
	}
	if (!stored->start)
		__sync_fetch_and_add(pending_slot(task), 1);
	p.start = bpf_ktime_get_ns();
	*stored = p;
	return 0;
}

static __always_inline bool device_is_watched(const struct settings *s, __u64 device)
{
	return s->any_filesystem || bpf_map_lookup_elem(&watched_devices, &device);
}

/* The device and inode that the kernel has just written for the caller. */
static __always_inline bool attribute_by_stat(struct pending *p, const struct settings *s)
{
	__u64 stat[2]; /* st_dev, st_ino: first on every 64-bit architecture */
	__u32 device[2]; /* stx_dev_major, stx_dev_minor */

	if (p->target == TARGET_STATX_AT) {
		if (bpf_probe_read_user(device, sizeof(device), (void *)p->buffer + 136) ||
		    bpf_probe_read_user(&p->inode, sizeof(p->inode), (void *)p->buffer + 32))
			return false;
		p->mount = (__u64)device[0] << 20 | device[1];
	} else {
		if (bpf_probe_read_user(stat, sizeof(stat), (void *)p->buffer))
			return false;
		/* new_encode_dev(): minor 0-7, major 8-19, minor 8-19 above that */
		p->mount = (stat[0] >> 8 & 0xfff) << 20 | (stat[0] & 0xff) | (stat[0] >> 12 & 0xfff00);
		p->inode = stat[1];
	}
	return device_is_watched(s, p->mount);
}

/* A failed call has no file. Finds where its path leads: by mount point if the path is absolute, otherwise by the
 * directory where it starts. */
static __always_inline bool attribute_by_path(struct pending *p, const struct settings *s,
					      const struct task_struct *task)
{
	__u32 zero = 0;
	struct path_prefix *prefix = bpf_map_lookup_elem(&path_scratch, &zero);
	long length;

	if (!prefix)
		return false;
	length = bpf_probe_read_user_str(prefix->path, PATH_LENGTH - 1, (void *)p->path);
	if (length <= 0)
		return false;
	if (prefix->path[0] != '/') {
		if (p->descriptor != AT_FDCWD)
			return attribute(p, s, task, p->descriptor);
		p->mount = device_of_cwd(task);
	} else {
		p->mount = device_of_absolute(prefix, length, fixed.mount_namespace, task);
		if (!p->mount)
			return false;
	}
	return device_is_watched(s, p->mount);
}

static __always_inline bool attribute_at_end(struct pending *p, const struct settings *s,
					     const struct task_struct *task, long result)
{
	if (p->target == TARGET_DESCRIPTOR)
		return true;
	if (result < 0)
		return attribute_by_path(p, s, task);
	if (p->target == TARGET_OPENED || p->target == TARGET_OPENED_AT)
		return attribute(p, s, task, result);
	return attribute_by_stat(p, s);
}

/* The file's name, for slow calls only, if the descriptor still means the file it meant. */
static __always_inline void name_file(struct event *e, const struct task_struct *task, int descriptor)
{
	struct file *file = file_of(task, descriptor);

	if (file && BPF_CORE_READ(file, f_inode, i_ino) == e->inode)
		bpf_probe_read_kernel_str(e->file, sizeof(e->file), BPF_CORE_READ(file, f_path.dentry, d_name.name));
}

static __always_inline int left(const struct pt_regs___kernel *regs, long result)
{
	struct outcome o = { .probe = PROBE_SYSCALLS };
	long number = call_number(regs);
	struct task_struct *task;
	struct pending *p;
	struct settings *s;
	struct event *e;

	if (!is_tracked(number))
		return 0;
	task = bpf_get_current_task_btf();
	p = pending_of(task);
	if (!p || p->number != number)
		return 0;
	o.start = p->start;
	o.end = bpf_ktime_get_ns();
	no_longer_pending(p, task);
	s = current_settings();
	if (!s || !attribute_at_end(p, s, task, result))
		return 0;
	count(PROBE_SYSCALLS, COUNT_STARTED);
	o.mount = p->mount;
	o.operation = p->operation;
	o.pid = task->tgid;
	o.tid = task->pid;
	if (result < 0 && result >= -MAX_ERRNO) {
		o.error = -result >= ERESTARTSYS && -result <= ERESTARTSYS + 4 ? EINTR : -result;
		o.flags = EVENT_FAILED;
	} else if (p->operation <= 1) { /* read, write */
		o.bytes = result;
	}
	e = observe(&o);
	if (e) {
		__u32 descriptor = p->target == TARGET_DESCRIPTOR ? p->descriptor : result;

		e->inode = p->inode;
		/* The result of a failed call is no descriptor. */
		if (p->target <= TARGET_OPENED_AT)
			name_file(e, task, descriptor);
		e->caller = number + 1;
		name_requester(e, task);
		read_requester(&e->progress, task, o.tid, 0);
		report(e);
	}
	count(PROBE_SYSCALLS, COUNT_FINISHED);
	return 0;
}

/* A path whose walk is not finished: the folder that the walk has reached, and the name that it looks up there. */
static __always_inline void attribute_by_walk(struct event *e, const struct settings *s, const struct task_struct *task)
{
	struct nameidata *walk = BPF_CORE_READ((const struct task_struct___walk *)task, nameidata);
	struct dentry *folder = BPF_CORE_READ(walk, path.dentry);
	struct super_block *sb = BPF_CORE_READ(folder, d_sb);
	__u32 length = BPF_CORE_READ(walk, last.len);

	if (!walk || !sb || !is_watched(s, BPF_CORE_READ(folder, d_inode), sb))
		return;
	e->mount = BPF_CORE_READ(sb, s_dev);
	if (length >= FILE_LENGTH)
		length = FILE_LENGTH - 1;
	bpf_probe_read_kernel(e->file, length, BPF_CORE_READ(walk, last.name));
}

/* The calls that have not returned, as events without an end. A call by path whose walk has ended has no mount yet. */
SEC("iter/task")
int in_flight(struct bpf_iter__task *ctx)
{
	struct settings *s = current_settings();
	struct task_struct *task = ctx->task;
	struct event e = { .probe = PROBE_SYSCALLS, .weight = 1 };
	struct pending *p;

	if (!task || !s)
		return 0;
	p = pending_of(task);
	if (!p)
		return 0;
	e.start = p->start;
	e.operation = p->operation;
	e.caller = p->number + 1;
	e.pid = task->tgid;
	e.tid = task->pid;
	if (p->target == TARGET_DESCRIPTOR) {
		e.mount = p->mount;
		e.inode = p->inode;
		name_file(&e, task, p->descriptor);
	} else {
		attribute_by_walk(&e, s, task);
	}
	name_requester(&e, task);
	if (p->start == e.start)
		bpf_seq_write(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
	return entered((const void *)regs, number);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
	return left((const void *)regs, result);
}
