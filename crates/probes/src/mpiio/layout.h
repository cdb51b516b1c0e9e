/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What of an MPI library's own structures is read: how many bytes an operation moved, and how large a datatype is.
 *
 * Open MPI 1.8 to 5: ompi_status_public_t is four ints and `size_t _ucount`; opal_datatype_t has `size_t size` behind an
 * object header of 16 bytes and 8 bytes of flags (opal/datatype/opal_datatype.h).
 * MPICH 3 and later, and what shares its binary interface (Intel MPI, MVAPICH2, Cray MPICH): MPI_Status begins with
 * count_lo and count_hi_and_cancelled; a handle of a datatype of the language's own has its size in bits 8 to 15.
 */
#pragma once

#include "../bpf/kernel.h"

/* From user space, which knows by a library's symbols whose it is. */
enum layout { LAYOUT_UNKNOWN, LAYOUT_OPEN_MPI, LAYOUT_MPICH };

/* Whether the application wants no status: MPI_STATUS_IGNORE is 0 in Open MPI and 1 in MPICH. */
static __always_inline bool is_ignored(__u64 status)
{
	return status <= 1;
}

static __always_inline bool bytes_of_status(enum layout layout, __u64 status, __u64 *bytes)
{
	__u32 count[2]; /* count_lo, count_hi_and_cancelled */

	if (layout == LAYOUT_OPEN_MPI)
		return !bpf_probe_read_user(bytes, sizeof(*bytes), (void *)status + 16);
	if (layout != LAYOUT_MPICH || bpf_probe_read_user(count, sizeof(count), (void *)status))
		return false;
	*bytes = (__u64)(count[1] >> 1) << 32 | count[0];
	return true;
}

/* The bytes of one element that are data: a datatype's size, not its extent. */
static __always_inline bool size_of_datatype(enum layout layout, __u64 datatype, __u64 *size)
{
	if (layout == LAYOUT_OPEN_MPI)
		return !bpf_probe_read_user(size, sizeof(*size), (void *)datatype + 24);
	/* The highest two bits say what a handle is of: 1, of the language's own. Where others are is known to MPICH only. */
	if (layout != LAYOUT_MPICH || (__u32)datatype >> 30 != 1)
		return false;
	*size = datatype >> 8 & 0xff;
	return true;
}

/* What a return takes from the stack. */
#if defined(__TARGET_ARCH_x86)
#define RETURN_POPS 8
#else
#define RETURN_POPS 0
#endif
