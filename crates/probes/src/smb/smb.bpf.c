// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times every SMB2/3 command of the kernel's client. A command is a mid_q_entry, and passes five hooks:
 *
 *   waiting    the requester asks for credits      wait_for_free_credits, smb2_wait_mtu_credits
 *   waited     it has them                         smb2_wait_mtu_credits, at its return; attached while credits are few (credits.rs)
 *   started    the mid is allocated                smb2_mid_entry_alloc, at its return
 *   received   the answer is matched to it         dequeue_mid, in the connection's demultiplexing thread
 *   finished   its last reference goes             __release_mid, in the requester or a worker
 *
 * fentry and kprobe programs share the handlers. What differs is how a field of an argument is read: FIELD().
 */
#include "../bpf/caller.h"
#include "../bpf/network.h"
#include "../bpf/observe.h"
#include "../bpf/transit.h"
#include "../bpf/waits.h"
#include "cifs.h"
#include "tree.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	NOT_SENT = ~0U,
	/* With more than these left, no request has to wait: several of the largest requests can take theirs (64 for 4 MiB) between two
	 * looks. */
	FEW_CREDITS = 512,
};

/* What a thread is about to send; only of threads that had to wait for credits, or send compounds. */
struct intent {
	__u64 waiting_since; /* 0: not waiting */
	__u64 waited; /* for the credits of an asynchronous READ or WRITE, which may be sent only later */
	/* In the intent of the last request of a compound: the next requests are for the same mount, but do not name it. */
	__u64 mount;
	__u64 session;
	__u32 tree;
	__u64 arguments[2]; /* of smb2_mid_entry_alloc, for its kretprobe */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct intent);
} intents SEC(".maps");

/* User space reads these two, in this order. How often a request found few credits left: */
__u64 times_few SEC(".data.credits");
/* Threads with a wait that no command has taken over yet: while there are none, no lookup is needed. A thread that dies in its wait stays
 * counted, which only costs time. */
__u64 waits SEC(".data.credits");

struct inflight {
	/* Mount, tree, session and connection stay for the slot's next command, because most often they are the same. */
	struct flight op;
	__u64 received; /* 0: no answer yet */
	__u64 socket; /* that the answer came by: a struct sock */
	__u32 queued_ticks; /* jiffies from allocation until sent */
	__u32 generation; /* of tree_generation, when the mount was found */
	__u32 status;
	__u32 bytes;
	struct network network; /* when it was received, if EVENT_NETWORK_KNOWN */
	__u32 receiver; /* thread; this and the next of operations that took SHORT_NS or longer */
	__u32 receiver_us; /* its cpu_wait_us() then */
	__u64 requester_ns; /* own_cpu_wait_ns() of who began it, then */
	__u8 answer_seen; /* status and bytes are the answer's */
};

#include "../bpf/slots.h"

/* Whether the hooks have the server as their first argument. */
static __always_inline bool server_first(void)
{
	return !bpf_core_field_exists(struct mid_q_entry___with_server, server);
}

static __always_inline struct intent *intent_of_current(__u64 flags)
{
	return bpf_task_storage_get(&intents, bpf_get_current_task_btf(), 0, flags);
}

static __always_inline bool holds_wait(const struct intent *intent)
{
	return intent->waiting_since || intent->waited;
}

static __always_inline void forget_wait(struct intent *intent)
{
	if (holds_wait(intent))
		__sync_fetch_and_add(&waits, -1);
	intent->waiting_since = intent->waited = 0;
}

