// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times the calls of MPI_File_* functions, wherever user space has found a library that has them. What a function is,
 * where its arguments are and whose library it is comes with each probe as a cookie.
 *
 * A call is kept in its thread's own storage until it returns, so that a thread that dies in the call leaves nothing. Only
 * the outermost call counts: libraries call their own functions, and bindings for other languages call those of C. The stack
 * shows which return belongs to which call: a deeper frame is an inner call. A frame that lies higher or at the same place
 * proves that the remembered call was left without a return (longjmp).
 */
#include "../bpf/observe.h"
#include "../bpf/uprobe.h"
#include "../threads/iterator.h"
#include "layout.h"
#include "opened.h"

#define MAPPED_FOR PROBE_MPIIO
#include "../bpf/mapped.h"

/* An MPI library, and what launchers of jobs are called. */
static __always_inline bool is_part_of_name(__u32 word, bool is_program)
{
	if ((word & 0xffffff) == WORD(0, 'm', 'p', 'i'))
		return true;
	return is_program && (word == WORD('o', 'r', 't', 'e') || word == WORD('p', 'r', 't', 'e') ||
			      word == WORD('h', 'y', 'd', 'r') || word == WORD('s', 'r', 'u', 'n') ||
			      word == WORD('s', 'l', 'u', 'r') || word == WORD('p', 'b', 's', '_') ||
			      word == WORD('p', 'a', 'l', 's') || word == WORD('f', 'l', 'u', 'x'));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What the arguments of a function are; mod.rs has the same. */
enum form {
	FORM_FILE, /* file, ... */
	FORM_OPEN, /* communicator, path, mode, info, *file */
	FORM_CLOSE, /* *file */
	FORM_DELETE, /* path, info */
	FORM_TRANSFER, /* file, [offset,] buffer, count, datatype, *status */
	FORM_ASYNCHRONOUS, /* file, [offset,] buffer, count, datatype, *request */
	FORM_BEGIN, /* file, [offset,] buffer, count, datatype */
	FORM_END, /* file, buffer, *status */
};

enum cookie {
	COOKIE_OPERATION = 0xff,
	COOKIE_FORM_SHIFT = 8,
	COOKIE_FORM = 0xf,
	COOKIE_LAYOUT_SHIFT = 12,
	COOKIE_LAYOUT = 0xf,
	COOKIE_OFFSET = 1 << 16, /* it takes an offset */
	COOKIE_LARGE = 1 << 17, /* its count is an MPI_Count, not an int */
};

struct call {
	__u64 start; /* 0: in none */
	__u64 stack;
	__u64 file; /* MPI_File, or where that will be */
	__u64 path;
	__u64 count;
	__u64 datatype;
	__u64 status;
	__u32 cookie;
	__u32 first; /* descriptor that may be free when a file is opened */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call);
} calls SEC(".maps");

static __always_inline enum form form_of(__u32 cookie)
{
	return cookie >> COOKIE_FORM_SHIFT & COOKIE_FORM;
}

static __always_inline enum layout layout_of(__u32 cookie)
{
	return cookie >> COOKIE_LAYOUT_SHIFT & COOKIE_LAYOUT;
}

