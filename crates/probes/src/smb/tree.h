/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which mount an SMB command belongs to. A mid knows its connection and, in its header, session and tree. The name
 * that belongs to these is found once by walking the client's lists. It is stored under its hash for user space to
 * read.
 */
#pragma once

#include "../bpf/names.h"
#include "cifs.h"

/* Far more than exist; the walks end where the lists end. Multiuser mounts have a session for each user. */
enum { MAX_SESSIONS = 4096, MAX_TREES = 4096, TREELESS = 0 };

struct tree_key {
	__u64 connection;
	__u64 session;
	__u32 tree;
	__u32 generation;
};

/* Grows with every tree that is connected: then, what was known of trees may be wrong. */
__u32 tree_generation;

/* Known trees; the LRU map evicts old ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct tree_key);
	__type(value, __u64);
} trees SEC(".maps");

struct tree_search {
	__u64 head; /* of the list being walked */
	__u64 at;
	__u64 session;
	__u64 found; /* struct cifs_tcon */
	__u32 tree;
};

static __always_inline __u64 next_of(__u64 node)
{
	return (__u64)BPF_CORE_READ((struct list_head *)node, next);
}

static long match_tree(__u32 index, void *context)
{
	struct tree_search *search = context;
	struct cifs_tcon *tcon;

	search->at = next_of(search->at);
	if (!search->at || search->at == search->head)
		return 1;
	tcon = (void *)(search->at - bpf_core_field_offset(struct cifs_tcon, tcon_list));
	if (BPF_CORE_READ(tcon, tid) != search->tree)
		return 0;
	search->found = (__u64)tcon;
	return 1;
}

static long match_session(__u32 index, void *context)
{
	struct tree_search *sessions = context;
	struct tree_search trees_of = { .tree = sessions->tree };
	struct cifs_tcon *ipc;
	struct cifs_ses *ses;

	sessions->at = next_of(sessions->at);
	if (!sessions->at || sessions->at == sessions->head)
		return 1;
	ses = (void *)(sessions->at - bpf_core_field_offset(struct cifs_ses, smb_ses_list));
	if (BPF_CORE_READ(ses, Suid) != sessions->session)
		return 0;
	ipc = BPF_CORE_READ(ses, tcon_ipc);
	if (ipc && BPF_CORE_READ(ipc, tid) == sessions->tree) {
		sessions->found = (__u64)ipc;
		return 1;
	}
	trees_of.head = trees_of.at = (__u64)ses + bpf_core_field_offset(struct cifs_ses, tcon_list);
	bpf_loop(MAX_TREES, match_tree, &trees_of, 0);
	sessions->found = trees_of.found;
	return 1;
}

/* The slow path, once per tree and connection. Returns 0 if the tree cannot be found (it has just gone). */
static __noinline __u64 name_tree(struct TCP_Server_Info *server, const struct tree_key *key)
{
	__u32 zero = 0;
	struct mount_name *name = bpf_map_lookup_elem(&name_scratch, &zero);
	struct TCP_Server_Info *primary;
	struct tree_search search;
	__u64 mount;

	if (!name || !key)
		return 0;
	__builtin_memset(name, 0, sizeof(*name));
	if (key->tree == TREELESS) {
		name->source[0] = name->source[1] = '\\';
		bpf_probe_read_kernel_str(name->source + 2, SOURCE_LENGTH - 2, BPF_CORE_READ(server, hostname));
	} else {
		primary = BPF_CORE_READ(server, primary_server);
		search = (struct tree_search){ .session = key->session, .tree = key->tree };
		search.head = search.at =
			(__u64)(primary ?: server) + bpf_core_field_offset(struct TCP_Server_Info, smb_ses_list);
		bpf_loop(MAX_SESSIONS, match_session, &search, 0);
		if (!search.found)
			return 0;
		bpf_probe_read_kernel_str(name->source, SOURCE_LENGTH,
					  (char *)search.found + bpf_core_field_offset(struct cifs_tcon, tree_name));
	}
	name->connection = key->connection;
	read_address(name, (char *)server + bpf_core_field_offset(struct TCP_Server_Info, dstaddr));
	mount = source_key(name);
	if (!bpf_map_update_elem(&mount_names, &mount, name, BPF_ANY))
		bpf_map_update_elem(&trees, key, &mount, BPF_ANY);
	return mount;
}

static __always_inline __u64 mount_of(struct TCP_Server_Info *server, const struct tree_key *key)
{
	__u64 *known = bpf_map_lookup_elem(&trees, key);

	return known ? *known : name_tree(server, key);
}
