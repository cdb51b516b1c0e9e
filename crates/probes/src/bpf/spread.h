/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A place in a table for a kernel object. */
#pragma once

/*
 * The place of an object among 2^bits, by the low half of its address. The allocator hands out objects at multiples of their size: the
 * multiplication spreads them. The verifier allows no arithmetic on a value that it knows to be a pointer. A copy of its low half is a
 * number to the verifier. The copy is in assembly, since the compiler would remove it.
 */
static __always_inline __u32 spread(__u64 address, __u32 bits)
{
	__u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)address));
	return low * 0x9e3779b1U >> (32 - bits);
}
