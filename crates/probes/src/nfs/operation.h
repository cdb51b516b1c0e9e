/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which operation a procedure is. The client's numbers differ by version and kernel, but its names do not. So each
 * procedure is looked up once by its name, in the list from user space, and stored under its number.
 */
#pragma once

#include "sunrpc.h"

enum {
	MAX_PROCEDURES = 128, /* of one version */
	NAME_PARTS = 3, /* of eight bytes */
};

/* The first operations in mod.rs, in its order: those that the kernel side handles specially. */
enum operation {
	OPERATION_NULL,
	OPERATION_READ,
	OPERATION_READ_PLUS,
	OPERATION_WRITE,
	OPERATION_COMMIT,
	/* With these operations, a client sets up its lease and session; other calls wait meanwhile. */
	OPERATION_SETCLIENTID,
	OPERATION_SETCLIENTID_CONFIRM,
	OPERATION_EXCHANGE_ID,
	OPERATION_CREATE_SESSION,
	OPERATION_BIND_CONN_TO_SESSION,
	OPERATION_RECLAIM_COMPLETE,
	OPERATION_OTHER, /* with a name that is not in the list */
};

struct operation_name {
	__u64 parts[NAME_PARTS];
};

const volatile struct operation_name operation_names[MAX_OPERATIONS] SEC(".rodata.names");

/* An operation's code and one, by the procedure's number: of version 3, then of version 4. */
__u8 operations[2 * MAX_PROCEDURES];

struct operation_search {
	struct operation_name wanted;
	__u32 code;
};

static long match_operation(__u32 code, void *context)
{
	struct operation_search *search = context;
	const volatile struct operation_name *name;

	if (code >= MAX_OPERATIONS)
		return 1;
	name = &operation_names[code];
	/* One comparison instead of three: the verifier follows each comparison as two paths. */
	if ((name->parts[0] ^ search->wanted.parts[0]) | (name->parts[1] ^ search->wanted.parts[1]) |
	    (name->parts[2] ^ search->wanted.parts[2]))
		return 0;
	search->code = code;
	return 1;
}

/* Global, so that the verifier checks it once, and does not follow each of its results through the caller. */
__noinline __u32 find_operation(__u64 name)
{
	struct operation_search search = { .code = OPERATION_OTHER };

	if (bpf_probe_read_kernel_str(&search.wanted, sizeof(search.wanted), (const char *)name) > 0)
		bpf_loop(MAX_OPERATIONS, match_operation, &search, 0);
	return search.code;
}

static __always_inline __u32 operation_of(const struct rpc_procinfo *procedure, __u32 number, __u32 version)
{
	__u32 at = (version == 3 ? 0 : MAX_PROCEDURES) + (number & (MAX_PROCEDURES - 1));

	/* Checks the bound once more in a form that the verifier of 6.1 can follow. */
	barrier_var(at);
	at &= 2 * MAX_PROCEDURES - 1;
	/* The ping that any program answers has no name. */
	if (!number)
		return OPERATION_NULL;
	if (!operations[at])
		operations[at] = find_operation((__u64)BPF_CORE_READ(procedure, p_name)) + 1;
	return operations[at] - 1;
}
