/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The fields that are read only for calls that failed or are reported: status code, session and file. */
#pragma once

#include "operation.h"
#include "sunrpc.h"

enum {
	EAGAIN = 11,
	EDEADLK = 35,
	ELOOP = 40,
	ENODATA = 61,
	EOPNOTSUPP = 95,
	ESTALE = 116,
	EREMOTEIO = 121,
	EDQUOT = 122,
	ENAMETOOLONG = 36,
	ENOTEMPTY = 39,
	E2BIG = 7,
	EBADHANDLE = 521,
	ENOTSYNC = 522,
	EBADCOOKIE = 523,
	ENOTSUPP = 524,
	ETOOSMALL = 525,
	ESERVERFAULT = 526,
	EBADTYPE = 527,
	EJUKEBOX = 528,
};

/* The client turns most status codes into error numbers (nfs_errtbl in fs/nfs/nfs4xdr.c, nfs_common/common.c): back again.
 * RFC 7530 13, RFC 8881 15.1, RFC 1813 2.6. Global, so that the verifier does not follow each result through the caller. */
__noinline __u32 protocol_status(__u32 error)
{
	switch (error) {
	case EAGAIN:
		return 10012; /* LOCKED */
	case EDEADLK:
		return 10045;
	case ENAMETOOLONG:
		return 63;
	case ENOTEMPTY:
		return 66;
	case EDQUOT:
		return 69;
	case ESTALE:
		return 70;
	case ELOOP:
		return 10029; /* SYMLINK */
	case EOPNOTSUPP:
		return 10044; /* OP_ILLEGAL */
	case ENODATA:
		return 10095; /* NOXATTR */
	case E2BIG:
		return 10096; /* XATTR2BIG */
	case EBADHANDLE:
		return 10001;
	case ENOTSYNC:
		return 10002;
	case EBADCOOKIE:
		return 10003;
	case ENOTSUPP:
		return 10004;
	case ETOOSMALL:
		return 10005;
	case ESERVERFAULT:
	case EREMOTEIO:
		return 10006;
	case EBADTYPE:
		return 10007;
	case EJUKEBOX:
		return 10008;
	}
	return error;
}

/* Slot, sequence and session. If the arguments begin with a slot, the slot belongs to a session's table, and the table
 * names the session. */
static __always_inline void read_session(struct event *e, const struct rpc_task *task)
{
	struct nfs4_sequence_args *arguments = BPF_CORE_READ(task, tk_msg.rpc_argp);
	struct nfs4_slot *slot = BPF_CORE_READ(arguments, sa_slot);
	struct nfs4_slot_table *table = BPF_CORE_READ(slot, table);
	struct nfs4_session *session = BPF_CORE_READ(table, session);
	__u64 id[2] = {};

	if (!session || (__u64)session + bpf_core_field_offset(struct nfs4_session, fc_slot_table) != (__u64)table)
		return;
	BPF_CORE_READ_INTO(&id, session, sess_id.data);
	e->session = id[0] ^ id[1];
	e->tree = BPF_CORE_READ(slot, slot_nr);
	e->sequence = BPF_CORE_READ(slot, seq_nr);
}

/* What READ, WRITE and COMMIT are about. */
static __always_inline void read_file(struct event *e, const struct rpc_task *task)
{
	struct nfs_pgio_header *header = BPF_CORE_READ(task, tk_calldata);
	struct inode *inode;

	if (e->operation == OPERATION_COMMIT) {
		inode = BPF_CORE_READ((struct nfs_commit_data *)header, inode);
	} else if (e->operation >= OPERATION_READ && e->operation <= OPERATION_WRITE) {
		inode = BPF_CORE_READ(header, inode);
		bpf_probe_read_kernel_str(e->file, sizeof(e->file),
					  BPF_CORE_READ(header, args.context, dentry, d_name.name));
	} else {
		return;
	}
	e->inode = BPF_CORE_READ(inode, i_ino);
}
