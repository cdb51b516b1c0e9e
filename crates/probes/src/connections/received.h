/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Reports segments from servers of mounts that this host held before TCP saw them. */
#pragma once

#include "packet.h"

enum {
	/* An event's status: above TCP's states. The reasons of conn_drops.bpf.c begin at DROP_STATUS + 1, which is 33. */
	HELD_RECEIVED = 32,
	MAX_CONNECTIONS = 1024,
};

/* When a held segment of a connection was last reported, ns. The key's `reserved` is this host's port. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CONNECTIONS);
	__type(key, struct peer);
	__type(value, __u64);
} reported SEC(".maps");

/* Reports a segment that this host has held since then, ns, and that goes on now. */
static __always_inline void tell_held(const struct peer *peer, __u16 local_port, __u64 since)
{
	struct outcome o = { .operation = TCP_HELD, .status = HELD_RECEIVED, .start = since };
	struct peer connection = *peer;
	__u64 now = bpf_ktime_get_ns(), *last;

	connection.reserved = local_port;
	last = bpf_map_lookup_elem(&reported, &connection);
	/* If operations follow one another and each answer is held, each one is to be reported. */
	if (last && now < *last + HELD_NS)
		return;
	bpf_map_update_elem(&reported, &connection, &now, BPF_ANY);
	happened(&o, peer, local_port, NULL, 0);
}
