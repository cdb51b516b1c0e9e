// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times every call of the kernel's NFS client, version 3 and 4. A call is an rpc_task, and passes
 *
 *   started    it is handed to RPC, by who asks     tp_btf/rpc_task_begin
 *   received   all of its answer is there           xprt_complete_rqst
 *   finished   its answer is decoded                tp_btf/rpc_stats_latency, once for each time it is counted in mountstats
 *   restarted  the client has it sent once more     rpc_restart_call, rpc_restart_call_prepare
 *
 * and, of an rpc_clnt, freed. RPC itself notes when a call began, was sent and how long the beginning of its answer took. What ends without having been
 * sent passes none of these: look() (bpf/slots.h) finds out. tp_btf (with fentry) and kprobe programs share the handlers; they differ in FIELD().
 */
#include "../bpf/caller.h"
#include "../bpf/network.h"
#include "../bpf/observe.h"
#include "../bpf/transit.h"
#include "../bpf/waits.h"
#include <bpf/bpf_endian.h>
#include "client.h"
#include "details.h"
#include "operation.h"
#include "sunrpc.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { MAX_SERVERS = 4096, STATUS_V3 = 3 << 16, STATUS_RPC = 1 << 16, MAX_ERRNO_SEEN = 511 };

/* How long a call takes to get into the socket's queue, once RPC has begun to send it. */
#define TRANSMIT_NS 5000000ULL

struct inflight {
	/* A finished one stays as it is until the slot is taken: its task may be restarted. */
	struct flight op;
	__u64 procedure; /* struct rpc_procinfo *, by which `operation` is known */
	__u64 received; /* 0: no answer yet */
	__u64 cgroup;
	__u64 requester_ns; /* own_cpu_wait_ns() of who began it, then */
	__u32 uid;
	__u32 receiver; /* thread; this and the next of calls whose answer took SHORT_NS or longer */
	__u32 receiver_us; /* its cpu_wait_us() then */
	__u8 version;
	__u8 unconnected; /* there was no connection when it began: it may have waited for one */
	__u8 again; /* restarted: it waits again, because of the server's first answer */
	__u8 reserved;
	__u64 comm[COMM_LENGTH / sizeof(__u64)];
};

#include "../bpf/slots.h"

/* When a server's lease or session was last set up, by the server's rpc_clnt. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_SERVERS);
	__type(key, __u64);
	__type(value, __u64);
} recoveries SEC(".maps");

static __always_inline __u32 operation_of_task(const struct rpc_task *task, __u32 version, bool typed)
{
	const struct rpc_procinfo *procedure = FIELD(typed, task, tk_msg.rpc_proc);

	return operation_of(procedure, FIELD(typed, procedure, p_statidx), version);
}

/* Who asks, where that is the current thread. Loads from a thread's own fields are cheaper than the helpers. */
static __always_inline void name_current(struct inflight *f)
{
	struct task_struct *task = bpf_get_current_task_btf();
	/* Two words: a copy of a char array would be one of bytes. */
	const __u64 *comm = (const void *)task->comm;

	f->op.pid = task->tgid;
	f->op.tid = task->pid;
	f->op.caller = caller_of(task);
	f->op.flags = f->op.caller == CALLER_KERNEL ? EVENT_BY_KERNEL : 0;
	f->uid = task->cred->uid.val;
	f->cgroup = bpf_get_current_cgroup_id();
	f->requester_ns = own_cpu_wait_ns(task);
	f->comm[0] = comm[0];
	f->comm[1] = comm[1];
}

static __always_inline void begin(struct inflight *f, const struct rpc_task *task, __u64 now, bool typed)
{
	f->procedure = (__u64)FIELD(typed, task, tk_msg.rpc_proc);
	f->op.operation = operation_of_task(task, f->version, typed);
	f->op.probe = PROBE_NFS;
	f->op.used = now;
	f->received = 0;
	begins(f, now);
	count(PROBE_NFS, COUNT_STARTED);
}

/* The memory of a call that was never sent may be used for a call of another program (file locks of version 3) before look() sees that. */
static __always_inline int is_no_call(__u64 task)
{
	struct inflight *f = inflight_of(task);

	if (f) {
		count_ended(f);
		ends(f);
	}
	return 0;
}

static __always_inline int started(const struct rpc_task *task, bool typed)
{
	struct rpc_clnt *client = FIELD(typed, task, tk_client);
	const struct known_client *known = known_client(client);
	const struct rpc_xprt *transport;
	struct inflight *f;

	if (!known && (!client || FIELD(typed, client, cl_prog) != NFS_PROGRAM))
		return is_no_call((__u64)task);
	f = take_slot((__u64)task, PROBE_NFS);
	if (!f)
		return 0;
	if (known) {
		f->op.mount = known->mount;
		f->version = known->version;
	} else {
		f->version = FIELD(typed, client, cl_vers);
		f->op.mount = mount_of(client, f->version);
	}
	name_current(f);
	transport = FIELD(typed, task, tk_xprt);
	f->unconnected = !(FIELD_BITS(64, struct rpc_xprt, transport, state) & XPRT_CONNECTED);
	f->again = 0;
	begin(f, task, FIELD(typed, task, tk_start), typed);
	return 0;
}