/* `again`: the thread has asked for the same READ or WRITE before. */
static __always_inline int waiting(struct TCP_Server_Info *server, bool again, bool typed)
{
	bool may_wait = FIELD(typed, server, credits) <= FEW_CREDITS;
	__u64 now, since;
	struct intent *intent;

	if (!may_wait && !waits)
		return 0;
	intent = intent_of_current(may_wait ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!intent || (again && (intent->waiting_since || !may_wait)))
		return 0;
	now = bpf_ktime_get_ns();
	since = again ? now - intent->waited : now;
	/* The last wait led to no command: it timed out, or was interrupted. */
	if (intent->waiting_since)
		count(PROBE_SMB, COUNT_NEVER_SENT);
	forget_wait(intent);
	if (may_wait) {
		intent->waiting_since = since;
		__sync_fetch_and_add(&waits, 1);
		__sync_fetch_and_add(&times_few, 1);
	}
	return 0;
}

/*
 * smb2_wait_mtu_credits gives no credits when only the last ones are left: these are given away one by one. Then the READ or WRITE waits for
 * one credit here, without a time limit, unlike a request that has not asked before.
 */
static __always_inline int waiting_for_some(struct TCP_Server_Info *server, int limit_ms, bool typed)
{
	return waiting(server, limit_ms < 0, typed);
}

/* The time between getting these credits and sending does not belong to this command. */
static __always_inline int waited_mtu(void)
{
	struct intent *intent = waits ? intent_of_current(0) : NULL;

	if (!intent || !intent->waiting_since)
		return 0;
	intent->waited = bpf_ktime_get_ns() - intent->waiting_since;
	intent->waiting_since = 0;
	return 0;
}

static __always_inline __u64 find_mount(struct TCP_Server_Info *server, __u64 session, __u32 tree, __u64 connection)
{
	struct tree_key key = { .connection = connection, .tree = tree, .generation = tree_generation };
	__u64 mount;

	/* Without a tree, only the server can be named, whatever the session. */
	key.session = tree == TREELESS ? 0 : session;
	mount = mount_of(server, &key);
	if (mount)
		return mount;
	/* a tree that is only being connected: its server at least */
	key.tree = TREELESS;
	key.session = 0;
	return mount_of(server, &key);
}

static __always_inline int started(const void *header, struct TCP_Server_Info *server, __u64 mid, bool typed)
{
	__u64 now = bpf_ktime_get_ns(), start = now, connection, session;
	struct task_struct *task = bpf_get_current_task_btf();
	const struct smb2_head *head = header;
	struct intent *intent = NULL;
	struct smb2_head copy;
	struct inflight *f;
	bool compound;
	__u32 tree;

	if (!mid)
		return 0;
	if (!typed) {
		bpf_probe_read_kernel(&copy, sizeof(copy), header);
		head = &copy;
	}
	f = take_slot(mid, PROBE_SMB);
	if (!f)
		return 0;
	compound = head->next_command || head->flags & SMB2_FLAGS_RELATED_OPERATIONS;
	if (compound)
		intent = intent_of_current(BPF_LOCAL_STORAGE_GET_F_CREATE);
	else if (waits)
		intent = intent_of_current(0);
	connection = FIELD(typed, server, conn_id);
	session = head->session;
	tree = head->tree;
	if (tree == ~0U && intent) { /* MS-SMB2 3.2.4.1.4: a related request takes over its predecessor's tree */
		session = intent->session;
		tree = intent->tree;
		f->op.mount = intent->mount;
	} else if (!f->op.mount || f->op.tree != tree || f->op.session != session || f->op.connection != connection ||
		   f->generation != tree_generation) { /* not for the tree of the slot's last command */
		f->op.mount = find_mount(server, session, tree, connection);
	}
	if (intent) {
		start = intent->waiting_since ?: now - intent->waited;
		/* All of a compound waited together. */
		if (!head->next_command)
			forget_wait(intent);
		intent->session = session;
		intent->tree = tree;
		intent->mount = f->op.mount;
	}
	f->received = f->socket = 0;
	f->op.used = now;
	f->op.session = session;
	f->op.message = head->message;
	f->op.connection = connection;
	f->queued_ticks = 0;
	f->op.tree = tree;
	f->generation = tree_generation;
	f->op.probe = PROBE_SMB;
	f->op.pid = task->tgid;
	f->op.tid = task->pid;
	f->requester_ns = own_cpu_wait_ns(task);
	f->status = 0;
	f->bytes = 0;
	f->op.operation = head->command;
	f->op.caller = caller_of(task);
	f->op.flags = (compound ? EVENT_COMPOUND : 0) | (f->op.caller == CALLER_KERNEL ? EVENT_BY_KERNEL : 0);
	f->answer_seen = 0;
	if (f->op.operation == SMB2_READ || f->op.operation == SMB2_WRITE)
		f->bytes = KERNEL_BITS(32, header + offsetof(struct smb2_head, length));
	begins(f, start);
	count(PROBE_SMB, COUNT_STARTED);
	return 0;
}

