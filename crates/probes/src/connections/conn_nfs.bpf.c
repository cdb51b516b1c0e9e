// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The NFSv4 client lost its lease or session, or waited long for a slot of it. */
#include "connections.h"
#include "rpc.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A shorter wait is normal: by the number of slots, a server limits the requests that it processes
 * at a time. */
#define STARVED_NS 1000000000ULL

enum { READY = 0 }; /* NFS_CS_READY */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct nfs_client {
	struct __kernel_sockaddr_storage cl_addr;
	int cl_cons_state;
	unsigned long cl_state;
};

#pragma clang attribute pop

/* fs/nfs/nfs4_fs.h; the two have kept their numbers since 2.6.33. */
enum { LEASE_EXPIRED_BIT = 1 << 2, SESSION_RESET_BIT = 1 << 6 };

/* The client's recovery thread begins a round; the bits of cl_state say what it must recover. */
SEC("tp_btf/nfs4_state_mgr")
int tp_recover(unsigned long long *ctx)
{
	const struct nfs_client *client = (void *)ctx[0];
	struct outcome o = {};
	unsigned long state;
	struct peer peer;

	/* A client that is just being set up has no lease to lose. */
	if (!client || BPF_CORE_READ(client, cl_cons_state) != READY)
		return 0;
	state = BPF_CORE_READ(client, cl_state);
	if (state & LEASE_EXPIRED_BIT)
		o.operation = LEASE_LOST;
	else if (state & SESSION_RESET_BIT)
		o.operation = SESSION_LOST;
	else
		return 0;
	read_peer(&peer, (const void *)client + bpf_core_field_offset(struct nfs_client, cl_addr));
	happened(&o, &peer, 0, NULL, 0);
	return 0;
}

/* A call that had to wait gets a slot; the kernel calls this function for no other call. */
SEC("fentry/nfs41_assign_slot")
int fentry_slot(unsigned long long *ctx)
{
	const struct rpc_task *task = (void *)ctx[0];
	__u64 since = BPF_CORE_READ(task, tk_start);

	if (since && bpf_ktime_get_ns() - since >= STARVED_NS)
		tell_of_call(SLOT_STARVATION, task, since, 0);
	return 0;
}
