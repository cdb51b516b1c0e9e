/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which mount an NFS call belongs to. Each mounted superblock has an rpc_clnt of its own, a clone of its server's. So the
 * mount is found once for each client, by walking NFS's superblocks. Calls by the server's own client (leases, sessions,
 * pNFS data) belong to no single mount and are named by the server.
 */
#pragma once

#include "../bpf/names.h"
#include "../bpf/spread.h"
#include "sunrpc.h"

enum { MAX_SUPERBLOCKS = 16384, MAX_CLIENTS = 16384 };

/* A client without a superblock is one that is being mounted: it is looked for again. */
#define LOOK_AGAIN_NS 100000000ULL

/* Addresses of nfs4_fs_type and nfs_fs_type, the types of file systems on which all their superblocks hang. User space asks the kernel
 * for them before the object is loaded; 0 where it may not be told. */
const volatile __u64 filesystem_types[2] SEC(".rodata.types") = {};

struct client {
	__u64 mount;
	__u64 until; /* 0: for good */
};

/* By address of the rpc_clnt, until that is freed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_CLIENTS);
	__type(key, __u64);
	__type(value, struct client);
} clients SEC(".maps");

enum { KNOWN_BITS = 8 };

/*
 * Clients whose mount will not change, at the index that their address gives, if that was free: a lookup here takes a fifth of the
 * time. A client keeps its index until it is freed, so no call sees the mount of another client.
 */
struct known_client {
	__u64 client; /* 0: free; 1: it is only being filled in */
	__u64 mount;
	__u64 version;
} known_clients[1 << KNOWN_BITS];

static __always_inline struct known_client *place_of(__u64 client)
{
	return &known_clients[spread(client, KNOWN_BITS)];
}

static __always_inline const struct known_client *known_client(const struct rpc_clnt *client)
{
	const struct known_client *place = place_of((__u64)client);

	if (!client || place->client != (__u64)client)
		place = NULL;
	/* Without this, the compiler would compare the addresses once more instead of comparing `place` with NULL, and the verifier only
	 * understands the latter. */
	barrier_var(place);
	return place;
}

static __always_inline void forget_client(__u64 client)
{
	struct known_client *place = place_of(client);

	if (place->client == client)
		__sync_lock_test_and_set(&place->client, 0);
	bpf_map_delete_elem(&clients, &client);
}

struct superblock_search {
	__u64 node; /* s_instances of the superblock to be looked at */
	__u64 client;
	__u64 device; /* 0: not found */
};

static long match_superblock(__u32 index, void *context)
{
	struct superblock_search *search = context;
	struct super_block___nfs *sb;
	struct nfs_server *server;

	if (!search->node)
		return 1;
	sb = (void *)(search->node - bpf_core_field_offset(struct super_block___nfs, s_instances));
	server = BPF_CORE_READ(sb, s_fs_info);
	if (server && (__u64)BPF_CORE_READ(server, client) == search->client) {
		search->device = BPF_CORE_READ(sb, s_dev);
		return 1;
	}
	search->node = (__u64)BPF_CORE_READ(sb, s_instances.next);
	return 0;
}

static __always_inline __u64 device_of(__u64 client, __u64 type)
{
	const struct file_system_type___supers *superblocks = (const void *)type;
	struct superblock_search search = { .client = client };

	if (!type)
		return 0;
	search.node = (__u64)BPF_CORE_READ(superblocks, fs_supers.first);
	bpf_loop(MAX_SUPERBLOCKS, match_superblock, &search, 0);
	return search.device;
}

/* "server:", as a source begins with it. */
static __always_inline __u64 name_server(struct rpc_clnt *client)
{
	__u32 zero = 0;
	struct mount_name *name = bpf_map_lookup_elem(&name_scratch, &zero);
	struct rpc_xprt *transport = BPF_CORE_READ(client, cl_xprt);
	__u64 mount;
	long length;

	if (!name)
		return 0;
	__builtin_memset(name, 0, sizeof(*name));
	length = bpf_probe_read_kernel_str(name->source, SOURCE_LENGTH - 1, BPF_CORE_READ(transport, servername));
	if (length > 0 && length < SOURCE_LENGTH)
		name->source[length - 1] = ':';
	name->connection = BPF_CORE_READ(transport, id);
	read_address(name, (char *)transport + bpf_core_field_offset(struct rpc_xprt, addr));
	mount = source_key(name);
	return bpf_map_update_elem(&mount_names, &mount, name, BPF_ANY) ? 0 : mount;
}

/* The slow path, taken once for each client. */
static __noinline __u64 find_mount(struct rpc_clnt *client)
{
	__u64 key = (__u64)client;
	struct client found = {};

	if (BPF_CORE_READ(client, cl_parent) != client) {
		found.mount = device_of(key, filesystem_types[0]);
		if (!found.mount)
			found.mount = device_of(key, filesystem_types[1]);
		if (!found.mount)
			found.until = bpf_ktime_get_ns() + LOOK_AGAIN_NS;
	}
	if (!found.mount)
		found.mount = name_server(client);
	bpf_map_update_elem(&clients, &key, &found, BPF_ANY);
	return found.mount;
}

/* For a client that is not among the known ones yet, or has no place there. */
static __always_inline __u64 mount_of(struct rpc_clnt *client, __u64 version)
{
	__u64 key = (__u64)client;
	struct known_client *place = place_of(key);
	struct client *of = bpf_map_lookup_elem(&clients, &key);

	if (!of || (of->until && bpf_ktime_get_ns() >= of->until))
		return find_mount(client);
	if (!of->until && !__sync_val_compare_and_swap(&place->client, 0, 1)) {
		place->mount = of->mount;
		place->version = version;
		__sync_lock_test_and_set(&place->client, key);
	}
	return of->mount;
}