/* If an answer is very short, all of it arrives with its beginning, whose time RPC notes itself. */
static __always_inline int received(const struct rpc_task *task)
{
	struct inflight *f = inflight_of((__u64)task);
	__u64 now;

	if (!f || f->op.operation == OPERATION_WRITE || f->op.operation == OPERATION_COMMIT)
		return 0;
	now = bpf_ktime_get_ns();
	f->received = now;
	if (now - f->op.start >= SHORT_NS) {
		f->receiver = bpf_get_current_pid_tgid();
		f->receiver_us = cpu_wait_us(bpf_get_current_task_btf());
	}
	return 0;
}

static __always_inline int restarted(const struct rpc_task *task, bool typed)
{
	struct rpc_clnt *client = FIELD(typed, task, tk_client);
	__u64 key = (__u64)task, now = bpf_ktime_get_ns();
	struct inflight *f;
	__u32 index;

	/* rpc_restart_call_prepare may call rpc_restart_call. */
	if (!client || FIELD(typed, client, cl_prog) != NFS_PROGRAM || inflight_of(key))
		return 0;
	index = take_again(&key);
	f = slot_at(index);
	if (!f) {
		/* Another call has taken the slot, or the call began before the probe was attached. The thread is known if it is the current one. */
		f = take_slot(key, PROBE_NFS);
		if (!f)
			return 0;
		f->version = FIELD(typed, client, cl_vers);
		f->op.mount = mount_of(client, f->version);
		f->unconnected = 0;
		name_current(f);
		if (FIELD(typed, task, tk_flags) & RPC_TASK_ASYNC) {
			f->op.pid = FIELD(typed, task, tk_owner);
			f->op.tid = f->op.caller = f->op.flags = f->uid = 0;
			f->cgroup = f->comm[0] = f->comm[1] = 0;
		}
	}
	f->again = 1;
	begin(f, task, now, typed);
	return 0;
}

static __always_inline int freed(const struct rpc_clnt *client)
{
	forget_client((__u64)client);
	return 0;
}

/* The state of the connection, and whether it was set up anew since the operation began. `socket`: its struct sock; 0: not known, or another by now. */
static __always_inline bool read_connection(struct outcome *o, __u64 *socket, const struct rpc_xprt *transport,
					    bool typed)
{
	const void *tcp;

	*socket = 0;
	o->connection = FIELD(typed, transport, id) + 1; /* the first is 0 */
	if (FIELD(typed, transport, prot) != IPPROTO_TCP)
		return false;
	if (o->end - o->start >= SHORT_NS) {
		__u64 ticks = bpf_jiffies64() - FIELD(typed, transport, stat.connect_start);

		/* What the new socket has counted says nothing about the old one. */
		if (ticks * fixed.tick_ns < o->end - o->start + fixed.tick_ns)
			return true;
	}
	tcp = (void *)FIELD_BITS(64, struct sock_xprt, transport, inet);
	if (!tcp)
		return false;
	*socket = (__u64)tcp;
	o->rtt_us = newest_rtt_us(tcp);
	o->retransmits = retransmits(tcp);
	o->arrival_ms = arrival_ms(tcp);
	o->flags |= EVENT_NETWORK_KNOWN;
	return false;
}

/* The server's own client: of all mounts from it. */
static __always_inline __u64 server_of(const struct rpc_clnt *client, bool typed)
{
	return (__u64)FIELD(typed, client, cl_parent);
}

static __always_inline bool recovered_since(__u64 start, __u64 server)
{
	__u64 *recovered = bpf_map_lookup_elem(&recoveries, &server);

	return recovered && *recovered >= start;
}

/*
 * Queue is the time before the call was sent, and wire is the time until all of the answer had arrived. A call may wait
 * because the server put it off, lost the session or broke the connection. This wait is not a queue of this host, so it
 * counts as wire. Global, so that the verifier checks the function once, and not the following code for each path
 * through it.
 */
__noinline int split(struct outcome *o, __u64 answered, __u64 sent, bool held_up)
{
	if (!o)
		return 0;
	if (!answered || answered > o->end || answered < o->start)
		answered = o->end;
	if (held_up)
		o->queue = 0;
	else if (sent > o->start)
		o->queue = (sent < answered ? sent : answered) - o->start;
	o->wire = answered - o->start - o->queue;
	return 0;
}

