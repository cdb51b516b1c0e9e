// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times every request of the kernel's FUSE client to the daemon of a file system, or to a virtiofs device. A request is a
 * fuse_req, and passes
 *
 *   started   it is queued for the daemon     tp_btf/fuse_request_send (6.11), else queue_request_and_unlock
 *   taken     a thread of the daemon has it   tp_btf/fuse_request_sent (7.2), else fuse_copy_args: it copies the request
 *   ended     it is answered, or given up     tp_btf/fuse_request_end (6.11), else fuse_request_end
 *   waited    its requester goes on           the return of request_wait_answer; only of those that somebody waits for
 *
 * FORGET and INTERRUPT are no requests: they have no answer.
 */
#include "../bpf/caller.h"
#include "../bpf/ended.h"
#include "../bpf/network.h"
#include "../bpf/observe.h"
#include "../bpf/waits.h"
#include "request.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* OTHER: of an opcode that is not known here. As mod.rs has them. */
enum { MAX_INFLIGHT = 8192, MAX_DAEMONS = 1024, OPERATION_OTHER = 0, OPERATIONS = 54, MAX_ERRNO_SEEN = 511 };
enum { EINTR = 4 };

/* What this rung sees of a request: that the daemon takes it, and that its requester goes on. */
const volatile bool sees_taken = false;
const volatile bool sees_waited = false;

/* The longest time after the answer for which the requester may not have run yet. */
#define DELIVERY_NS 10000000000ULL

struct inflight {
	/* message: unique; session: when the daemon took it; tree: the daemon's process */
	struct flight op;
	__u64 answered; /* 0: not yet */
	__u64 cgroup;
	__u64 node;
	__u64 unique;
	__u64 bytes;
	__u32 error; /* this and the next: valid once it is answered */
	__u8 unanswered;
	__u8 is_background;
	__u32 uid;
	char comm[COMM_LENGTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INFLIGHT);
	__type(key, __u64); /* struct fuse_req * */
	__type(value, struct inflight);
} inflight SEC(".maps");

/* The process that has last taken or answered a request of this mount. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_DAEMONS);
	__type(key, __u64);
	__type(value, __u32);
} daemons SEC(".maps");

static __always_inline const struct fuse_conn *connection_of(const struct fuse_req *request, bool typed)
{
	if (bpf_core_field_exists(struct fuse_req___mount, fm)) {
		const struct fuse_mount *mount = FIELD(typed, (const struct fuse_req___mount *)request, fm);

		return mount ? FIELD(typed, mount, fc) : NULL;
	} else {
		const struct fuse_chan *channel = FIELD(typed, (const struct fuse_req___channel *)request, chan);

		return channel ? FIELD(typed, channel, conn) : NULL;
	}
}

static __always_inline __u64 mount_of(const struct fuse_req *request, bool typed)
{
	const struct fuse_conn *connection;

	if (bpf_core_field_exists(struct fuse_req___mount, fm)) {
		const struct fuse_mount *mount = FIELD(typed, (const struct fuse_req___mount *)request, fm);
		const struct super_block *superblock = mount ? FIELD(typed, mount, sb) : NULL;

		return superblock ? FIELD(typed, superblock, s_dev) : 0;
	}
	connection = connection_of(request, typed);
	return connection ? FIELD(typed, connection, dev) : 0;
}

/*
 * Whether another thread than the current one has requested this. A background request that had to wait for other requests
 * is sent by the thread that ends one of those.
 */
static __always_inline bool is_anothers(const struct fuse_req *request, bool typed)
{
	__u32 thread = FIELD(typed, request, in.h.pid);
	const struct fuse_conn *connection;

	if (!thread || thread == (__u32)bpf_get_current_pid_tgid())
		return false;
	connection = connection_of(request, typed);
	/* A thread number of another pid namespace does not identify the requester. */
	return connection && !BPF_CORE_READ(connection, pid_ns, level);
}

