// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * An operation of the site's own, from one hook to another. There is a program for each way to read what a hook passes. Read-only data describes the
 * operation's values. The verifier knows that data, follows only the branches that the data selects, and removes the rest. So the code that runs is the same
 * as that of a program for this one operation. Each operation has an instance of this object, with two of its programs.
 */
#include "../bpf/fields.h"
#include "../bpf/observe.h"
#include "../bpf/uprobe.h"
#include <bpf/usdt.bpf.h>
#include "own.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Faster operations are counted but not recorded: as for the vfs probe. */
#define LEAST_RECORDED 50000

/* volatile, because otherwise the compiler would assume that it is zero. */
const volatile struct own_plan plan SEC(".rodata.plan");

/* How a program reads what its hook passes. */
enum way {
	BY_TRAMPOLINE, /* fentry, fexit, tp_btf: an array */
	BY_REGISTERS, /* kprobe, uprobe and their returns */
	BY_RECORD, /* a tracepoint's record */
	BY_USDT,
};

/* Values of an argument that are kept until the end, if the end hook does not have the argument. */
enum kept {
	KEPT_BYTES,
	KEPT_STATUS,
	KEPT_MOUNT,
	KEPT_FILE,
	ALL_KEPT,
};

struct own_key {
	__u64 part[OWN_KEYS];
};

struct own_flight {
	struct flight flight;
	__u64 bytes;
	__u64 kept[ALL_KEPT];
	__u64 cgroup; /* this and the following: unless a thread ends what it began */
	__u32 uid;
	char comm[COMM_LENGTH];
	__u32 reserved;
};

/* User space sets the size before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct own_key);
	__type(value, struct own_flight);
} own_flights SEC(".maps");

/* In assembly: the compiler would merge these loads into one load at a computed offset, which the verifier refuses. */
#define LOAD(value, base, at) asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(value) : "r"(base), "i"(at))
#define CASE(value, base, number, at)  \
	case number:                   \
		LOAD(value, base, at); \
		break
#define REGISTER(name) __builtin_offsetof(typeof(*__PT_REGS_CAST((struct pt_regs *)0)), name)

static __always_inline __u64 in_array(void *ctx, __u32 number)
{
	__u64 value = 0;

	switch (number) {
		CASE(value, ctx, 0, 0);
		CASE(value, ctx, 1, 8);
		CASE(value, ctx, 2, 16);
		CASE(value, ctx, 3, 24);
		CASE(value, ctx, 4, 32);
		CASE(value, ctx, 5, 40);
		CASE(value, ctx, 6, 48);
		CASE(value, ctx, 7, 56);
		CASE(value, ctx, 8, 64);
		CASE(value, ctx, 9, 72);
		CASE(value, ctx, 10, 80);
		CASE(value, ctx, 11, 88);
		CASE(value, ctx, 12, 96);
	}
	return value;
}

static __always_inline __u64 in_registers(void *ctx, __u32 number)
{
	__u64 value = 0;

	switch (number) {
		CASE(value, ctx, 0, REGISTER(__PT_PARM1_REG));
		CASE(value, ctx, 1, REGISTER(__PT_PARM2_REG));
		CASE(value, ctx, 2, REGISTER(__PT_PARM3_REG));
		CASE(value, ctx, 3, REGISTER(__PT_PARM4_REG));
		CASE(value, ctx, 4, REGISTER(__PT_PARM5_REG));
		CASE(value, ctx, 5, REGISTER(__PT_PARM6_REG));
	}
	return value;
}

static __always_inline __u64 argument(void *ctx, const enum way way, __u32 number)
{
	long value = 0;

	if (way == BY_TRAMPOLINE)
		return in_array(ctx, number);
	if (way == BY_REGISTERS)
		return in_registers(ctx, number);
	if (way == BY_USDT)
		bpf_usdt_arg(ctx, number, &value);
	return value;
}

static __always_inline __u64 returned(void *ctx, const enum way way, __u32 number)
{
	__u64 value = 0;

	if (way == BY_TRAMPOLINE)
		return in_array(ctx, number);
	if (way == BY_REGISTERS)
		LOAD(value, ctx, REGISTER(__PT_RC_REG));
	return value;
}

/* This many bytes of a register, as a number. A register of 8 bytes may be a pointer, with which the verifier permits no arithmetic. */
static __always_inline __u64 as_number(const volatile struct own_place *p, __u64 value)
{
	__u32 size = p->size, shift = 64 - size * 8;

	if (size == 8)
		return value;
	if (p->is_signed)
		return (__s64)(value << shift) >> shift;
	return value << shift >> shift;
}

