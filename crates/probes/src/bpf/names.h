/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Hashed mount keys, and the map mount_names, which says what they stand for. */
#pragma once

#include "maps.h"

/*
 * A mount_name is too large for the stack. One for each CPU is safe in tracepoints, fentry and kprobes: if a task is
 * preempted here, the kernel does not run the same program for another task on this CPU. It is not safe in uprobes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mount_name);
} name_scratch SEC(".maps");

struct source_hash {
	const struct mount_name *name;
	__u64 hash;
};

static long hash_byte(__u32 index, void *context)
{
	struct source_hash *of = context;
	__u8 byte;

	if (index >= SOURCE_LENGTH)
		return 1;
	byte = of->name->source[index];
	if (!byte)
		return 1;
	if (byte == '/')
		byte = '\\';
	if (byte >= 'A' && byte <= 'Z')
		byte |= 0x20;
	of->hash = (of->hash ^ byte) * 0x100000001b3;
	return 0;
}

/*
 * The key of a source: FNV-1a of it with slashes as backslashes and letters in lower case, with bit 63 set. Twin of
 * model's MountKey::source. Global, so that the verifier checks it once.
 */
__noinline __u64 source_key(const struct mount_name *name)
{
	struct source_hash of = { .name = name, .hash = 0xcbf29ce484222325 };

	if (!name)
		return 0;
	bpf_loop(SOURCE_LENGTH, hash_byte, &of, 0);
	return of.hash | 1ULL << 63;
}

/* Reads a server's struct sockaddr_in (family, port, address) or sockaddr_in6 (family, port, flow, address). */
static __always_inline void read_address(struct mount_name *name, const void *address)
{
	bpf_probe_read_kernel(&name->family, 4, address);
	bpf_probe_read_kernel(name->address, sizeof(name->address),
			      address + (name->family == 10 /* AF_INET6 */ ? 8 : 4));
}