static __always_inline int started(const struct fuse_req *request, bool typed)
{
	__u64 key = (__u64)request, now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	__u32 opcode = FIELD(typed, request, in.h.opcode), *daemon;
	struct inflight f = { .op = { .start = now, .used = now, .probe = PROBE_FUSE } };

	f.op.operation = opcode < OPERATIONS ? opcode : OPERATION_OTHER;
	f.op.mount = mount_of(request, typed);
	f.node = FIELD(typed, request, in.h.nodeid);
	f.is_background = HAS_FLAG(FIELD(typed, request, flags), FR_BACKGROUND);
	if (f.is_background && is_anothers(request, typed)) {
		f.op.caller = CALLER_KERNEL;
	} else {
		f.op.pid = pid_tgid >> 32;
		f.op.tid = pid_tgid;
		f.op.caller = current_caller();
		f.uid = bpf_get_current_uid_gid();
		f.cgroup = bpf_get_current_cgroup_id();
		bpf_get_current_comm(f.comm, sizeof(f.comm));
	}
	f.op.flags = f.op.caller == CALLER_KERNEL ? EVENT_BY_KERNEL : 0;
	daemon = bpf_map_lookup_elem(&daemons, &f.op.mount);
	if (daemon)
		f.op.tree = *daemon;
	if (bpf_map_update_elem(&inflight, &key, &f, BPF_ANY)) {
		count(PROBE_FUSE, COUNT_LOST_INFLIGHT);
		return 0;
	}
	count(PROBE_FUSE, COUNT_STARTED);
	return 0;
}

static __always_inline struct inflight *inflight_of(__u64 request)
{
	struct inflight *f = bpf_map_lookup_elem(&inflight, &request);

	return f && f->op.start ? f : NULL;
}

/* The current process serves this mount. The kernel's own threads, which a virtiofs device wakes, do not. */
static __always_inline void serves(struct inflight *f)
{
	__u32 daemon = bpf_get_current_pid_tgid() >> 32;

	if (f->op.tree == daemon || current_caller() == CALLER_KERNEL)
		return;
	f->op.tree = daemon;
	bpf_map_update_elem(&daemons, &f->op.mount, &daemon, BPF_ANY);
}

static __always_inline int taken(__u64 request)
{
	struct inflight *f = inflight_of(request);

	if (!f || f->op.session)
		return 0;
	f->op.session = bpf_ktime_get_ns();
	serves(f);
	return 0;
}

/* Bytes that were read or written, by an answer without an error. */
static __always_inline __u64 bytes_moved(const struct fuse_req *request, __u32 operation, bool typed)
{
	__u32 bytes = 0;

	if (operation == FUSE_READ) {
		bytes = FIELD(typed, request, out.h.len);
		return bytes > FUSE_OUT_HEADER ? bytes - FUSE_OUT_HEADER : 0;
	}
	if (operation == FUSE_WRITE) /* struct fuse_write_out */
		bpf_probe_read_kernel(&bytes, sizeof(bytes), BPF_CORE_READ(request, args, out_args[0].value));
	return bytes;
}

/* Counts and reports a request that is over. */
static __always_inline void finish(struct inflight *f)
{
	struct outcome o = { .start = f->op.start, .end = bpf_ktime_get_ns(), .probe = PROBE_FUSE };
	__u64 answered = f->answered ?: o.end, taken = f->op.session;
	struct event *e;

	o.mount = f->op.mount;
	o.pid = f->op.pid;
	o.tid = f->op.tid;
	o.operation = f->op.operation;
	o.bytes = f->bytes;
	o.flags = f->op.flags;
	o.error = f->error;
	if (f->error)
		o.flags |= EVENT_FAILED;
	if (f->unanswered)
		o.flags |= EVENT_UNANSWERED;
	if (f->is_background)
		o.flags |= EVENT_ASYNCHRONOUS;
	if (taken > o.start && taken <= answered)
		o.queue = taken - o.start;
	else if (f->unanswered && sees_taken)
		o.queue = answered - o.start;
	o.wire = answered - o.start - o.queue;
	e = observe(&o);
	if (e) {
		e->message = f->unique;
		e->inode = f->node;
		e->tree = f->op.tree;
		e->caller = f->op.caller;
		e->uid = f->uid;
		e->cgroup = f->cgroup;
		__builtin_memcpy(e->comm, f->comm, sizeof(e->comm));
		if (o.end - o.start >= SHORT_NS && f->op.tid == (__u32)bpf_get_current_pid_tgid())
			read_requester(&e->progress, bpf_get_current_task_btf(), f->op.tid, 0);
		report(e);
	}
	count(PROBE_FUSE, COUNT_FINISHED);
	f->op.start = 0;
}