/* Status, flags and length of an answer. */
static __always_inline void read_answer(struct inflight *f, const void *buffer)
{
	if (!buffer)
		return;
	f->answer_seen = 1;
	f->status = KERNEL_BITS(32, buffer + offsetof(struct smb2_head, status));
	if (KERNEL_BITS(32, buffer + offsetof(struct smb2_head, flags)) & SMB2_FLAGS_ASYNC_COMMAND)
		f->op.flags |= EVENT_ASYNCHRONOUS;
	/* Servers use ids of trees again, some at once: all names are looked up anew. */
	if (f->op.operation == SMB2_TREE_CONNECT && !f->status)
		__sync_fetch_and_add(&tree_generation, 1);
	if (f->op.operation != SMB2_READ && f->op.operation != SMB2_WRITE)
		return;
	f->bytes = 0;
	if (f->status)
		return;
	f->bytes = KERNEL_BITS(32, buffer + offsetof(struct smb2_head, length));
	if (!f->bytes && f->op.operation == SMB2_READ)
		f->bytes = KERNEL_BITS(32, buffer + offsetof(struct smb2_head, remaining));
}

/* The answer to an encrypted READ never hangs on the mid (handle_read_data, smb2ops.c). The answer's header hangs on the request, which exists
 * until dequeue_mid's caller calls its callback. */
static __always_inline const void *header_of_read(const struct mid_q_entry *mid, bool typed)
{
	const void *request = FIELD(typed, mid, callback_data);
	__u32 iov = bpf_core_type_exists(struct cifs_io_subrequest) ?
			    bpf_core_field_offset(struct cifs_io_subrequest, iov[0].iov_base) :
			    bpf_core_field_offset(struct cifs_readdata, iov[0].iov_base);

	return request ? (const void *)KERNEL_BITS(64, request + iov) : NULL;
}

/* Kernels without CONFIG_CIFS_STATS2 do not keep when_sent: there, queueing is only the wait for credits. */
static __always_inline void read_queued_ticks(struct inflight *f, const struct mid_q_entry *mid, bool typed)
{
	unsigned long sent;

	if (!bpf_core_field_exists(mid->when_sent))
		return;
	sent = FIELD(typed, mid, when_sent);
	/* The command was not sent: all of its time was queueing; split() clamps. */
	f->queued_ticks = sent ? sent - FIELD(typed, mid, when_alloc) : NOT_SENT;
}

static __always_inline int received(const unsigned long long *arguments, bool typed)
{
	const struct mid_q_entry *mid = (void *)(server_first() ? arguments[1] : arguments[0]);
	struct inflight *f = inflight_of((__u64)mid);
	struct TCP_Server_Info *server;
	struct socket *socket;
	const void *tcp;

	if (!f)
		return 0;
	f->received = bpf_ktime_get_ns();
	read_queued_ticks(f, mid, typed);
	read_answer(f, FIELD(typed, mid, resp_buf));
	if (!f->answer_seen && f->op.operation == SMB2_READ)
		read_answer(f, header_of_read(mid, typed));
	server = server_first() ? (void *)arguments[0] : FIELD(typed, (struct mid_q_entry___with_server *)mid, server);
	socket = FIELD(typed, server, ssocket);
	tcp = FIELD(typed, socket, sk);
	if (tcp) {
		f->socket = (__u64)tcp;
		read_network_briefly(&f->network, tcp);
		if (f->received - f->op.start >= SHORT_NS) {
			f->network.srtt_us = srtt_us(tcp);
			read_network_at(&f->network, f->socket, 0);
			f->receiver = bpf_get_current_pid_tgid();
			f->receiver_us = cpu_wait_us(bpf_get_current_task_btf());
		}
		f->op.flags |= EVENT_NETWORK_KNOWN;
	}
	return 0;
}

