/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What user space has seen an interface drop between two looks at its counters. */
#pragma once

#include <linux/types.h>

struct interface_drops {
	__u64 since; /* the look before, ns of CLOCK_MONOTONIC */
	__u32 packets;
	__u32 status; /* of INTERFACE_DROPS in mod.rs */
	__u8 server[20]; /* struct peer: one that the interface leads to */
	char interface[16]; /* its name, which ends with a NUL */
	__u32 reserved;
};