static __always_inline int ended(const struct fuse_req *request, bool typed)
{
	struct inflight *f = inflight_of((__u64)request);
	__u32 error;

	if (!f || f->answered)
		return 0;
	f->answered = bpf_ktime_get_ns();
	f->unique = FIELD(typed, request, in.h.unique);
	error = -FIELD(typed, request, out.h.error);
	/* The layer above is the kernel itself, and no application sees the request. */
	f->error = error <= MAX_ERRNO_SEEN ? error : 0;
	/* With an answer, the daemon's header takes the place of the request's own. */
	if (FIELD(typed, request, out.h.unique)) {
		serves(f);
		f->bytes = f->error ? 0 : bytes_moved(request, f->op.operation, typed);
	} else {
		f->unanswered = f->error != 0;
	}
	if (!sees_waited || f->is_background)
		finish(f);
	return 0;
}

/* A requester that is killed takes back a request that the daemon has not taken: such a request does not end. */
static __always_inline int waited(__u64 request)
{
	struct inflight *f = inflight_of(request);

	if (!f || f->is_background)
		return 0;
	if (!f->answered) {
		f->error = EINTR;
		f->unanswered = true;
	}
	finish(f);
	return 0;
}

static __always_inline bool goes_on(__u64 address)
{
	const struct fuse_req *request = (void *)address;
	struct inflight *f = inflight_of(address);
	unsigned long flags;

	if (!f)
		return false;
	flags = BPF_CORE_READ(request, flags);
	if (!BPF_CORE_READ(request, count.refs.counter) || BPF_CORE_READ(request, in.h.nodeid) != f->node)
		return false;
	if (HAS_FLAG(flags, FR_FINISHED))
		return f->answered && bpf_ktime_get_ns() - f->answered < DELIVERY_NS;
	/* If no program sees a daemon take requests, the request's flags say whether it was taken. */
	if (!f->op.session && HAS_FLAG(flags, FR_SENT))
		f->op.session = bpf_ktime_get_ns();
	return true;
}

SEC("iter/bpf_map_elem")
int forget_ended(struct bpf_iter__bpf_map_elem *ctx)
{
	return forget_ended_by(ctx, PROBE_FUSE, goes_on);
}

/* With tracepoints. Some verifiers want to see that a tracepoint's argument is one. */

SEC("tp_btf/fuse_request_send")
int tp_started(unsigned long long *ctx)
{
	const struct fuse_req *request = (void *)ctx[0];

	return request ? started(request, true) : 0;
}

SEC("tp_btf/fuse_request_sent")
int tp_taken(unsigned long long *ctx)
{
	return taken(ctx[0]);
}

SEC("tp_btf/fuse_request_end")
int tp_ended(unsigned long long *ctx)
{
	const struct fuse_req *request = (void *)ctx[0];

	return request ? ended(request, true) : 0;
}

/* Without */

SEC("fentry/queue_request_and_unlock")
int fentry_started(unsigned long long *ctx)
{
	return started((void *)ctx[1], true);
}

/* Threads that already wait in fuse_dev_do_read would not be seen to enter it. fuse_copy_args copies answers, too, but they
 * come later. */
SEC("fentry/fuse_copy_args")
int fentry_taken(unsigned long long *ctx)
{
	struct fuse_copy_state *copy = (void *)ctx[0];

	return taken((__u64)copy->req);
}

SEC("fentry/fuse_request_end")
int fentry_ended(unsigned long long *ctx)
{
	return ended((void *)ctx[0], true);
}

SEC("fexit/request_wait_answer")
int fexit_waited(unsigned long long *ctx)
{
	return waited(ctx[0]);
}

SEC("kprobe/queue_request_and_unlock")
int kprobe_started(struct pt_regs *ctx)
{
	return started((void *)PT_REGS_PARM2(ctx), false);
}

SEC("kprobe/fuse_copy_args")
int kprobe_taken(struct pt_regs *ctx)
{
	const struct fuse_copy_state *copy = (void *)PT_REGS_PARM1(ctx);

	return taken((__u64)BPF_CORE_READ(copy, req));
}

SEC("kprobe/fuse_request_end")
int kprobe_ended(struct pt_regs *ctx)
{
	return ended((void *)PT_REGS_PARM1(ctx), false);
}