static __always_inline void read_status(struct outcome *o, const struct inflight *f, const struct rpc_task *task,
					bool typed)
{
	int status = FIELD(typed, task, tk_status);
	__u32 error = -status;

	if (status >= 0)
		return;
	o->flags |= EVENT_FAILED;
	/* The layer above is the kernel or the protocol itself, and no application sees the call. */
	o->error = error <= MAX_ERRNO_SEEN ? error : 0;
	if (FIELD(typed, task, tk_rpc_status))
		o->status = STATUS_RPC;
	else
		o->status = protocol_status(error) | (f->version == 3 ? STATUS_V3 : 0);
}

static __always_inline __u64 bytes_moved(const struct rpc_task *task, bool typed)
{
	struct nfs_pgio_res *answer = FIELD(typed, task, tk_msg.rpc_resp);

	return FIELD_BITS(64, struct nfs_pgio_res, answer, count);
}

static __always_inline void read_progress(struct event *e, const struct inflight *f, __u64 socket)
{
	read_progress_at(&e->progress, socket);
	/* Where it waits for the answer. Else it is the kernel's worker that runs here. */
	if ((__u32)bpf_get_current_pid_tgid() == f->op.tid)
		read_requester(&e->progress, bpf_get_current_task_btf(), f->op.tid, f->requester_ns);
	/* Else they are those of what the slot was for before. */
	if (f->received >= f->op.start + SHORT_NS) {
		e->progress.receiver = f->receiver;
		e->progress.receiver_us = f->receiver_us;
	}
}

/* When RPC sent a call last (0: never), and when the beginning of its answer came. */
struct call_times {
	__u64 end;
	__u64 sent;
	__u64 rtt;
};

static __always_inline int finished(const struct rpc_task *task, const struct call_times *when, bool typed)
{
	/* Read first: the verifier takes long over each pointer of a tracepoint's argument, on each way that leads to where it is read. */
	struct rpc_rqst *request = FIELD(typed, task, tk_rqstp);
	struct rpc_xprt *transport = FIELD(typed, task, tk_xprt);
	struct rpc_clnt *client = FIELD(typed, task, tk_client);
	struct inflight *f = inflight_of((__u64)task);
	struct outcome o = { .end = when->end, .probe = PROBE_NFS };
	__u64 server = 0, sent = when->sent, answered, socket;
	struct settings *s = current_settings();
	bool reconnected, held_up;
	struct event *e;
	__u32 resent;

	if (!f || !request || !s)
		return 0;
	/* Known only now: an OPEN can become an OPEN_NOATTR, and a CLOSE an OPEN_DOWNGRADE, while it is prepared. */
	if (f->procedure != (__u64)FIELD(typed, task, tk_msg.rpc_proc))
		f->op.operation = operation_of_task(task, f->version, typed);
	o.start = f->op.start;
	o.mount = f->op.mount;
	o.pid = f->op.pid;
	o.tid = f->op.tid;
	o.flags = f->op.flags;
	o.operation = f->op.operation;
	read_status(&o, f, task, typed);
	answered = f->received;
	if (!FIELD(typed, request, rq_reply_bytes_recvd))
		o.flags |= EVENT_UNANSWERED;
	else if (!answered)
		answered = sent + when->rtt;
	if (!(o.flags & (EVENT_UNANSWERED | EVENT_FAILED)) && f->op.operation >= OPERATION_READ &&
	    f->op.operation <= OPERATION_WRITE)
		o.bytes = bytes_moved(task, typed);
	reconnected = read_connection(&o, &socket, transport, typed);
	if (f->unconnected && o.end - o.start >= SHORT_NS) {
		reconnected = true;
		o.flags &= ~EVENT_NETWORK_KNOWN;
	}
	resent = FIELD(typed, request, rq_ntrans);
	resent -= resent > 0;
	held_up = reconnected || f->again || resent;
	if (!held_up && sent > o.start && sent - o.start >= SHORT_NS)
		held_up = recovered_since(o.start, server_of(client, typed));
	/* If the connection was lost, it is not known which answers were lost with it. */
	split(&o, reconnected ? 0 : answered, sent ?: o.end, held_up);
	e = observe_by(s, &o);
	if (e) {
		e->message = bpf_ntohl(FIELD(typed, request, rq_xid));
		e->network.arrival_ms = o.arrival_ms;
		if (socket)
			e->network.srtt_us = srtt_us((void *)socket);
		if (o.end - o.start >= SHORT_NS) {
			read_network_at(&e->network, socket, microseconds(o.end - (o.start + o.queue + o.wire)));
			read_progress(e, f, socket);
		}
		/* RPC notes the time before it sends. Without typed fields this is left out: the verifier has enough to check without it. */
		if (typed && !held_up && sent)
			read_transit(&e->transit, socket, sent, sent + TRANSMIT_NS);
		e->resent = resent;
		e->caller = f->op.caller;
		e->uid = f->uid;
		e->cgroup = f->cgroup;
		__builtin_memcpy(e->comm, f->comm, sizeof(e->comm));
		if (f->version == 4)
			read_session(e, task);
		read_file(e, task);
		report(e);
	}
	if (f->op.operation >= OPERATION_SETCLIENTID && f->op.operation <= OPERATION_RECLAIM_COMPLETE) {
		server = server_of(client, typed);
		bpf_map_update_elem(&recoveries, &server, &o.end, BPF_ANY);
	}
	count(PROBE_NFS, COUNT_FINISHED);
	ends(f);
	return 0;
}

