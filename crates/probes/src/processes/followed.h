/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The processes that are followed, by their ids. */
#pragma once

#include "../bpf/kernel.h"

enum { MAX_FOLLOWED = 65536 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FOLLOWED);
	__type(key, __u32);
	__type(value, __u8);
} followed SEC(".maps");
