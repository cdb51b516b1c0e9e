// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The NFS client's RPC, by sunrpc's tracepoints: connections lost and set up again, calls timed out or sent again. */
#include "connections.h"
#include "rpc.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { MAX_LOST = 4096, TCP_STATE_ESTABLISHED = 1, TCP_STATE_CLOSE = 7, TCP_STATE_CLOSE_WAIT = 8 };

struct lost {
	__u64 since;
	__u64 connects; /* connection attempts until then; a later transport at the same address has fewer */
};

/* Transports that lost their connection, by the address of struct rpc_xprt. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_LOST);
	__type(key, __u64);
	__type(value, struct lost);
} lost_transports SEC(".maps");

/*
 * The socket's state has just changed; the transport's state has not yet. If the transport is still connected, this
 * client did not end the connection: its own close (when idle or unmounted) passes through FIN_WAIT1 first.
 */
SEC("tp_btf/rpc_socket_state_change")
int tp_state(unsigned long long *ctx)
{
	const struct rpc_xprt *transport = (void *)ctx[0];
	const struct socket *socket = (void *)ctx[1];
	struct outcome o = { .operation = CONNECTION_LOST };
	__u64 key = (__u64)transport;
	struct lost *lost, now;
	struct peer peer;
	__u16 port;
	__u8 state;

	if (!transport || !socket)
		return 0;
	state = BPF_CORE_READ(socket, sk, __sk_common.skc_state);
	if (state != TCP_STATE_ESTABLISHED && state != TCP_STATE_CLOSE && state != TCP_STATE_CLOSE_WAIT)
		return 0;
	read_transport(&peer, transport);
	if (!is_server(&peer))
		return 0;
	port = BPF_CORE_READ(socket, sk, __sk_common.skc_num);
	now.connects = BPF_CORE_READ(transport, stat.connect_count);
	if (state == TCP_STATE_ESTABLISHED) {
		lost = bpf_map_lookup_elem(&lost_transports, &key);
		if (!lost)
			return 0;
		o.operation = RECONNECT;
		o.start = lost->since;
		/* Otherwise the entry belongs to an older transport, which was freed without a new connection. */
		if (now.connects > lost->connects)
			happened(&o, &peer, port, NULL, 0);
		bpf_map_delete_elem(&lost_transports, &key);
		return 0;
	}
	if (!(BPF_CORE_READ(transport, state) & XPRT_CONNECTED))
		return 0;
	now.since = bpf_ktime_get_ns();
	bpf_map_update_elem(&lost_transports, &key, &now, BPF_ANY);
	o.status = state;
	happened(&o, &peer, port, NULL, 0);
	return 0;
}

/* No answer came within the time of the mount's timeo and retrans. */
SEC("tp_btf/rpc_timeout_status")
int tp_timeout(unsigned long long *ctx)
{
	const struct rpc_task *task = (void *)ctx[0];

	if (task && BPF_CORE_READ(task, tk_client, cl_prog) == NFS_PROGRAM)
		tell_of_call(RPC_TIMEOUT, task, BPF_CORE_READ(task, tk_rqstp, rq_xtime), 0);
	return 0;
}

SEC("tp_btf/xprt_retransmit")
int tp_retransmit(unsigned long long *ctx)
{
	const struct rpc_rqst *request = (void *)ctx[0];
	const struct rpc_task *task;

	if (!request)
		return 0;
	task = BPF_CORE_READ(request, rq_task);
	if (BPF_CORE_READ(task, tk_client, cl_prog) == NFS_PROGRAM)
		tell_of_call(RPC_RETRANSMIT, task, 0, BPF_CORE_READ(request, rq_ntrans));
	return 0;
}
