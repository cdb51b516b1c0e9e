/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Types of the RPC client (include/linux/sunrpc/) that describe its connections. */
#pragma once

#include "connections.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rpc_xprt {
	struct __kernel_sockaddr_storage addr;
	unsigned long state;
	struct {
		unsigned long connect_count;
	} stat;
};

struct rpc_clnt {
	struct rpc_xprt *cl_xprt;
	__u32 cl_prog;
};

struct rpc_task;

struct rpc_rqst {
	struct rpc_task *rq_task;
	__s64 rq_xtime; /* when it was sent last, CLOCK_MONOTONIC */
	int rq_ntrans;
};

struct rpc_task {
	struct rpc_clnt *tk_client;
	struct rpc_rqst *tk_rqstp;
	struct rpc_xprt *tk_xprt;
	__s64 tk_start; /* CLOCK_MONOTONIC */
	int tk_owner; /* the process that made the call */
};

#pragma clang attribute pop

enum { NFS_PROGRAM = 100003, XPRT_CONNECTED = 1 << 1 };

static __always_inline void read_transport(struct peer *peer, const struct rpc_xprt *transport)
{
	read_peer(peer, (const void *)transport + bpf_core_field_offset(struct rpc_xprt, addr));
}

static __always_inline void tell_of_call(enum happening what, const struct rpc_task *task, __u64 since, __u32 times)
{
	const struct rpc_xprt *transport = BPF_CORE_READ(task, tk_xprt);
	struct outcome o = { .operation = what, .start = since };
	struct peer peer;

	if (!transport)
		transport = BPF_CORE_READ(task, tk_client, cl_xprt);
	read_transport(&peer, transport);
	o.pid = BPF_CORE_READ(task, tk_owner);
	happened(&o, &peer, 0, NULL, times);
}