/* This many bytes of the kernel's memory, in the two ways of KERNEL_BITS(). */
static __always_inline __u64 what_is_at(__u64 pointer, __u32 size)
{
	const void *words;
	__u64 value = 0;

	if (!bpf_ksym_exists(bpf_rdonly_cast)) {
		bpf_probe_read_kernel(&value, size & 15, (void *)pointer);
		return value;
	}
	words = bpf_rdonly_cast((void *)pointer, REGISTERS_ID);
	switch (size) {
	case 1:
		return *(const __u8 *)words;
	case 2:
		return *(const __u16 *)words;
	case 4:
		return *(const __u32 *)words;
	default:
		return *(const __u64 *)words;
	}
}

/* Follows the pointers, except the last one. */
static __always_inline __u64 last_pointer(const volatile struct own_place *p, __u64 value)
{
	__u32 steps = p->steps;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < OWN_STEPS && i + 1 < steps; i++)
		value = what_is_at(value + p->offset[i], 8);
	if (steps)
		value += p->offset[(steps - 1) & (OWN_STEPS - 1)];
	return value;
}

static __always_inline __u64 follow(const volatile struct own_place *p, __u64 value)
{
	if (p->steps)
		value = what_is_at(last_pointer(p, value), p->size);
	return as_number(p, value);
}

static __always_inline __u64 value_of(void *ctx, const enum way way, const volatile struct own_place *p)
{
	__u64 value = 0;

	switch (p->from) {
	case OWN_ARGUMENT:
		return follow(p, argument(ctx, way, p->number));
	case OWN_FIELD:
		if (way == BY_RECORD)
			bpf_probe_read_kernel(&value, p->size & 15, ctx + p->number);
		return as_number(p, value);
	case OWN_RETURN:
		return follow(p, returned(ctx, way, p->number));
	case OWN_THREAD:
		return (__u32)bpf_get_current_pid_tgid();
	default:
		return 0;
	}
}

/* At an operation's end: of a begin hook's argument too, which was kept. */
static __always_inline __u64 value_at_end(void *ctx, const enum way way, const volatile struct own_place *p,
					  const struct own_flight *op, const enum kept kept)
{
	if (p->from == OWN_ARGUMENT && plan.keeps_arguments)
		return follow(p, op->kept[kept]);
	return value_of(ctx, way, p);
}

static __always_inline void keep(struct own_flight *op, void *ctx, const enum way way,
				 const volatile struct own_place *p, const enum kept kept)
{
	if (p->from == OWN_ARGUMENT && p->at_end && plan.keeps_arguments)
		op->kept[kept] = argument(ctx, way, p->number);
}

static __always_inline int begins(void *ctx, const enum way way)
{
	struct own_key key = { { value_of(ctx, way, &plan.begin_key[0]), value_of(ctx, way, &plan.begin_key[1]) } };
	struct settings *s = current_settings();
	__u64 id = bpf_get_current_pid_tgid();
	struct own_flight op = {};

	if (!s || s->own_pid == id >> 32)
		return 0;
	op.flight.probe = plan.probe;
	op.flight.operation = plan.operation;
	op.flight.pid = id >> 32;
	op.flight.tid = id;
	if (plan.bytes.from && !plan.bytes.at_end)
		op.bytes = value_of(ctx, way, &plan.bytes);
	if (plan.mount.from && !plan.mount.at_end)
		op.flight.mount = value_of(ctx, way, &plan.mount);
	keep(&op, ctx, way, &plan.bytes, KEPT_BYTES);
	keep(&op, ctx, way, &plan.status, KEPT_STATUS);
	keep(&op, ctx, way, &plan.mount, KEPT_MOUNT);
	/* The name itself is read only if the operation is slow. */
	if (plan.file.from == OWN_ARGUMENT && (!plan.file.at_end || plan.keeps_arguments))
		op.kept[KEPT_FILE] = argument(ctx, way, plan.file.number);
	if (!plan.by_thread) {
		op.cgroup = bpf_get_current_cgroup_id();
		op.uid = bpf_get_current_uid_gid();
		bpf_get_current_comm(op.comm, sizeof(op.comm));
	}
	op.flight.start = op.flight.used = bpf_ktime_get_ns();
	/* An entry that exists was counted: its end was missed, or its function was called again within itself. */
	if (!bpf_map_update_elem(&own_flights, &key, &op, BPF_NOEXIST))
		count(plan.probe, COUNT_STARTED);
	else if (bpf_map_update_elem(&own_flights, &key, &op, BPF_EXIST))
		count(plan.probe, COUNT_LOST_INFLIGHT);
	return 0;
}

