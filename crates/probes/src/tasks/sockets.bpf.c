// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* TCP and UDP sockets of the reader's network namespace: where they lead, and what waits in them. */
#include "../threads/iterator.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport;
	__u16 skc_num;
	__u16 skc_family;
	unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
};

struct tcp_sock___queues {
	__u32 write_seq;
	__u32 snd_una;
	__u32 rcv_nxt;
	__u32 copied_seq;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct udp_sock;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
};
#pragma clang attribute pop

enum { OVER_IP4 = 2 /* AF_INET */, LISTENS = 10 /* TCP_LISTEN */ };

static __always_inline void name(struct socket_record *r, const struct sock_common *common)
{
	__u32 local = common->skc_rcv_saddr, remote = common->skc_daddr;

	if (common->skc_family == OVER_IP4) { /* ::ffff:1.2.3.4 */
		r->local[10] = r->local[11] = r->remote[10] = r->remote[11] = 0xff;
		__builtin_memcpy(r->local + 12, &local, 4);
		__builtin_memcpy(r->remote + 12, &remote, 4);
	} else {
		bpf_core_read(r->local, sizeof(r->local), &common->skc_v6_rcv_saddr);
		bpf_core_read(r->remote, sizeof(r->remote), &common->skc_v6_daddr);
	}
	r->local_port = common->skc_num;
	r->remote_port = __builtin_bswap16(common->skc_dport);
	r->state = common->skc_state;
}

static __always_inline void find_inode(struct socket_record *r, const struct sock *sock)
{
	const char *socket = (const void *)BPF_CORE_READ(sock, sk_socket);
	const struct inode *inode;

	if (!socket) /* the socket has no file any more */
		return;
	inode = (const void *)(socket + bpf_core_field_offset(struct socket_alloc, vfs_inode));
	r->inode = BPF_CORE_READ(inode, i_ino);
}

SEC("iter/tcp")
int tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	const struct tcp_sock___queues *queues;
	struct socket_record r = { .protocol = 6 };

	if (!common)
		return 0;
	name(&r, common);
	queues = (const void *)bpf_skc_to_tcp_sock(common);
	if (queues) { /* neither a TIME_WAIT nor a request socket */
		find_inode(&r, (const void *)common);
		if (r.state != LISTENS) {
			r.send_queue = queues->write_seq - queues->snd_una;
			r.receive_queue = queues->rcv_nxt - queues->copied_seq;
		}
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

SEC("iter/udp")
int udp(struct bpf_iter__udp *ctx)
{
	const struct sock *sock = (const void *)ctx->udp_sk;
	struct socket_record r = { .protocol = 17 };

	if (!sock)
		return 0;
	name(&r, &sock->__sk_common);
	find_inode(&r, sock);
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
