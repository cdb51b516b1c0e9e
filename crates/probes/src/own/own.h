/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How the programs of an operation of the site's own find its values: read-only data, which user space derives from the
 * operation's definition. */
#pragma once

#include <linux/types.h>

enum {
	OWN_STEPS = 8, /* pointers that a value is reached by */
	OWN_KEYS = 2, /* values that pair a beginning with its end */
};

/* Where a value comes from. */
enum own_from {
	OWN_NOTHING,
	OWN_ARGUMENT, /* of the hook */
	OWN_FIELD, /* of a tracepoint's record */
	OWN_RETURN, /* what the function returns */
	OWN_THREAD, /* the id of the thread */
};

/* Where a value is. */
struct own_place {
	__u32 from; /* enum own_from */
	__u32 number; /* of the argument, or the field's offset */
	__u32 steps; /* of `offset` in use: each but the last leads from a pointer to a pointer, the last to the value */
	__u32 size; /* of the value, bytes: 1, 2, 4 or 8 */
	__u32 is_signed;
	__u32 at_end; /* taken when the operation ends, else when it begins */
	__u32 offset[OWN_STEPS];
};

/* An operation. */
struct own_plan {
	struct own_place begin_key[OWN_KEYS];
	struct own_place end_key[OWN_KEYS];
	struct own_place bytes;
	struct own_place status; /* signed: below zero is an errno; else: any but zero is a failure */
	struct own_place mount; /* the kernel's device number */
	struct own_place file; /* its address; size 0: in the process, else in the kernel */
	__u32 probe;
	__u32 operation;
	__u32 by_thread; /* a thread ends what it began */
	__u32 keeps_arguments; /* the end hook is the return of the begin hook's function, without its arguments */
};
