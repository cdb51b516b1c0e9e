// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * ICMP errors from hosts on the way to servers of mounts: a segment did not get through. Each error names the
 * connection by the beginning of that segment. The error's sender is a router, the server's own host, or this host
 * itself. Errors of the path's MTU are no failures, and are left out.
 */
#include "namespace.h"
#include "packet.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* An event's status: this, plus the kind of the error, plus the sender. UNREACHABLE of mod.rs has them in this order. */
enum { UNREACHABLE_STATUS = 64 };

enum unreachable {
	NET_UNREACHABLE,
	HOST_UNREACHABLE,
	PROTOCOL_UNREACHABLE,
	PORT_UNREACHABLE,
	ADMIN_PROHIBITED,
	TIME_EXCEEDED, /* the packet ran in a loop */
	KINDS, /* the first kind of the next sender */
	NO_FAILURE,
};

enum sender { BY_ANOTHER, BY_SERVER, BY_THIS_HOST };

/* RFC 792, RFC 1122, RFC 1812, RFC 4443 */
enum {
	ICMP_UNREACHABLE = 3,
	ICMP_TIME_EXCEEDED = 11,
	ICMPV6_UNREACHABLE = 1,
	ICMPV6_TIME_EXCEEDED = 3,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sk_buff___error {
	struct net_device___namespace *dev;
	__u16 transport_header; /* offset from `head`, bytes: of the ICMP header */
	__u16 network_header; /* of the error's own IP header */
	unsigned char *head;
	unsigned char *data; /* the packet that did not get through */
};

#pragma clang attribute pop

/* This and the next are global, so that the verifier does not follow each result through the caller. They return an enum unreachable. */
__noinline __u32 kind_of_v4(__u8 type, __u8 code)
{
	if (type == ICMP_TIME_EXCEEDED && !code)
		return TIME_EXCEEDED;
	if (type != ICMP_UNREACHABLE)
		return NO_FAILURE;
	switch (code) {
	case 0: /* network */
	case 5: /* source route failed */
	case 6: /* network not known */
	case 11: /* network, for this type of service */
		return NET_UNREACHABLE;
	case 1: /* host */
	case 7: /* host not known */
	case 8: /* source host isolated */
	case 12: /* host, for this type of service */
		return HOST_UNREACHABLE;
	case 2:
		return PROTOCOL_UNREACHABLE;
	case 3:
		return PORT_UNREACHABLE;
	case 9: /* network */
	case 10: /* host */
	case 13: /* all of it */
	case 14: /* precedence */
	case 15:
		return ADMIN_PROHIBITED;
	default:
		return NO_FAILURE;
	}
}

__noinline __u32 kind_of_v6(__u8 type, __u8 code)
{
	if (type == ICMPV6_TIME_EXCEEDED && !code)
		return TIME_EXCEEDED;
	if (type != ICMPV6_UNREACHABLE)
		return NO_FAILURE;
	switch (code) {
	case 0: /* no route */
	case 2: /* beyond the scope of the source's address */
		return NET_UNREACHABLE;
	case 1:
	case 5: /* the source's address */
	case 6: /* a route that rejects */
		return ADMIN_PROHIBITED;
	case 3: /* address */
		return HOST_UNREACHABLE;
	case 4:
		return PORT_UNREACHABLE;
	default:
		return NO_FAILURE;
	}
}

static __always_inline bool is_same(const struct peer *one, const struct peer *other)
{
	const __u64 *a = (const void *)one->address, *b = (const void *)other->address;

	return a[0] == b[0] && a[1] == b[1];
}

/* ports: of the segment, in this host's memory. */
static __always_inline int tell_unreachable(const struct sk_buff___error *skb, __u32 kind, const unsigned char *ports,
					    bool v6)
{
	const unsigned char *error = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);
	const unsigned char *segment = BPF_CORE_READ(skb, data);
	struct outcome o = { .operation = TCP_UNREACHABLE };
	struct peer peer, this_host, sender;
	enum sender by;
	__u16 to = 0;

	if (kind >= KINDS)
		return 0;
	bpf_probe_read_kernel(&to, sizeof(to), ports + 2);
	if (!has_server(to))
		return 0;
	read_end(&peer, segment + (v6 ? 24 : 16), ports + 2, v6);
	if (!is_server(&peer) || !is_own(BPF_CORE_READ(skb, dev, nd_net.net)))
		return 0;
	read_end(&this_host, segment + (v6 ? 8 : 12), ports, v6);
	read_end(&sender, error + (v6 ? 8 : 12), ports, v6);
	by = is_same(&sender, &peer) ? BY_SERVER : is_same(&sender, &this_host) ? BY_THIS_HOST : BY_ANOTHER;
	o.status = UNREACHABLE_STATUS + by * KINDS + kind;
	happened_with(&o, &peer, bpf_ntohs(this_host.port), NULL, 0, (struct remark){ .by = &sender });
	return 0;
}

/* Called for ICMP errors about TCP; the kernel has checked that the segment's ports are there. */
static __always_inline int error_v4(const struct sk_buff___error *skb)
{
	const unsigned char *icmp = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, transport_header);
	const unsigned char *segment = BPF_CORE_READ(skb, data);
	__u8 first = 0, kind[2] = {}; /* type, code */

	bpf_probe_read_kernel(kind, sizeof(kind), icmp);
	bpf_probe_read_kernel(&first, sizeof(first), segment);
	return tell_unreachable(skb, kind_of_v4(kind[0], kind[1]), segment + (first & 15) * 4, false);
}

static __always_inline int error_v6(const struct sk_buff___error *skb, __u8 type, __u8 code, int offset)
{
	return tell_unreachable(skb, kind_of_v6(type, code), BPF_CORE_READ(skb, data) + offset, true);
}

SEC("fentry/tcp_v4_err")
int fentry_error_v4(unsigned long long *ctx)
{
	return error_v4((void *)ctx[0]);
}

SEC("fentry/tcp_v6_err")
int fentry_error_v6(unsigned long long *ctx)
{
	return error_v6((void *)ctx[0], ctx[2], ctx[3], ctx[4]);
}

SEC("kprobe/tcp_v4_err")
int kprobe_error_v4(struct pt_regs *ctx)
{
	return error_v4((void *)PT_REGS_PARM1(ctx));
}

SEC("kprobe/tcp_v6_err")
int kprobe_error_v6(struct pt_regs *ctx)
{
	return error_v6((void *)PT_REGS_PARM1(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx));
}
