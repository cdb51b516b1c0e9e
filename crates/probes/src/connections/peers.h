/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Whether a socket's peer is the server of a mount. Most sockets' are not, and are rejected by the port alone. */
#pragma once

#include "connections.h"

enum {
	HELD_NS = 10 * 1000 * 1000, /* a segment that waited in this host for longer was held */
	HELD_EVERY_NS = 20 * 1000 * 1000, /* at most one event for a connection in this time */
};

/* One bit for each port, set if a server has it; indexed by the port in network byte order. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[8192]);
} ports SEC(".maps");

/* Reads the address and port of a socket's peer. */
static __always_inline void read_remote(struct peer *peer, const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	__builtin_memset(peer, 0, sizeof(*peer));
	peer->port = sk->__sk_common.skc_dport;
	if (family == FAMILY_INET6) {
		bpf_probe_read_kernel(peer->address, 16,
				      (const void *)sk + bpf_core_field_offset(struct sock, __sk_common.skc_v6_daddr));
	} else if (family == FAMILY_INET) {
		__u32 address = sk->__sk_common.skc_daddr;

		peer->address[10] = peer->address[11] = 0xff;
		__builtin_memcpy(peer->address + 12, &address, 4);
	}
}

/* Whether a server has this port, given in network byte order. */
static __always_inline bool has_server(__u16 port)
{
	__u32 zero = 0;
	__u8 *bits = bpf_map_lookup_elem(&ports, &zero);

	return bits && (bits[port >> 3] & 1 << (port & 7));
}

/* Whether the socket's peer is the server of a mount; then fills in `peer`. A server's own sockets do not match. */
static __always_inline bool peer_of(struct peer *peer, const struct sock *sk)
{
	if (!has_server(sk->__sk_common.skc_dport))
		return false;
	read_remote(peer, sk);
	return is_server(peer);
}
