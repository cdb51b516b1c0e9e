// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times every request of the kernel's CephFS client to a metadata server, and what waits for capabilities. A request is a
 * ceph_mds_request, and passes
 *
 *   started    it is handed to the client             ceph_mdsc_submit_request
 *   submitted  it was sent, unless there is nobody    the return of that
 *   waited     its requester goes on                  the return of ceph_mdsc_wait_request
 *   created, unlinked   an answer comes that nobody waits for    ceph_async_create_cb, ceph_async_unlink_cb
 *
 * The request itself has the time at which its answer arrived (r_end_latency). A thread's wait for capabilities begins
 * when try_get_cap_refs has not got them, and ends when ceph_get_caps, or the function within it, returns.
 */
#include "daemon.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* As operations.rs has it. */
enum { OPERATION_CAPS_WAIT = 1 };

static __always_inline int started(const struct ceph_mds_client *client, const struct ceph_mds_request *request)
{
	struct inflight f = {};

	begin(&f, mount_of(BPF_CORE_READ(client, fsc)), operation_of(BPF_CORE_READ(request, r_op)));
	keep((__u64)request, &f);
	return 0;
}

static __always_inline __u64 connection_of(const struct ceph_mds_session *session)
{
	return session ? (__u64)session + bpf_core_field_offset(struct ceph_mds_session, s_con) : 0;
}

/* `failed`: the errno with which it ended, negative; 0: it was not given up. */
static __always_inline int request_ended(__u64 address, int failed)
{
	const struct ceph_mds_request *request = (void *)address;
	struct inflight *f = inflight_of(address);
	const struct ceph_mds_session *session;
	struct ending end = {};
	const struct inode *inode;
	unsigned long flags;
	int error = failed;

	if (!f)
		return 0;
	flags = BPF_CORE_READ(request, r_req_flags);
	end.unanswered = !(flags & REQUEST_GOT_RESULT);
	if (!end.unanswered)
		error = BPF_CORE_READ(request, r_reply_info.head, result);
	else if (!error)
		error = BPF_CORE_READ(request, r_err);
	/* A requester that is killed has the kernel's internal number for that (ERESTARTSYS). A positive number is no
	 * error. */
	if (error < 0)
		end.error = -error <= MAX_ERRNO_SEEN ? -error : EINTR;
	end.answered = end.unanswered ? 0 : BPF_CORE_READ(request, r_end_latency);
	session = BPF_CORE_READ(request, r_session);
	end.attempts = BPF_CORE_READ(request, r_attempts);
	/* If no thread waits for the answer, it may come before the submission has returned. */
	if (session && end.attempts && !f->sent)
		sent(f, mds(BPF_CORE_READ(session, s_mds)), connection_of(session), BPF_CORE_READ(request, r_tid));
	end.socket = socket_of(connection_of(session));
	end.forwarded = BPF_CORE_READ(request, r_num_fwd);
	end.asynchronous = !!(flags & REQUEST_ASYNC);
	inode = BPF_CORE_READ(request, r_inode) ?: BPF_CORE_READ(request, r_target_inode);
	if (inode)
		end.inode = BPF_CORE_READ(inode, i_ino);
	end.name = (__u64)BPF_CORE_READ(request, r_dentry, d_name.name);
	return finish(f, &end);
}

/* `result`: what the submission returned. If that is an errno, no thread waits for the request. */
static __always_inline int submitted(const struct ceph_mds_request *request, int result)
{
	const struct ceph_mds_session *session;
	struct inflight *f;

	if (result)
		return request_ended((__u64)request, result);
	f = inflight_of((__u64)request);
	session = f ? BPF_CORE_READ(request, r_session) : NULL;
	if (session && BPF_CORE_READ(request, r_attempts))
		sent(f, mds(BPF_CORE_READ(session, s_mds)), connection_of(session), BPF_CORE_READ(request, r_tid));
	return 0;
}

