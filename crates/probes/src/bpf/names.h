/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Naming what a hashed mount key stands for, in the mount_names map. */
#pragma once

#include "maps.h"

/*
 * Too large for the stack. Safe from a second task on this CPU, whose run of the same program is refused meanwhile: in tracepoints,
 * fentry and kprobes, not in uprobes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mount_name);
} name_scratch SEC(".maps");

/*
 * FNV-1a of the source, slashes as backslashes and letters lower-cased, with bit 63 set: model's MountKey::source. Global, so that the
 * verifier looks at the loop once.
 */
__noinline __u64 source_key(const struct mount_name *name)
{
	__u64 hash = 0xcbf29ce484222325;

	if (!name)
		return 0;
	for (int i = 0; i < SOURCE_LENGTH; i++) {
		__u8 byte = name->source[i];

		if (!byte)
			break;
		if (byte == '/')
			byte = '\\';
		if (byte >= 'A' && byte <= 'Z')
			byte |= 0x20;
		hash = (hash ^ byte) * 0x100000001b3;
	}
	return hash | 1ULL << 63;
}

/* Where a server listens: struct sockaddr_in is family, port, address; struct sockaddr_in6 family, port, flow, address. */
static __always_inline void read_address(struct mount_name *name, const void *address)
{
	bpf_probe_read_kernel(&name->family, 4, address);
	bpf_probe_read_kernel(name->address, sizeof(name->address),
			      address + (name->family == 10 /* AF_INET6 */ ? 8 : 4));
}