static __always_inline void judge(struct outcome *o, void *ctx, const enum way way, const struct own_flight *op)
{
	__s64 status;

	if (plan.status.from) {
		status = value_at_end(ctx, way, &plan.status, op, KEPT_STATUS);
		if (!plan.status.is_signed && status) {
			o->status = status;
			o->flags = EVENT_FAILED;
		}
		if (plan.status.is_signed && status < 0 && status >= -4095) {
			o->error = -status;
			o->flags = EVENT_FAILED;
		}
	}
	if (!plan.bytes.from || o->flags & EVENT_FAILED)
		return;
	o->bytes = plan.bytes.at_end ? value_at_end(ctx, way, &plan.bytes, op, KEPT_BYTES) : op->bytes;
	if (plan.bytes.is_signed && (__s64)o->bytes < 0)
		o->bytes = 0;
}

static __always_inline void read_file_name(struct event *e, void *ctx, const enum way way, const struct own_flight *op)
{
	__u64 pointer;

	if (!plan.file.from)
		return;
	if (plan.file.from == OWN_ARGUMENT && (!plan.file.at_end || plan.keeps_arguments))
		pointer = op->kept[KEPT_FILE];
	else if (plan.file.from == OWN_RETURN)
		pointer = returned(ctx, way, plan.file.number);
	else
		pointer = argument(ctx, way, plan.file.number);
	if (!plan.file.size)
		bpf_probe_read_user_str(e->file, sizeof(e->file), (void *)pointer);
	else
		bpf_probe_read_kernel_str(e->file, sizeof(e->file), (void *)last_pointer(&plan.file, pointer));
}

static __always_inline int ends(void *ctx, const enum way way)
{
	struct own_key key = { { value_of(ctx, way, &plan.end_key[0]), value_of(ctx, way, &plan.end_key[1]) } };
	struct outcome o = { .end = bpf_ktime_get_ns(), .worth_recording = LEAST_RECORDED };
	struct own_flight *op = bpf_map_lookup_elem(&own_flights, &key);
	struct event *e;

	if (!op)
		return 0;
	o.probe = plan.probe;
	o.operation = plan.operation;
	o.start = op->flight.start;
	o.pid = op->flight.pid;
	o.tid = op->flight.tid;
	o.mount = op->flight.mount;
	if (plan.mount.at_end)
		o.mount = value_at_end(ctx, way, &plan.mount, op, KEPT_MOUNT);
	judge(&o, ctx, way, op);
	e = observe(&o);
	if (e) {
		if (plan.by_thread) {
			name_requester(e, bpf_get_current_task_btf());
		} else {
			e->cgroup = op->cgroup;
			e->uid = op->uid;
			__builtin_memcpy(e->comm, op->comm, sizeof(e->comm));
		}
		read_file_name(e, ctx, way, op);
		report(e);
	}
	bpf_map_delete_elem(&own_flights, &key);
	count(plan.probe, COUNT_FINISHED);
	return 0;
}

/* Of fentry, fexit and tp_btf alike: user space sets which. */
SEC("fentry")
int trampoline_begins(void *ctx)
{
	return begins(ctx, BY_TRAMPOLINE);
}

SEC("fentry")
int trampoline_ends(void *ctx)
{
	return ends(ctx, BY_TRAMPOLINE);
}

/* Of kprobes, uprobes and the returns of both. */
SEC("kprobe")
int registers_begins(void *ctx)
{
	stay_on_own_stack(ctx);
	return begins(ctx, BY_REGISTERS);
}

SEC("kprobe")
int registers_ends(void *ctx)
{
	stay_on_own_stack(ctx);
	return ends(ctx, BY_REGISTERS);
}

SEC("tracepoint")
int record_begins(void *ctx)
{
	return begins(ctx, BY_RECORD);
}

SEC("tracepoint")
int record_ends(void *ctx)
{
	return ends(ctx, BY_RECORD);
}

SEC("usdt")
int usdt_begins(struct pt_regs *ctx)
{
	stay_on_own_stack(ctx);
	return begins(ctx, BY_USDT);
}

SEC("usdt")
int usdt_ends(struct pt_regs *ctx)
{
	stay_on_own_stack(ctx);
	return ends(ctx, BY_USDT);
}