/* Waits for capabilities, keyed by thread: no kernel address is as low as a thread's number. */
static __always_inline __u64 waiting_thread(void)
{
	return bpf_get_current_pid_tgid();
}

static __always_inline const struct ceph_mds_session *grants(const struct inode *inode)
{
	const struct ceph_inode_info *info =
		(const void *)inode - bpf_core_field_offset(struct ceph_inode_info, netfs.inode);

	return BPF_CORE_READ(info, i_auth_cap, session);
}

/* `result`: 0 if the thread has not got its capabilities, and may wait for them. */
static __always_inline int tried(const struct inode *inode, int result)
{
	const struct ceph_mds_session *session;
	struct inflight f = {}, *known;
	__u64 key;

	if (result)
		return 0;
	key = waiting_thread();
	known = bpf_map_lookup_elem(&inflight, &key);
	if (known && known->op.start)
		return 0;
	begin(&f, BPF_CORE_READ(inode, i_sb, s_dev), OPERATION_CAPS_WAIT);
	f.inode = BPF_CORE_READ(inode, i_ino);
	session = grants(inode);
	if (session)
		sent(&f, mds(BPF_CORE_READ(session, s_mds)), connection_of(session), 0);
	keep(key, &f);
	return 0;
}

/* A thread that only tries to get capabilities does not wait. */
static __always_inline int only_tried(void)
{
	struct inflight *f = inflight_of(waiting_thread());

	if (!f)
		return 0;
	f->op.start = 0;
	count(PROBE_CEPH, COUNT_FINISHED);
	count(PROBE_CEPH, COUNT_NEVER_SENT);
	return 0;
}

static __always_inline int got(int result)
{
	struct inflight *f = inflight_of(waiting_thread());
	struct ending end = {};

	if (!f)
		return 0;
	if (result < 0) {
		end.error = -result <= MAX_ERRNO_SEEN ? -result : EINTR;
		end.unanswered = 1;
	}
	end.socket = f->socket;
	end.attempts = 1;
	return finish(f, &end);
}

/* Updates what is known of a request in flight and its daemon. */
static __always_inline bool goes_on(__u64 address)
{
	const struct ceph_mds_request *request = (void *)address;
	struct inflight *f = inflight_of(address);
	const struct ceph_mds_session *session;
	const struct ceph_mds_client *client;
	unsigned long flags;
	__u64 ended;
	int rank;

	if (!f)
		return false;
	if (!(address >> 63)) /* a thread */
		return true;
	flags = BPF_CORE_READ(request, r_req_flags);
	client = BPF_CORE_READ(request, r_mdsc);
	if (!BPF_CORE_READ(request, r_kref.refcount.refs.counter) || !client ||
	    (f->op.message && BPF_CORE_READ(request, r_tid) != f->op.message))
		return false;
	if (flags & (REQUEST_GOT_RESULT | REQUEST_ABORTED)) {
		ended = BPF_CORE_READ(request, r_end_latency);
		return !(flags & REQUEST_ASYNC) && ended && bpf_ktime_get_ns() - ended < DELIVERY_NS;
	}
	session = BPF_CORE_READ(request, r_session);
	if (!session)
		return true;
	rank = BPF_CORE_READ(session, s_mds);
	if (mds(rank) != f->op.tree)
		sent(f, mds(rank), connection_of(session), BPF_CORE_READ(request, r_tid));
	f->op.session = state_of(connection_of(session));
	if (BPF_CORE_READ(request, r_attempts))
		f->op.session |= STATE_SENT;
	if (BPF_CORE_READ(client, fsc, blocklisted))
		f->op.session |= STATE_BLOCKLISTED;
	if (rank < BPF_CORE_READ(client, mdsmap, possible_max_rank)) {
		const struct ceph_mds_info *info = (const void *)BPF_CORE_READ(client, mdsmap, m_info) +
						   rank * bpf_core_type_size(struct ceph_mds_info);
		__u8 state = BPF_CORE_READ(info, state);

		f->op.session |= (__u64)state << STATE_OF_MDS;
		if (BPF_CORE_READ(info, laggy))
			f->op.session |= STATE_LAGGY;
	}
	return true;
}

