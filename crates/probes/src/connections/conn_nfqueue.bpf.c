// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Segments from servers of mounts that wait for a program of this host before TCP sees them: netfilter gives received
 * packets to it by NFQUEUE, and it lets them go on later. Security agents and intrusion prevention work so. These
 * programs run for packets in such queues only, so they are attached even before the module `nfnetlink_queue` is loaded.
 *
 * An entry of a queue begins where it takes references to the packet's devices. If the queue splits a packet into
 * segments, each has an entry of its own. Until Linux 6.9 an entry ends in the kernel proper, where the packet is given
 * back; from 6.10 on that is in the module, and the entry ends where it is freed: after TCP has taken the packet.
 */
#include "namespace.h"
#include "received.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* enum nf_inet_hooks: a received packet, before and after its route is known; those of IPv4, IPv6 and bridges agree. */
enum { PRE_ROUTING = 0, LOCAL_IN = 1 };

/* A queue of netfilter holds as many, unless its program asks for more (NFQNL_QMAX_DEFAULT). */
enum { MAX_WAITING = 1024 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct nf_hook_state {
	__u8 hook;
	struct net *net;
};

struct nf_queue_entry {
	struct sk_buff___packet *skb;
	struct nf_hook_state state;
};

#pragma clang attribute pop

struct waiting {
	__u64 since; /* ns */
	struct peer peer;
	__u16 local_port;
	__u16 reserved;
};

/* Packets of servers that wait, by the address of the queue's entry. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_WAITING);
	__type(key, __u64);
	__type(value, struct waiting);
} waiting_packets SEC(".maps");

static __always_inline int queued(const struct nf_queue_entry *entry)
{
	__u64 key = (__u64)entry;
	struct waiting waiting = {};

	if (BPF_CORE_READ(entry, state.hook) > LOCAL_IN || !is_own(BPF_CORE_READ(entry, state.net)) ||
	    !server_of(&waiting.peer, &waiting.local_port, BPF_CORE_READ(entry, skb)))
		return 0;
	waiting.since = bpf_ktime_get_ns();
	bpf_map_update_elem(&waiting_packets, &key, &waiting, BPF_ANY);
	return 0;
}

static __always_inline int goes_on(const struct nf_queue_entry *entry)
{
	__u64 key = (__u64)entry;
	struct waiting *found = bpf_map_lookup_elem(&waiting_packets, &key), waiting;

	if (!found)
		return 0;
	waiting = *found;
	bpf_map_delete_elem(&waiting_packets, &key);
	if (bpf_ktime_get_ns() >= waiting.since + HELD_NS)
		tell_held(&waiting.peer, waiting.local_port, waiting.since);
	return 0;
}

SEC("fentry/nf_queue_entry_get_refs")
int fentry_queued(unsigned long long *ctx)
{
	return queued((void *)ctx[0]);
}

SEC("fentry/nf_reinject")
int fentry_given_back(unsigned long long *ctx)
{
	return goes_on((void *)ctx[0]);
}

SEC("fentry/nf_queue_entry_free")
int fentry_freed(unsigned long long *ctx)
{
	return goes_on((void *)ctx[0]);
}

SEC("kprobe/nf_queue_entry_get_refs")
int kprobe_queued(struct pt_regs *ctx)
{
	return queued((void *)PT_REGS_PARM1(ctx));
}

SEC("kprobe/nf_reinject")
int kprobe_given_back(struct pt_regs *ctx)
{
	return goes_on((void *)PT_REGS_PARM1(ctx));
}

SEC("kprobe/nf_queue_entry_free")
int kprobe_freed(struct pt_regs *ctx)
{
	return goes_on((void *)PT_REGS_PARM1(ctx));
}
