// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Segments from servers of mounts that this host holds before TCP sees them: traffic control redirects received packets
 * to an `ifb` interface, and its queueing discipline holds them. Attached only while the module `ifb` is loaded,
 * because the programs also run for every packet that this host sends.
 */
#include "packet.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	/* An event's status: above TCP's states. The reasons of conn_drops.bpf.c begin at DROP_STATUS + 1, which is 33. */
	HELD_RECEIVED = 32,
	MAX_QUEUED = 4096,
	MAX_CONNECTIONS = 1024,
	KIND_IFB = 'i' | 'f' << 8 | 'b' << 16, /* "ifb", as the bytes of a little-endian number */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rtnl_link_ops {
	const char *kind;
};

struct net_device___kind {
	const struct rtnl_link_ops *rtnl_link_ops;
};

struct sk_buff___queued {
	struct net_device___kind *dev;
	const struct sock *sk;
};

#pragma clang attribute pop

/*
 * When a packet was queued at an ifb interface, ns, by the address of its sk_buff. Entries of packets that the queue
 * drops stay until the LRU map evicts them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_QUEUED);
	__type(key, __u64);
	__type(value, __u64);
} queued SEC(".maps");

/* When a held segment of a connection was last reported, ns. The key's `reserved` is this host's port. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CONNECTIONS);
	__type(key, struct peer);
	__type(value, __u64);
} reported SEC(".maps");

static __always_inline bool is_ifb(const struct net_device___kind *device)
{
	const char *kind = BPF_CORE_READ(device, rtnl_link_ops, kind);
	__u8 name[4] = {};

	return !bpf_probe_read_kernel(name, sizeof(name), kind) &&
	       (name[0] | name[1] << 8 | name[2] << 16 | (__u32)name[3] << 24) == KIND_IFB;
}

/* Packets that this host sends have a socket; they are skipped. */
SEC("tp_btf/net_dev_queue")
int tp_queue(unsigned long long *ctx)
{
	const struct sk_buff___queued *skb = (void *)ctx[0];
	__u64 key = (__u64)skb, now;

	if (skb->sk || !is_ifb(skb->dev))
		return 0;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&queued, &key, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int tp_transmit_ifb(unsigned long long *ctx)
{
	const struct sk_buff___queued *skb = (void *)ctx[0];
	struct outcome o = { .operation = TCP_HELD, .status = HELD_RECEIVED };
	__u64 key = (__u64)skb, now, *found;
	struct peer peer, connection;
	__u16 local_port = 0;

	if (skb->sk || !is_ifb(skb->dev))
		return 0;
	found = bpf_map_lookup_elem(&queued, &key);
	if (!found)
		return 0;
	o.start = *found;
	bpf_map_delete_elem(&queued, &key);
	now = bpf_ktime_get_ns();
	if (now < o.start + HELD_NS || !server_of(&peer, &local_port, (const void *)skb))
		return 0;
	connection = peer;
	connection.reserved = local_port;
	found = bpf_map_lookup_elem(&reported, &connection);
	if (found && now < *found + HELD_EVERY_NS)
		return 0;
	bpf_map_update_elem(&reported, &connection, &now, BPF_ANY);
	happened(&o, &peer, local_port, NULL, 0);
	return 0;
}
