// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The Ceph client's connections with metadata servers and OSDs: lost, and set up again. */
#include "connections.h"
#include "../ceph/client.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { MAX_LOST = 2048, TCP_STATE_ESTABLISHED = 1, TCP_STATE_CLOSE = 7, TCP_STATE_CLOSE_WAIT = 8 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock___owned {
	void *sk_user_data; /* struct ceph_connection */
};

#pragma clang attribute pop

/* When connections were lost, by the address of struct ceph_connection. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_LOST);
	__type(key, __u64);
	__type(value, __u64);
} lost_connections SEC(".maps");

/* The mount whose client has the connection; 0: it is with a monitor, for which no request on a mount waits, or an RBD device's. */
static __always_inline __u64 mount_of(const struct ceph_connection *connection)
{
	const struct ceph_mds_session *session = BPF_CORE_READ(connection, private);
	const struct ceph_osd *osd = BPF_CORE_READ(connection, private);
	const struct ceph_fs_client *filesystem = NULL;
	const struct ceph_client *client;

	switch (BPF_CORE_READ(connection, peer_name.type)) {
	case ENTITY_MDS:
		filesystem = BPF_CORE_READ(session, s_mdsc, fsc);
		break;
	case ENTITY_OSD:
		client = BPF_CORE_READ(osd, o_osdc, client);
		if (BPF_CORE_READ(client, extra_mon_dispatch))
			filesystem = BPF_CORE_READ(client, private);
		break;
	}
	return filesystem ? BPF_CORE_READ(filesystem, sb, s_dev) : 0;
}

/*
 * The socket's state has just changed; the connection's has not yet. If that is still connected, this client did not end the connection.
 */
static __always_inline int state_changed(const struct sock *sk)
{
	const struct ceph_connection *connection = BPF_CORE_READ((const struct sock___owned *)sk, sk_user_data);
	__u8 state = BPF_CORE_READ(sk, __sk_common.skc_state);
	struct outcome o = { .operation = CONNECTION_LOST };
	__u64 key = (__u64)connection, *since, now;
	struct peer peer;
	__u16 port;

	if (!connection ||
	    (state != TCP_STATE_ESTABLISHED && state != TCP_STATE_CLOSE && state != TCP_STATE_CLOSE_WAIT))
		return 0;
	o.mount = mount_of(connection);
	if (!o.mount)
		return 0;
	read_peer(&peer, (const char *)connection + bpf_core_field_offset(struct ceph_connection, peer_addr.in_addr));
	port = BPF_CORE_READ(sk, __sk_common.skc_num);
	if (state == TCP_STATE_ESTABLISHED) {
		since = bpf_map_lookup_elem(&lost_connections, &key);
		if (!since)
			return 0;
		o.operation = RECONNECT;
		o.start = *since;
		happened(&o, &peer, port, NULL, 0);
		bpf_map_delete_elem(&lost_connections, &key);
		return 0;
	}
	if (BPF_CORE_READ(connection, sock_state.counter) != SOCKET_CONNECTED)
		return 0;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&lost_connections, &key, &now, BPF_ANY);
	o.status = state;
	happened(&o, &peer, port, NULL, 0);
	return 0;
}

SEC("fentry/ceph_sock_state_change")
int fentry_state(unsigned long long *ctx)
{
	return state_changed((void *)ctx[0]);
}

SEC("kprobe/ceph_sock_state_change")
int kprobe_state(struct pt_regs *ctx)
{
	return state_changed((void *)PT_REGS_PARM1(ctx));
}