SEC("iter/bpf_map_elem")
int forget_ended(struct bpf_iter__bpf_map_elem *ctx)
{
	return forget_ended_by(ctx, PROBE_CEPH, goes_on);
}

/* Rung 1: fentry */

SEC("fentry/ceph_mdsc_submit_request")
int fentry_started(unsigned long long *ctx)
{
	return started((void *)ctx[0], (void *)ctx[2]);
}

SEC("fexit/ceph_mdsc_submit_request")
int fexit_submitted(unsigned long long *ctx)
{
	return submitted((void *)ctx[2], ctx[3]);
}

SEC("fexit/try_get_cap_refs")
int fexit_tried(unsigned long long *ctx)
{
	return tried((void *)ctx[0], ctx[6]);
}

SEC("fexit/ceph_try_get_caps")
int fexit_only_tried(unsigned long long *ctx)
{
	return only_tried();
}

SEC("fentry/ceph_async_create_cb")
int fentry_created(unsigned long long *ctx)
{
	return request_ended(ctx[1], 0);
}

SEC("fentry/ceph_async_unlink_cb")
int fentry_unlinked(unsigned long long *ctx)
{
	return request_ended(ctx[1], 0);
}

SEC("fexit/ceph_mdsc_wait_request")
int fexit_waited(unsigned long long *ctx)
{
	return request_ended(ctx[1], ctx[3]);
}

/* From Linux 6.6 on, which has a function for requesters without an open file. */
SEC("fexit/__ceph_get_caps")
int fexit_got(unsigned long long *ctx)
{
	return got(ctx[6]);
}

SEC("fexit/ceph_get_caps")
int fexit_got_by_file(unsigned long long *ctx)
{
	return got(ctx[5]);
}

/* Rung 2: kprobe. A kretprobe does not have the arguments. */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INFLIGHT);
	__type(key, __u64); /* thread */
	__type(value, __u64); /* the ceph_mds_request that it submits or waits for */
} works_on SEC(".maps");

static __always_inline __u64 begins(__u64 request)
{
	__u64 thread = bpf_get_current_pid_tgid();

	bpf_map_update_elem(&works_on, &thread, &request, BPF_ANY);
	return request;
}

static __always_inline __u64 returns(void)
{
	__u64 thread = bpf_get_current_pid_tgid(), *known = bpf_map_lookup_elem(&works_on, &thread), request;

	if (!known)
		return 0;
	request = *known;
	bpf_map_delete_elem(&works_on, &thread);
	return request;
}

SEC("kprobe/ceph_mdsc_submit_request")
int kprobe_started(struct pt_regs *ctx)
{
	return started((void *)PT_REGS_PARM1(ctx), (void *)begins(PT_REGS_PARM3(ctx)));
}

SEC("kretprobe/ceph_mdsc_submit_request")
int kretprobe_submitted(struct pt_regs *ctx)
{
	__u64 request = returns();

	return request ? submitted((void *)request, PT_REGS_RC(ctx)) : 0;
}

SEC("kprobe/ceph_async_create_cb")
int kprobe_created(struct pt_regs *ctx)
{
	return request_ended(PT_REGS_PARM2(ctx), 0);
}

SEC("kprobe/ceph_async_unlink_cb")
int kprobe_unlinked(struct pt_regs *ctx)
{
	return request_ended(PT_REGS_PARM2(ctx), 0);
}

SEC("kprobe/ceph_mdsc_wait_request")
int kprobe_waits(struct pt_regs *ctx)
{
	begins(PT_REGS_PARM2(ctx));
	return 0;
}

SEC("kretprobe/ceph_mdsc_wait_request")
int kretprobe_waited(struct pt_regs *ctx)
{
	__u64 request = returns();

	return request ? request_ended(request, PT_REGS_RC(ctx)) : 0;
}
