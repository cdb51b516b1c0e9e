// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Segments from servers of mounts that this host holds before TCP sees them: traffic control redirects received packets
 * to an `ifb` interface, and its queueing discipline holds them. Attached only while the module `ifb` is loaded,
 * because the programs also run for every packet that this host sends.
 */
#include "namespace.h"
#include "received.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { KIND_IFB = 'i' | 'f' << 8 | 'b' << 16 }; /* "ifb", as the bytes of a little-endian number */

enum { MAX_QUEUED = 4096 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rtnl_link_ops {
	const char *kind;
};

struct net_device___kind {
	const struct rtnl_link_ops *rtnl_link_ops;
	struct possible_net nd_net;
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
	__u64 key = (__u64)skb, since, *found;
	__u16 local_port = 0;
	struct peer peer;

	if (skb->sk || !is_ifb(skb->dev))
		return 0;
	found = bpf_map_lookup_elem(&queued, &key);
	if (!found)
		return 0;
	since = *found;
	bpf_map_delete_elem(&queued, &key);
	if (bpf_ktime_get_ns() >= since + HELD_NS && is_own(BPF_CORE_READ(skb, dev, nd_net.net)) &&
	    server_of(&peer, &local_port, (const void *)skb))
		tell_held(&peer, local_port, since);
	return 0;
}