/* NTSTATUS has its severity in the top two bits (MS-ERREF 2.3); a session is set up in several rounds. */
static __always_inline bool is_failure(const struct inflight *f)
{
	return !f->received || (f->status >> 30 == 3 && f->status != STATUS_MORE_PROCESSING_REQUIRED);
}

static __always_inline bool took_long(const struct inflight *f)
{
	return f->received && f->received - f->op.start >= SHORT_NS;
}

static __always_inline void split(struct outcome *o, const struct inflight *f)
{
	__u64 answered = f->received ?: o->end;

	o->queue = f->op.used - o->start + f->queued_ticks * fixed.tick_ns;
	/* The time in jiffies can exceed the actual time. */
	if (o->queue > answered - o->start)
		o->queue = answered - o->start;
	o->wire = answered - o->start - o->queue;
}

static __always_inline void read_progress(struct event *e, const struct inflight *f, const struct task_struct *creator)
{
	read_progress_at(&e->progress, f->socket);
	read_requester(&e->progress, creator, f->op.tid, f->requester_ns);
	/* Otherwise they are the values of the slot's last command. */
	if (took_long(f) && f->op.flags & EVENT_NETWORK_KNOWN) {
		e->progress.receiver = f->receiver;
		e->progress.receiver_us = f->receiver_us;
	}
}

static __always_inline int finished(const unsigned long long *arguments)
{
	__u64 key = server_first() ? arguments[1] :
				     arguments[0] - bpf_core_field_offset(struct mid_q_entry___with_server, refcount);
	struct inflight *f = inflight_of(key);
	const struct mid_q_entry *mid = (void *)key;
	struct outcome o = { .probe = PROBE_SMB };
	struct settings *s = current_settings();
	struct event *e;

	if (!f || !s)
		return 0;
	o.end = bpf_ktime_get_ns();
	/* The answer can arrive before the sender has noted that it sent the request. */
	if (!f->received || f->queued_ticks == NOT_SENT)
		read_queued_ticks(f, mid, false);
	if (!f->received) {
		/* Answered although received() did not run: the kernel refuses a program that it has preempted on this CPU. */
		if (BPF_CORE_READ(mid, mid_state) & MID_ANSWERED)
			f->received = o.end;
		else
			f->op.flags |= EVENT_UNANSWERED;
	}
	if (f->received && !f->answer_seen)
		read_answer(f, BPF_CORE_READ(mid, resp_buf));
	if (is_failure(f))
		f->op.flags |= EVENT_FAILED;
	o.start = f->op.start;
	o.mount = f->op.mount;
	/* A command that was never answered moved nothing: it is sent again, as another command. */
	o.bytes = f->answer_seen ? f->bytes : 0;
	o.connection = f->op.connection;
	o.pid = f->op.pid;
	o.tid = f->op.tid;
	o.status = f->status;
	o.operation = f->op.operation;
	o.flags = f->op.flags;
	if (o.flags & EVENT_NETWORK_KNOWN) {
		o.rtt_us = f->network.rtt_us;
		o.retransmits = f->network.retransmits;
		o.arrival_ms = f->network.arrival_ms;
	}
	split(&o, f);
	e = observe_by(s, &o);
	if (e) {
		e->session = f->op.session;
		e->message = f->op.message;
		e->tree = f->op.tree;
		e->caller = f->op.caller;
		e->network.arrival_ms = o.arrival_ms;
		if (o.flags & EVENT_NETWORK_KNOWN) {
			if (took_long(f))
				e->network = f->network;
			else
				e->network.srtt_us = srtt_us((void *)f->socket);
		}
		/* Two ticks: one for the time of allocation, and one for the time of sending. */
		read_transit(&e->transit, f->socket, o.start, o.start + o.queue + 2 * fixed.tick_ns);
		name_requester(e, BPF_CORE_READ(mid, creator));
		if (o.end - o.start >= SHORT_NS)
			read_progress(e, f, BPF_CORE_READ(mid, creator));
		report(e);
	}
	count(PROBE_SMB, COUNT_FINISHED);
	ends(f);
	return 0;
}