static __always_inline bool goes_on(const struct inflight *f)
{
	const struct rpc_task *task = (void *)f->op.object;

	/* A task gives up its client when it is released (rpc_task_release_client), and its memory may be a later call's. */
	return BPF_CORE_READ(task, tk_client, cl_prog) == NFS_PROGRAM &&
	       (f->again || BPF_CORE_READ(task, tk_start) == f->op.start);
}

static __always_inline void count_ended(const struct inflight *f)
{
	const struct rpc_task *task = (void *)f->op.object;

	/* The call was sent, so its end was missed: the kernel did not run our program. */
	if (!BPF_CORE_READ(task, tk_client) && BPF_CORE_READ(task, tk_flags) & RPC_TASK_SENT) {
		count(PROBE_NFS, COUNT_SWEPT);
		return;
	}
	count(PROBE_NFS, COUNT_FINISHED);
	count(PROBE_NFS, COUNT_NEVER_SENT);
}

/* Rung 1: tp_btf, and fentry for what has no tracepoint. Some verifiers want to see that a tracepoint's argument is one. */

SEC("tp_btf/rpc_task_begin")
int tp_started(unsigned long long *ctx)
{
	const struct rpc_task *task = (void *)ctx[0];

	return task ? started(task, true) : 0;
}

SEC("tp_btf/rpc_stats_latency")
int tp_finished(unsigned long long *ctx)
{
	const struct rpc_task *task = (void *)ctx[0];
	/* The time until it was sent (0: it was not), from then until the beginning of the answer, and in all. */
	__u64 backlog = ctx[1], rtt = ctx[2], execute = ctx[3];
	struct call_times when = { .rtt = rtt };

	if (!task)
		return 0;
	when.end = task->tk_start + execute;
	when.sent = backlog ? task->tk_start + backlog : 0;
	return finished(task, &when, true);
}

SEC("tp_btf/rpc_clnt_free")
int tp_freed(unsigned long long *ctx)
{
	return freed((void *)ctx[0]);
}

SEC("fentry/xprt_complete_rqst")
int fentry_received(unsigned long long *ctx)
{
	return received((void *)ctx[0]);
}

SEC("fentry/rpc_restart_call")
int fentry_restarted(unsigned long long *ctx)
{
	return restarted((void *)ctx[0], true);
}

SEC("fentry/rpc_restart_call_prepare")
int fentry_restarted_prepare(unsigned long long *ctx)
{
	return restarted((void *)ctx[0], true);
}

/* Rung 2: kprobe */

SEC("kprobe/rpc_execute")
int kprobe_started(struct pt_regs *ctx)
{
	return started((void *)PT_REGS_PARM1(ctx), false);
}

SEC("kprobe/rpc_count_iostats_metrics")
int kprobe_finished(struct pt_regs *ctx)
{
	const struct rpc_task *task = (void *)PT_REGS_PARM1(ctx);
	struct call_times when = { .end = bpf_ktime_get_ns() };

	if (!PT_REGS_PARM2(ctx))
		return 0;
	when.sent = BPF_CORE_READ(task, tk_rqstp, rq_xtime);
	when.rtt = BPF_CORE_READ(task, tk_rqstp, rq_rtt);
	return finished(task, &when, false);
}

/* The optimiser has removed the tracepoint's function. A client that is shut down no longer serves a mount. */
SEC("kprobe/rpc_shutdown_client")
int kprobe_freed(struct pt_regs *ctx)
{
	return freed((void *)PT_REGS_PARM1(ctx));
}

SEC("kprobe/xprt_complete_rqst")
int kprobe_received(struct pt_regs *ctx)
{
	return received((void *)PT_REGS_PARM1(ctx));
}

SEC("kprobe/rpc_restart_call")
int kprobe_restarted(struct pt_regs *ctx)
{
	return restarted((void *)PT_REGS_PARM1(ctx), false);
}

SEC("kprobe/rpc_restart_call_prepare")
int kprobe_restarted_prepare(struct pt_regs *ctx)
{
	return restarted((void *)PT_REGS_PARM1(ctx), false);
}
