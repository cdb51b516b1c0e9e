/* The metric sets: a record for each probe, operation and mount, and one for each probe. docs/ldms.md describes them. */
#pragma once

#include <ldms/ldms.h>
#include <ldms/ldmsd.h>
#include <ldms/sampler/sampler_base.h>

#include "labels.h"
#include "pins.h"

enum {
	FIRST_ROOM = 64, /* records in the first set */
	MOST_SETS = 7, /* each further one is as large as all before it */
	OPERATION_METRICS = 12,
	PROBE_METRICS = 5,
};

_Static_assert(FIRST_ROOM << (MOST_SETS - 1) == MAX_HISTOGRAMS, "all records find room");

/* What was pinned at one moment. As large as can be: what is never used of it costs no memory. */
struct reading {
	struct pins pins;
	unsigned int count; /* of keys, and of values */
	unsigned int label_count;
	struct histogram_key keys[MAX_HISTOGRAMS];
	struct histogram values[MAX_HISTOGRAMS];
	struct label labels[MAX_HISTOGRAMS];
};

/*
 * A set's size is fixed. To replace it by a larger one of its name is what LDMS offers, but an ldmsd that collects it may lose
 * it (4.5), and the one that has it may crash (main of August 2026: __ldms_dir_del_set() uses what it has freed). So what
 * finds no room goes to a further set, and none is ever deleted.
 */
struct sets {
	base_data_t bases[MOST_SETS]; /* the first has what all share */
	unsigned int count;
	int full; /* a set could not be made: ldmsd has no memory for it, and will have none */
	int generation, left_out, operations, probes; /* metrics */
	int operation_type, probe_type;
	int operation_ids[OPERATION_METRICS], probe_ids[PROBE_METRICS];
	size_t operation_size, probes_size; /* in a set's heap: of one record; of all probes' */
};

/* Makes the first set. Returns 0 or an errno; `base` remains the caller's then. */
int sets_create(struct sets *sets, base_data_t base);
void sets_delete(struct sets *sets);

/* One transaction in each set. Returns how many records found no room. */
unsigned int sets_fill(struct sets *sets, const struct reading *reading);
