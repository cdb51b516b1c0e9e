/* What the mounts in the histograms' keys are called: from mountinfo and the kernel side's names. No mount is touched. */
#pragma once

#include "pins.h"

enum {
	TYPE_LENGTH = 32,
	POINT_LENGTH = 256,
};

/* As mountinfo writes them, so a space is \040; cut where they are too long. Empty: not known here. */
struct label {
	__u64 mount;
	char mountpoint[POINT_LENGTH];
	char source[SOURCE_LENGTH];
	char fstype[TYPE_LENGTH];
};

/* Fills in a label for each mount that the keys name, in order of the mounts. Returns how many. */
unsigned int labels_read(struct label *labels, const struct histogram_key *keys, unsigned int count,
			 const struct pins *pins);

/* The label of a mount that one of the keys named. */
const struct label *labels_find(const struct label *labels, unsigned int count, __u64 mount);
