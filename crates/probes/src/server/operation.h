/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which operation a request is, how it ended and how many bytes it wrote. A request of version 4 is a COMPOUND. It is
 * named by the operation that the client wants, as the client itself names it, where the operations show it. The codes
 * are those of version 4 (RFC 8881 16.2, RFC 7862, RFC 8276); the codes of version 3 only are above them. mod.rs has
 * their names.
 */
#pragma once

#include "../bpf/fields.h"
#include "../bpf/observe.h"
#include "svc.h"
#include <bpf/bpf_endian.h>

enum operation {
	OPERATION_NULL = 0,
	OPERATION_OTHER = 1, /* an operation that is not known here, or version 2 */
	OPERATION_COMPOUND = 2, /* more operations than are kept: any of them */
	OPERATION_ACCESS = 3,
	OPERATION_COMMIT = 5,
	OPERATION_CREATE = 6,
	OPERATION_GETATTR = 9,
	OPERATION_GETFH = 10,
	OPERATION_LINK = 11,
	OPERATION_LOOKUP = 15,
	OPERATION_NVERIFY = 17,
	OPERATION_PUTFH = 22,
	OPERATION_PUTPUBFH = 23,
	OPERATION_PUTROOTFH = 24,
	OPERATION_READ = 25,
	OPERATION_READDIR = 26,
	OPERATION_READLINK = 27,
	OPERATION_REMOVE = 28,
	OPERATION_RENAME = 29,
	OPERATION_RESTOREFH = 31,
	OPERATION_SAVEFH = 32,
	OPERATION_SETATTR = 34,
	OPERATION_VERIFY = 37,
	OPERATION_WRITE = 38,
	OPERATION_LAYOUTRETURN = 51,
	OPERATION_SEQUENCE = 53,
	OPERATION_READ_PLUS = 68,
	LAST_OF_VERSION_4 = 75, /* REMOVEXATTR */
	OPERATION_MKDIR,
	OPERATION_SYMLINK,
	OPERATION_MKNOD,
	OPERATION_RMDIR,
	OPERATION_READDIRPLUS,
	OPERATION_FSSTAT,
	OPERATION_FSINFO,
	OPERATION_PATHCONF,
};

enum {
	MAX_IN_COMPOUND = 8, /* iops: what is beyond these was freed before the answer is sent */
	COMPOUND_PROCEDURE = 1,
	STATUS_V3 = 3 << 16, /* as in the nfs probe */
};

/* RFC 1813 3.3 */
static const __u8 of_version_3[] = {
	OPERATION_NULL,	    OPERATION_GETATTR, OPERATION_SETATTR,     OPERATION_LOOKUP, OPERATION_ACCESS,
	OPERATION_READLINK, OPERATION_READ,    OPERATION_WRITE,	      OPERATION_CREATE, OPERATION_MKDIR,
	OPERATION_SYMLINK,  OPERATION_MKNOD,   OPERATION_REMOVE,      OPERATION_RMDIR,	OPERATION_RENAME,
	OPERATION_LINK,	    OPERATION_READDIR, OPERATION_READDIRPLUS, OPERATION_FSSTAT, OPERATION_FSINFO,
	OPERATION_PATHCONF, OPERATION_COMMIT,
};

/* A bit for each operation that other operations need. Such an operation is what the client wants only if no operation has a
 * higher rank. */
#define BIT(operation) (1ULL << (operation))
#define FILLERS                                                                                              \
	(BIT(OPERATION_PUTFH) | BIT(OPERATION_PUTPUBFH) | BIT(OPERATION_SAVEFH) | BIT(OPERATION_RESTOREFH) | \
	 BIT(OPERATION_SEQUENCE))
