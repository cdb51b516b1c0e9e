/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Finds a packet's server by the packet's own headers, for packets that have no socket. */
#pragma once

#include "peers.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sk_buff___packet {
	__u16 protocol; /* network byte order */
	__u16 network_header; /* offset from `head`, bytes */
	unsigned char *head;
};

#pragma clang attribute pop

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_IPV6 = 0x86dd,
	PROTOCOL_TCP = 6,
};

/*
 * Finds the server that a packet came from or goes to, and this host's port; false if it is no server of a mount. IPv6
 * extension headers are not parsed, and of a fragmented packet only the first fragment has ports.
 */
static __always_inline bool server_of(struct peer *peer, __u16 *local_port, const struct sk_buff___packet *skb)
{
	const unsigned char *header = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header), *tcp;
	bool v6 = BPF_CORE_READ(skb, protocol) == bpf_htons(ETHERTYPE_IPV6);
	__u16 ports_of[2] = {}; /* from, to */
	__u8 first = 0, protocol = 0;

	if (!v6 && BPF_CORE_READ(skb, protocol) != bpf_htons(ETHERTYPE_IPV4))
		return false;
	bpf_probe_read_kernel(&first, sizeof(first), header);
	bpf_probe_read_kernel(&protocol, sizeof(protocol), header + (v6 ? 6 : 9));
	if (first >> 4 != (v6 ? 6 : 4) || protocol != PROTOCOL_TCP)
		return false;
	tcp = header + (v6 ? 40 : (first & 15) * 4);
	bpf_probe_read_kernel(ports_of, sizeof(ports_of), tcp);
	if (has_server(ports_of[0])) {
		read_end(peer, header + (v6 ? 8 : 12), tcp, v6);
		*local_port = bpf_ntohs(ports_of[1]);
		if (is_server(peer))
			return true;
	}
	if (!has_server(ports_of[1]))
		return false;
	read_end(peer, header + (v6 ? 24 : 16), tcp + 2, v6);
	*local_port = bpf_ntohs(ports_of[0]);
	return is_server(peer);
}
