/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Whether something happens in the daemon's network namespace. */
#pragma once

#include "../bpf/observe.h"

/* The inode number of the daemon's network namespace; the mounts are assumed to be in the same. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} own_namespace SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

struct possible_net {
	struct net *net;
};

struct net_device___namespace {
	struct possible_net nd_net;
};

#pragma clang attribute pop

/* The namespace's inode number; 0 if it is not known. */
static __always_inline __u32 own_number(void)
{
	__u32 zero = 0, *own = bpf_map_lookup_elem(&own_namespace, &zero);

	return own ? *own : 0;
}

static __always_inline bool is_own(const struct net *net)
{
	__u32 own = own_number();

	return own && BPF_CORE_READ(net, ns.inum) == own;
}
