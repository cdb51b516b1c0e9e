/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Types of the RPC client (include/linux/sunrpc/) and of the NFS client (fs/nfs/, include/linux/nfs_xdr.h). */
#pragma once

#include "../bpf/event.h"
#include "../bpf/kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rpc_procinfo {
	__u32 p_statidx; /* v3: the procedure; v4: the client's own number of the operation */
	const char *p_name;
};

struct rpc_message {
	const struct rpc_procinfo *rpc_proc;
	void *rpc_argp;
	void *rpc_resp;
};

struct rpc_xprt {
	unsigned int id;
	struct __kernel_sockaddr_storage addr;
	int prot;
	unsigned long state;
	struct {
		unsigned long connect_start; /* jiffies, of the latest attempt */
	} stat;
	const char *servername;
};

struct sock_xprt {
	struct sock *inet;
};

struct rpc_clnt {
	struct rpc_xprt *cl_xprt;
	__u32 cl_prog;
	__u32 cl_vers;
	struct rpc_clnt *cl_parent; /* itself, unless it is a clone */
};

struct rpc_rqst {
	__u32 rq_xid; /* network byte order */
	unsigned long rq_reply_bytes_recvd;
	__s64 rq_rtt; /* from rq_xtime until the beginning of the answer came */
	__s64 rq_xtime; /* when it was sent last, CLOCK_MONOTONIC; 0: never */
	int rq_ntrans;
};

struct rpc_task {
	int tk_status;
	int tk_rpc_status; /* of RPC itself: there is no answer, or none that NFS has to do with */
	struct rpc_message tk_msg;
	void *tk_calldata;
	struct rpc_clnt *tk_client;
	struct rpc_rqst *tk_rqstp;
	struct rpc_xprt *tk_xprt;
	__s64 tk_start; /* CLOCK_MONOTONIC, since it was made or restarted */
	int tk_owner; /* process */
	__u16 tk_flags;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct file_system_type___supers {
	struct hlist_head fs_supers;
};

struct super_block___nfs {
	__u32 s_dev;
	struct hlist_node s_instances;
	void *s_fs_info; /* struct nfs_server */
};

struct nfs_server {
	struct rpc_clnt *client;
};

struct nfs4_sessionid {
	unsigned char data[16];
};

struct nfs4_session;

struct nfs4_slot_table {
	struct nfs4_session *session;
};

struct nfs4_session {
	struct nfs4_sessionid sess_id;
	struct nfs4_slot_table fc_slot_table;
};

struct nfs4_slot {
	struct nfs4_slot_table *table;
	__u32 slot_nr;
	__u32 seq_nr;
};

/* What the arguments of an operation in a session begin with. */
struct nfs4_sequence_args {
	struct nfs4_slot *sa_slot;
};

struct nfs_open_context {
	struct dentry *dentry;
};

struct nfs_pgio_args {
	struct nfs_open_context *context;
};

/* The answer to a READ or WRITE of any version. */
struct nfs_pgio_res {
	__u64 count;
};

struct nfs_pgio_header {
	struct inode *inode;
	struct nfs_pgio_args args;
};

struct nfs_commit_data {
	struct inode *inode;
};

#pragma clang attribute pop

enum {
	NFS_PROGRAM = 100003,
	IPPROTO_TCP = 6,
	XPRT_CONNECTED = 1 << 1,
	RPC_TASK_ASYNC = 0x0001,
	RPC_TASK_SENT = 0x0800
};