/* Whether the call's return is to be seen. */
static __always_inline bool called(struct pt_regs *regs, __u32 cookie)
{
	/* All arguments are read now: the verifier refuses an access to the context that depends on a branch. */
	__u64 a1 = PT_REGS_PARM1(regs), a2 = PT_REGS_PARM2(regs), a3 = PT_REGS_PARM3(regs), a4 = PT_REGS_PARM4(regs),
	      a5 = PT_REGS_PARM5(regs), a6 = PT_REGS_PARM6(regs), stack = PT_REGS_SP(regs);
	struct task_struct *task = bpf_get_current_task_btf();
	struct call *c = bpf_task_storage_get(&calls, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	enum form form = form_of(cookie);

	asm volatile("" : "+r"(a2), "+r"(a3), "+r"(a4), "+r"(a5), "+r"(a6));
	if (!c) {
		count(PROBE_MPIIO, COUNT_LOST_INFLIGHT);
		return false;
	}
	if (c->start && stack < c->stack)
		return false;
	c->stack = stack;
	c->cookie = cookie;
	c->file = a1;
	c->path = 0;
	c->count = 0;
	c->status = 0;
	switch (form) {
	case FORM_OPEN:
		c->path = a2;
		c->file = a5;
		c->first = next_descriptor(task);
		break;
	case FORM_CLOSE:
		/* After the call, the handle is MPI_FILE_NULL. */
		c->file = 0;
		bpf_probe_read_user(&c->file, sizeof(c->file), (void *)a1);
		break;
	case FORM_DELETE:
		c->path = a1;
		c->file = 0;
		c->first = ~0U;
		break;
	case FORM_END:
		c->status = a3;
		break;
	case FORM_FILE:
		break;
	default:
		if (cookie & COOKIE_OFFSET) {
			a3 = a4;
			a4 = a5;
			a5 = a6;
		}
		c->count = cookie & COOKIE_LARGE ? a3 : (int)a3 < 0 ? 0 : (__u32)a3;
		c->datatype = a4;
		c->status = a5;
	}
	c->start = bpf_ktime_get_ns();
	return true;
}

/* Bytes that the call was asked to move; false: unknown. */
static __always_inline bool asked(const struct call *c, __u64 *bytes)
{
	__u64 size = 0;

	*bytes = 0;
	if (!c->count)
		return true;
	if (!size_of_datatype(layout_of(c->cookie), c->datatype, &size))
		return false;
	*bytes = size * c->count;
	return true;
}

/* Bytes that it has moved; of one that only begins, those asked for. False: unknown. */
static __always_inline bool moved(const struct call *c, struct opened *file, __u64 *bytes)
{
	enum layout layout = layout_of(c->cookie);

	switch (form_of(c->cookie)) {
	case FORM_TRANSFER:
		return is_ignored(c->status) ? asked(c, bytes) : bytes_of_status(layout, c->status, bytes);
	case FORM_END:
		if (!is_ignored(c->status))
			return bytes_of_status(layout, c->status, bytes);
		if (!file || file->split == ~0ULL)
			return false;
		*bytes = file->split;
		return true;
	case FORM_ASYNCHRONOUS:
		return asked(c, bytes);
	case FORM_BEGIN:
		/* The operation is counted when it ends. */
		if (file && !asked(c, &file->split))
			file->split = ~0ULL;
		return true;
	default:
		return true;
	}
}

/* The code's class. Those of MPICH carry more in their higher bits. */
static __always_inline __u32 class_of_error(enum layout layout, int code)
{
	return layout << 16 | (layout == LAYOUT_MPICH ? code & 0x7f : code & 0xffff);
}

static __always_inline struct opened *file_of_call(const struct call *c, const struct task_struct *task)
{
	struct file_key key = { .handle = c->file, .process = task->tgid };

	return bpf_map_lookup_elem(&opened_files, &key);
}

/* Remembers the file that a call by path worked on, if the file is open now. */
static __always_inline void remember(const struct call *c, struct opened *found, struct task_struct *task, bool failed)
{
	struct file_key key = { .process = task->tgid };

	find_opened(found, task, c->path, c->first);
	if (failed || form_of(c->cookie) != FORM_OPEN ||
	    bpf_probe_read_user(&key.handle, sizeof(key.handle), (void *)c->file))
		return;
	if (bpf_map_update_elem(&opened_files, &key, found, BPF_ANY))
		count(PROBE_MPIIO, COUNT_LOST_INFLIGHT);
}

static __always_inline int returned(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct call *c = bpf_task_storage_get(&calls, task, 0, 0);
	struct outcome o = { .end = bpf_ktime_get_ns(), .probe = PROBE_MPIIO };
	struct opened *file, found = {};
	int result = PT_REGS_RC(regs);
	struct event *e;

	if (!c || !c->start || PT_REGS_SP(regs) != c->stack + RETURN_POPS)
		return 0;
	o.start = c->start;
	c->start = 0;
	count(PROBE_MPIIO, COUNT_STARTED);
	if (c->path) {
		remember(c, &found, task, result);
		file = &found;
	} else {
		file = file_of_call(c, task);
	}
	o.operation = c->cookie & COOKIE_OPERATION;
	o.pid = task->tgid;
	o.tid = task->pid;
	if (file)
		o.mount = file->mount;
	if (result) {
		o.status = class_of_error(layout_of(c->cookie), result);
		o.flags = EVENT_FAILED;
	} else if (!moved(c, c->path ? NULL : file, &o.bytes)) {
		o.flags = EVENT_BYTES_UNKNOWN;
		count(PROBE_MPIIO, COUNT_BYTES_UNKNOWN);
	}
	e = observe(&o);
	if (e) {
		asked(c, &e->asked);
		if (file) {
			e->inode = file->inode;
			__builtin_memcpy(e->file, file->name, sizeof(file->name));
		}
		name_requester(e, task);
		report(e);
	}
	if (form_of(c->cookie) == FORM_CLOSE) {
		struct file_key key = { .handle = c->file, .process = task->tgid };

		bpf_map_delete_elem(&opened_files, &key);
	}
	count(PROBE_MPIIO, COUNT_FINISHED);
	return 0;
}

/* Linux 6.13: one program for both, and no return probe for calls that do not want one. */
extern bool bpf_session_is_return(void) __ksym __weak;
/* Linux 7.0 and later. */
extern bool bpf_session_is_return___context(void *context) __ksym __weak;

SEC("uprobe.session")
int session(struct pt_regs *regs)
{
	bool is_return;

	stay_on_own_stack(regs);
	if (bpf_ksym_exists(bpf_session_is_return))
		is_return = bpf_session_is_return();
	else if (bpf_ksym_exists(bpf_session_is_return___context))
		is_return = bpf_session_is_return___context(regs);
	else
		return 2; /* The verifier refuses that, so that the next rung is taken. */
	if (is_return)
		return returned(regs);
	return called(regs, bpf_get_attach_cookie(regs)) ? 0 : 1;
}

SEC("uprobe.multi")
int multi_called(struct pt_regs *regs)
{
	stay_on_own_stack(regs);
	called(regs, bpf_get_attach_cookie(regs));
	return 0;
}

SEC("uretprobe.multi")
int multi_returned(struct pt_regs *regs)
{
	stay_on_own_stack(regs);
	return returned(regs);
}

SEC("uprobe")
int plain_called(struct pt_regs *regs)
{
	stay_on_own_stack(regs);
	called(regs, bpf_get_attach_cookie(regs));
	return 0;
}

SEC("uretprobe")
int plain_returned(struct pt_regs *regs)
{
	stay_on_own_stack(regs);
	return returned(regs);
}

/* The calls that have not returned, as events without an end. */
SEC("iter/task")
int in_flight(struct bpf_iter__task *ctx)
{
	struct event e = { .probe = PROBE_MPIIO, .weight = 1 };
	struct task_struct *task = ctx->task;
	struct opened *file;
	struct call *c;

	if (!task)
		return 0;
	c = bpf_task_storage_get(&calls, task, 0, 0);
	if (!c || !c->start)
		return 0;
	e.start = c->start;
	e.operation = c->cookie & COOKIE_OPERATION;
	e.pid = task->tgid;
	e.tid = task->pid;
	file = file_of_call(c, task);
	if (file) {
		e.mount = file->mount;
		e.inode = file->inode;
		__builtin_memcpy(e.file, file->name, sizeof(file->name));
	}
	name_requester(&e, task);
	if (c->start == e.start)
		bpf_seq_write(ctx->meta->seq, &e, sizeof(e));
	return 0;
}