static __always_inline bool goes_on(const struct inflight *f)
{
	const struct mid_q_entry *mid = (void *)f->op.object;

	/* The memory of a freed mid may belong to a later command. */
	return BPF_CORE_READ(mid, mid_state) != MID_FREE && BPF_CORE_READ(mid, mid) == f->op.message;
}

static __always_inline void count_ended(const struct inflight *f)
{
	count(PROBE_SMB, COUNT_SWEPT);
}

/* Rung 1: fentry */

SEC("fentry/wait_for_free_credits")
int fentry_waiting(unsigned long long *ctx)
{
	return waiting_for_some((void *)ctx[0], ctx[2], true);
}

SEC("fentry/smb2_wait_mtu_credits")
int fentry_waiting_mtu(unsigned long long *ctx)
{
	return waiting((void *)ctx[0], false, true);
}

SEC("fexit/smb2_wait_mtu_credits")
int fexit_waited_mtu(void *ctx)
{
	return waited_mtu();
}

SEC("fexit/smb2_mid_entry_alloc")
int fexit_started(unsigned long long *ctx)
{
	return started((void *)ctx[0], (void *)ctx[1], ctx[2], true);
}

SEC("fentry/dequeue_mid")
int fentry_received(unsigned long long *ctx)
{
	return received(ctx, true);
}

SEC("fentry/__release_mid")
int fentry_finished(unsigned long long *ctx)
{
	return finished(ctx);
}

/* Rung 2: kprobe */

SEC("kprobe/wait_for_free_credits")
int kprobe_waiting(struct pt_regs *ctx)
{
	return waiting_for_some((void *)PT_REGS_PARM1(ctx), PT_REGS_PARM3(ctx), false);
}

SEC("kprobe/smb2_wait_mtu_credits")
int kprobe_waiting_mtu(struct pt_regs *ctx)
{
	return waiting((void *)PT_REGS_PARM1(ctx), false, false);
}

SEC("kretprobe/smb2_wait_mtu_credits")
int kretprobe_waited_mtu(void *ctx)
{
	return waited_mtu();
}

SEC("kprobe/smb2_mid_entry_alloc")
int kprobe_starting(struct pt_regs *ctx)
{
	struct intent *intent = intent_of_current(BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (intent) {
		intent->arguments[0] = PT_REGS_PARM1(ctx);
		intent->arguments[1] = PT_REGS_PARM2(ctx);
	}
	return 0;
}

SEC("kretprobe/smb2_mid_entry_alloc")
int kretprobe_started(struct pt_regs *ctx)
{
	struct intent *intent = intent_of_current(0);

	if (!intent)
		return 0;
	return started((void *)intent->arguments[0], (void *)intent->arguments[1], PT_REGS_RC(ctx), false);
}

SEC("kprobe/dequeue_mid")
int kprobe_received(struct pt_regs *ctx)
{
	unsigned long long arguments[] = { PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx) };

	return received(arguments, false);
}

SEC("kprobe/__release_mid")
int kprobe_finished(struct pt_regs *ctx)
{
	unsigned long long arguments[] = { PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx) };

	return finished(arguments);
}