#define QUESTIONS (BIT(OPERATION_GETFH) | BIT(OPERATION_GETATTR) | BIT(OPERATION_VERIFY) | BIT(OPERATION_NVERIFY))
/* SETATTR: a client sends a delegation's times right before the delegation's return (seen with Linux 7.3). */
#define LESSER (BIT(OPERATION_PUTROOTFH) | BIT(OPERATION_ACCESS) | BIT(OPERATION_LAYOUTRETURN) | BIT(OPERATION_SETATTR))

/* Of two operations in a compound, the client wants the one with the higher rank; with equal ranks, the first. */
static __always_inline __u32 rank_of(__u32 operation)
{
	__u64 bit;

	if (operation >= 64)
		return 4;
	bit = BIT(operation);
	if (bit & FILLERS)
		return 1;
	if (bit & QUESTIONS)
		return 2;
	return bit & LESSER ? 3 : 4;
}

struct done {
	__u32 operation;
	__u32 status;
	__u64 written; /* bytes */
};

#define OP_BITS(at, field) KERNEL_BITS(32, (at) + bpf_core_field_offset(struct nfsd4_op, field))

/* Global, so that the verifier checks the loop once. Takes addresses, since global functions take no kernel pointers. */
__noinline int read_compound(struct done *done, __u64 arguments, __u64 answer)
{
	const char *ops, *wanted = NULL;
	__u32 count, rank = 0, operation, size = bpf_core_type_size(struct nfsd4_op);

	if (!done)
		return 0;
	/* Not opcnt, which newer kernels clear before they send ("args->opcnt = 0" in nfsd4_release_compoundargs). */
	count = FIELD_BITS(32, struct nfsd4_compoundargs, arguments, client_opcnt);
	if (count > MAX_IN_COMPOUND) {
		done->operation = OPERATION_COMPOUND;
		return 0;
	}
	ops = (const char *)FIELD_BITS(64, struct nfsd4_compoundargs, arguments, ops);
	for (__u32 i = 0; i < MAX_IN_COMPOUND && i < count; i++) {
		const char *at = ops + i * size;
		__u32 of_this;

		operation = OP_BITS(at, opnum);
		of_this = rank_of(operation);
		if (of_this <= rank)
			continue;
		rank = of_this;
		wanted = at;
		done->operation = operation <= LAST_OF_VERSION_4 ? operation : OPERATION_OTHER;
	}
	/* The compound ends with the first operation that fails (RFC 8881 16.2.3). */
	count = FIELD_BITS(32, struct nfsd4_compoundres, answer, opcnt) - 1;
	if (count < MAX_IN_COMPOUND)
		done->status = bpf_ntohl(OP_BITS(ops + count * size, status));
	if (done->status || !wanted)
		return 0;
	if (done->operation == OPERATION_WRITE)
		done->written = OP_BITS(wanted, u.write.wr_bytes_written);
	return 0;
}

static __always_inline void read_version_3(struct done *done, __u32 procedure, __u64 answer)
{
	if (procedure >= sizeof(of_version_3))
		return;
	done->operation = of_version_3[procedure];
	if (!procedure)
		return;
	done->status = bpf_ntohl(FIELD_BITS(32, struct nfsd3_writeres, answer, status));
	if (done->status)
		done->status |= STATUS_V3;
	else if (done->operation == OPERATION_WRITE)
		done->written = FIELD_BITS(64, struct nfsd3_writeres, answer, count);
}

static __always_inline void read_done(struct done *done, const struct svc_rqst *request)
{
	__u32 version = request->rq_vers, procedure = request->rq_proc;
	__u64 arguments, answer;

	done->operation = procedure ? OPERATION_OTHER : OPERATION_NULL;
	/* As words: since Linux 6.17, the verifier takes a void * of the kernel's for memory, which no global function takes. */
	arguments = FIELD_BITS(64, struct svc_rqst, request, rq_argp);
	answer = FIELD_BITS(64, struct svc_rqst, request, rq_resp);
	if (version == 3)
		read_version_3(done, procedure, answer);
	else if (version == 4 && procedure == COMPOUND_PROCEDURE)
		read_compound(done, arguments, answer);
}
