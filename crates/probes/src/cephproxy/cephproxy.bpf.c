// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times what processes ask the libcephfs proxy for, by the static probes (USDT) of libcephfs_proxy.so.2: wherever user space has found
 * one. The library tells how long the daemon let a request wait and how long libcephfs took; what is left of the time is the way back.
 *
 * A request may end in another thread than it began in. So it is identified by its process and by the address of its slot
 * there. User space removes the entries of a process that is killed.
 */
#include "../bpf/fields.h"
#include "../bpf/observe.h"
#include "../bpf/names.h"
#include "../bpf/uprobe.h"
#include <bpf/usdt.bpf.h>

#define MAPPED_FOR PROBE_CEPHPROXY
#include "../bpf/mapped.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* libcephfs_proxy.so.2, libcephfsd */
static __always_inline bool is_part_of_name(__u32 word, bool is_program)
{
	return word == WORD('h', 'f', 's', '_') || (is_program && word == WORD('h', 'f', 's', 'd'));
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct cred___effective {
	struct kuid euid;
};
#pragma clang attribute pop

struct request_key {
	__u64 process;
	__u64 slot; /* its address there */
};

struct request {
	struct flight flight;
	__u64 handle;
	__u64 asked;
	__u32 uid;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct request_key);
	__type(value, struct request);
} requests SEC(".maps");

/* The daemon that a process means, by the address where the process has the path of the daemon's socket. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct request_key);
	__type(value, __u64);
} sockets SEC(".maps");

/* A buffer into which a thread reads that path. Meanwhile, another thread on this CPU may do the same. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mount_name);
} paths SEC(".maps");

/* Global, so that the verifier checks it once, and not for each argument. */
__noinline __u64 argument(REGISTERS *ctx __arg_ctx, __u64 number)
{
	long value = 0;

	bpf_usdt_arg((struct pt_regs *)ctx, number, &value);
	return value;
}

/* A key for the daemon: its socket's path, which stands for a mount's source. */
static __always_inline __u64 key_of_daemon(struct task_struct *task, __u64 path)
{
	struct request_key where = { .process = task->tgid, .slot = path };
	__u64 *known = bpf_map_lookup_elem(&sockets, &where), key = 0;
	struct mount_name *name;

	if (known)
		return *known;
	name = bpf_task_storage_get(&paths, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!name)
		return 0;
	if (bpf_probe_read_user_str(name->source, sizeof(name->source), (void *)path) > 0) {
		key = source_key(name);
		bpf_map_update_elem(&mount_names, &key, name, BPF_NOEXIST);
		bpf_map_update_elem(&sockets, &where, &key, BPF_ANY);
	}
	bpf_task_storage_delete(&paths, task);
	return key;
}

SEC("usdt")
int call_done(REGISTERS *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct request_key key = { .process = task->tgid, .slot = argument(ctx, 0) };
	struct outcome o = { .end = bpf_ktime_get_ns(), .probe = PROBE_CEPHPROXY };
	struct request *r = bpf_map_lookup_elem(&requests, &key);
	__s64 result = argument(ctx, 4);
	struct event *e;

	stay_on_own_stack(ctx);
	/* The request began before the probe was attached. */
	if (!r || r->flight.operation != (__u16)argument(ctx, 1))
		return 0;
	o.start = r->flight.start;
	o.operation = r->flight.operation;
	o.mount = r->flight.mount;
	o.connection = r->flight.connection;
	o.pid = r->flight.pid;
	o.tid = r->flight.tid;
	o.bytes = argument(ctx, 3);
	o.queue = argument(ctx, 5);
	o.wire = argument(ctx, 6);
	/* The time as the daemon tells it, but at most the time that passed. */
	if (o.queue > o.end - o.start)
		o.queue = o.end - o.start;
	if (o.wire > o.end - o.start - o.queue)
		o.wire = o.end - o.start - o.queue;
	if (result < 0) {
		o.error = -result;
		o.flags = EVENT_FAILED;
	}
	e = observe(&o);
	if (e) {
		name_requester(e, task);
		e->uid = r->uid;
		e->inode = r->handle;
		e->asked = r->asked;
		report(e);
	}
	bpf_map_delete_elem(&requests, &key);
	count(PROBE_CEPHPROXY, COUNT_FINISHED);
	return 0;
}

SEC("usdt")
int call_start(REGISTERS *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct request_key key = { .process = task->tgid, .slot = argument(ctx, 0) };
	__u64 operation = argument(ctx, 1);
	struct request r = {};

	stay_on_own_stack(ctx);
	if (operation >= MAX_OPERATIONS)
		return 0;
	r.flight.operation = operation;
	r.flight.connection = argument(ctx, 2);
	r.handle = argument(ctx, 3);
	r.asked = argument(ctx, 4);
	r.flight.mount = key_of_daemon(task, argument(ctx, 5));
	r.flight.probe = PROBE_CEPHPROXY;
	r.flight.pid = task->tgid;
	r.flight.tid = task->pid;
	/* Samba's processes run as root and send requests in the name of a user: the effective user counts. */
	r.uid = BPF_CORE_READ((const struct cred___effective *)task->cred, euid.val);
	r.flight.start = bpf_ktime_get_ns();
	r.flight.used = r.flight.start;
	/* An entry that exists was counted: its end was missed, or the request is seen twice, since one library in two containers is two
	 * files. */
	if (!bpf_map_update_elem(&requests, &key, &r, BPF_NOEXIST))
		count(PROBE_CEPHPROXY, COUNT_STARTED);
	else if (bpf_map_update_elem(&requests, &key, &r, BPF_EXIST))
		count(PROBE_CEPHPROXY, COUNT_LOST_INFLIGHT);
	return 0;
}
