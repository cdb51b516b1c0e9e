/* Plumbline's pinned maps, read with bpf(2) alone. What they hold is defined once, in the probes' event.h. */
#pragma once

#include <stddef.h>

#include "../crates/probes/src/bpf/event.h"

/* Open for one reading: a daemon that starts anew, or reloads, pins other maps. */
struct pins {
	int histograms;
	int mount_names;
	int counters;
	const struct named_operation *names; /* ALL_OPERATIONS of them */
	__u32 generation; /* the kernel's id of the histograms: another one means that all counts began anew */
};

/* Returns 0, or an errno; `why` then says what was tried, what happened and what to do. */
int pins_open(struct pins *pins, const char *folder, char *why, size_t size);
void pins_close(struct pins *pins);

/* Reads up to MAX_HISTOGRAMS histograms. Returns how many, or a negative errno. */
int pins_histograms(const struct pins *pins, struct histogram_key *keys, struct histogram *values);

/* What SMB or NFS name by the hashed key of a mount. Returns whether it is known. */
int pins_mount_name(const struct pins *pins, __u64 mount, struct mount_name *name);

/* A probe's counter, summed over the CPUs. */
__u64 pins_counter(const struct pins *pins, unsigned int probe, enum counter which);
