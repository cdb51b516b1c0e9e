// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times every request of the kernel's CephFS client to an OSD. A request is a ceph_osd_request of libceph, and passes
 *
 *   started   it is handed to libceph             ceph_osdc_start_request
 *   sent      to an OSD; again if that changes    send_request
 *   ended     it is answered, or given up         finish_request
 *
 * RBD devices use libceph too; their requests are not seen here.
 */
#include "daemon.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* CEPH_OSD_OP_* of include/linux/ceph/rados.h */
enum {
	OSD_READ = 0x1201,
	OSD_SPARSE_READ = 0x1205,
	OSD_ASSERT_VER = 0x1208,
	OSD_WRITE = 0x2201,
	OSD_WRITEFULL = 0x2202,
};

/* A request's main operation: its first one, or the next if the first is a condition. */
static __always_inline __u64 first_op(const struct ceph_osd_request *request)
{
	__u64 ops = (__u64)request + bpf_core_field_offset(struct ceph_osd_request, r_ops);
	const struct ceph_osd_req_op *op = (void *)ops;

	if (BPF_CORE_READ(request, r_num_ops) > 1 && BPF_CORE_READ(op, op) == OSD_ASSERT_VER)
		ops += bpf_core_type_size(struct ceph_osd_req_op);
	return ops;
}

static __always_inline int started(const struct ceph_osd_request *request)
{
	const struct ceph_client *client = BPF_CORE_READ(request, r_osdc, client);
	const struct ceph_osd_req_op *op = (void *)first_op(request);
	struct inflight f = {};

	if (!BPF_CORE_READ(client, extra_mon_dispatch))
		return 0;
	begin(&f, mount_of(BPF_CORE_READ(client, private)), operation_of(BPF_CORE_READ(op, op)));
	keep((__u64)request, &f);
	return 0;
}

static __always_inline __u64 connection_of(const struct ceph_osd_request *request)
{
	const struct ceph_osd *daemon = BPF_CORE_READ(request, r_osd);

	return daemon ? (__u64)daemon + bpf_core_field_offset(struct ceph_osd, o_con) : 0;
}

static __always_inline int sending(const struct ceph_osd_request *request)
{
	struct inflight *f = inflight_of((__u64)request);

	if (f)
		sent(f, osd(BPF_CORE_READ(request, r_t.osd)), connection_of(request), BPF_CORE_READ(request, r_tid));
	return 0;
}

static __always_inline int given_up(const struct ceph_osd_request *request)
{
	struct inflight *f = inflight_of((__u64)request);

	if (f)
		f->op.flags |= EVENT_UNANSWERED;
	return 0;
}

static __always_inline __u64 bytes_moved(const struct ceph_osd_request *request, int result)
{
	const struct ceph_osd_req_op *op = (void *)first_op(request);

	switch (BPF_CORE_READ(op, op)) {
	case OSD_READ:
	case OSD_SPARSE_READ:
		return result > 0 ? result : 0;
	case OSD_WRITE:
	case OSD_WRITEFULL:
		return result < 0 ? 0 : BPF_CORE_READ(op, extent.length);
	}
	return 0;
}

static __always_inline int ended(const struct ceph_osd_request *request)
{
	struct inflight *f = inflight_of((__u64)request);
	struct ending end = {};
	int result;

	if (!f)
		return 0;
	result = BPF_CORE_READ(request, r_result);
	end.attempts = BPF_CORE_READ(request, r_attempts);
	end.unanswered = f->op.flags & EVENT_UNANSWERED || !end.attempts;
	if (result < 0)
		end.error = -result <= MAX_ERRNO_SEEN ? -result : EINTR;
	else if (end.unanswered)
		end.error = EINTR;
	if (!end.unanswered)
		end.bytes = bytes_moved(request, result);
	end.socket = socket_of(connection_of(request));
	end.name = (__u64)BPF_CORE_READ(request, r_t.base_oid.name);
	return finish(f, &end);
}

/* Updates what is known of a request in flight and its daemon. */
static __always_inline bool goes_on(__u64 address)
{
	const struct ceph_osd_request *request = (void *)address;
	struct inflight *f = inflight_of(address);
	const struct ceph_fs_client *filesystem;
	const struct ceph_client *client;
	__u64 connection;

	if (!f || !BPF_CORE_READ(request, r_kref.refcount.refs.counter))
		return false;
	client = BPF_CORE_READ(request, r_osdc, client);
	if (!client || (f->op.message && BPF_CORE_READ(request, r_tid) != f->op.message))
		return false;
	connection = connection_of(request);
	if (!connection)
		return true;
	f->op.session = state_of(connection);
	if (BPF_CORE_READ(request, r_attempts))
		f->op.session |= STATE_SENT;
	filesystem = BPF_CORE_READ(client, private);
	if (BPF_CORE_READ(filesystem, blocklisted))
		f->op.session |= STATE_BLOCKLISTED;
	return true;
}

SEC("iter/bpf_map_elem")
int forget_ended(struct bpf_iter__bpf_map_elem *ctx)
{
	return forget_ended_by(ctx, PROBE_CEPH, goes_on);
}

/* Rung 1: fentry */

SEC("fentry/ceph_osdc_start_request")
int fentry_started(unsigned long long *ctx)
{
	return started((void *)ctx[1]);
}

SEC("fentry/send_request")
int fentry_sending(unsigned long long *ctx)
{
	return sending((void *)ctx[0]);
}

SEC("fentry/cancel_request")
int fentry_given_up(unsigned long long *ctx)
{
	return given_up((void *)ctx[0]);
}

SEC("fentry/finish_request")
int fentry_ended(unsigned long long *ctx)
{
	return ended((void *)ctx[0]);
}

/* Rung 2: kprobe */

SEC("kprobe/ceph_osdc_start_request")
int kprobe_started(struct pt_regs *ctx)
{
	return started((void *)PT_REGS_PARM2(ctx));
}

SEC("kprobe/send_request")
int kprobe_sending(struct pt_regs *ctx)
{
	return sending((void *)PT_REGS_PARM1(ctx));
}

SEC("kprobe/cancel_request")
int kprobe_given_up(struct pt_regs *ctx)
{
	return given_up((void *)PT_REGS_PARM1(ctx));
}

SEC("kprobe/finish_request")
int kprobe_ended(struct pt_regs *ctx)
{
	return ended((void *)PT_REGS_PARM1(ctx));
}
