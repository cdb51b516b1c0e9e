/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which operation a procedure is. The client's numbers differ by version and kernel, its names do not: so each procedure
 * is looked up by name once, in the list that user space has, and remembered under its number.
 */
#pragma once

#include "sunrpc.h"

enum {
	MAX_PROCEDURES = 128, /* of one version */
	NAME_PARTS = 3, /* of eight bytes */
};

/* The first in mod.rs, in its order: those that something is done about. */
enum operation {
	OPERATION_NULL,
	OPERATION_READ,
	OPERATION_READ_PLUS,
	OPERATION_WRITE,
	OPERATION_COMMIT,
	/* With these, a client sets up its lease and session; others wait meanwhile. */
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

/* Global, so that it is verified by itself: the verifier of 6.1 would follow each of its 128 results through the caller. */
__noinline __u32 find_operation(__u64 name)
{
	struct operation_name wanted = {};

	if (bpf_probe_read_kernel_str(&wanted, sizeof(wanted), (const char *)name) <= 0)
		return OPERATION_OTHER;
	for (__u32 code = 0; code < MAX_OPERATIONS; code++) {
		const volatile struct operation_name *name = &operation_names[code];

		/* One comparison, not three: each is a way that the verifier follows. */
		if (!((name->parts[0] ^ wanted.parts[0]) | (name->parts[1] ^ wanted.parts[1]) |
		      (name->parts[2] ^ wanted.parts[2])))
			return code;
	}
	return OPERATION_OTHER;
}

static __always_inline __u32 operation_of(const struct rpc_procinfo *procedure, __u32 number, __u32 version)
{
	__u32 at = (version == 3 ? 0 : MAX_PROCEDURES) + (number & (MAX_PROCEDURES - 1));

	/* Said once more in a way that the verifier of 6.1 can follow. */
	barrier_var(at);
	at &= 2 * MAX_PROCEDURES - 1;
	/* The ping that any program answers has no name. */
	if (!number)
		return OPERATION_NULL;
	if (!operations[at])
		operations[at] = find_operation((__u64)BPF_CORE_READ(procedure, p_name)) + 1;
	return operations[at] - 1;
}
