/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Types of the RPC server (include/linux/sunrpc/svc*.h) and of nfsd (fs/nfsd/). The same in Linux 6.1, 6.12 and 7.3. */
#pragma once

#include "../bpf/kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Begins with a struct svc_xprt, by which tracepoints name it. */
struct svc_sock {
	struct sock *sk_sk;
};

struct svc_rqst {
	struct __kernel_sockaddr_storage rq_addr; /* the client's */
	__u32 rq_xid; /* network byte order */
	__u32 rq_prog;
	__u32 rq_vers;
	__u32 rq_proc;
	void *rq_argp;
	void *rq_resp;
	__s64 rq_stime; /* when a thread had read all of it, CLOCK_MONOTONIC */
};

struct tcp_sock___served {
	__u32 rcv_nxt; /* the end of what has come in, in order */
	__u32 copied_seq; /* the end of what has been read */
};

struct nfsd4_write {
	__u32 wr_bytes_written;
};

union nfsd4_op_u {
	struct nfsd4_write write;
};

struct nfsd4_op {
	__u32 opnum;
	__u32 status; /* network byte order */
	union nfsd4_op_u u;
};

struct nfsd4_compoundargs {
	__u32 client_opcnt; /* those that the client asks for */
	struct nfsd4_op *ops;
};

struct nfsd4_compoundres {
	__u32 opcnt; /* those that were done */
};

/* The answers to all procedures of version 3 begin with the status. */
struct nfsd3_writeres {
	__u32 status; /* network byte order */
	unsigned long count;
};

struct svc_export {
	struct path ex_path;
};

#pragma clang attribute pop

enum { NFS_PROGRAM = 100003, AF_INET6 = 10 };
