// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Messages of a metadata server about the client's session: it has lapsed (the capabilities are no longer the client's), it is closed
 * although the client has not asked for that (an eviction), or it is refused.
 */
#include "connections.h"
#include "../ceph/client.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline int tell(enum happening what, const struct ceph_mds_session *session)
{
	struct outcome o = { .operation = what };
	struct peer peer;

	o.mount = BPF_CORE_READ(session, s_mdsc, fsc, sb, s_dev);
	read_peer(&peer,
		  (const char *)session + bpf_core_field_offset(struct ceph_mds_session, s_con.peer_addr.in_addr));
	happened(&o, &peer, 0, NULL, 0);
	return 0;
}

static __always_inline int dispatch(const struct ceph_connection *connection, const struct ceph_msg *message)
{
	const struct ceph_mds_session_head *head;
	const struct ceph_mds_session *session;
	enum happening what;
	int state;

	if (BPF_CORE_READ(message, hdr.type) != MESSAGE_OF_SESSION)
		return 0;
	session = BPF_CORE_READ(connection, private);
	state = BPF_CORE_READ(session, s_state);
	head = BPF_CORE_READ(message, front.iov_base);
	switch (BPF_CORE_READ(head, op)) {
	case SESSION_STALE:
		what = LEASE_LOST;
		break;
	case SESSION_CLOSED:
		/* The message may answer the client's own request to close the session. */
		if (state != SESSION_OPEN && state != SESSION_HUNG)
			return 0;
		what = SESSION_LOST;
		break;
	case SESSION_REJECTED:
		what = SESSION_LOST;
		break;
	default:
		return 0;
	}
	return tell(what, session);
}

/* The metadata server does not know the connection's session any more. */
static __always_inline int reset(const struct ceph_connection *connection)
{
	return tell(SESSION_LOST, BPF_CORE_READ(connection, private));
}

SEC("fentry/mds_dispatch")
int fentry_dispatch(unsigned long long *ctx)
{
	return dispatch((void *)ctx[0], (void *)ctx[1]);
}

SEC("fentry/mds_peer_reset")
int fentry_reset(unsigned long long *ctx)
{
	return reset((void *)ctx[0]);
}

SEC("kprobe/mds_dispatch")
int kprobe_dispatch(struct pt_regs *ctx)
{
	return dispatch((void *)PT_REGS_PARM1(ctx), (void *)PT_REGS_PARM2(ctx));
}

SEC("kprobe/mds_peer_reset")
int kprobe_reset(struct pt_regs *ctx)
{
	return reset((void *)PT_REGS_PARM1(ctx));
}
