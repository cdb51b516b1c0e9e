/* The metric sets: see sets.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sets.h"

enum operation_metric {
	PROBE,
	OPERATION,
	MOUNT,
	MOUNTPOINT,
	SOURCE,
	FSTYPE,
	COUNT,
	SUM,
	BYTES,
	ERRORS,
	BUCKETS,
	SIZES,
};

_Static_assert(SIZES + 1 == OPERATION_METRICS, "a metric id each");

static struct ldms_metric_template_s operation_metrics[] = {
	[PROBE] = { "probe", 0, LDMS_V_CHAR_ARRAY, "", PROBE_LENGTH },
	[OPERATION] = { "operation", 0, LDMS_V_CHAR_ARRAY, "", OPERATION_LENGTH },
	[MOUNT] = { "mount", 0, LDMS_V_U64, "", 1 },
	[MOUNTPOINT] = { "mountpoint", 0, LDMS_V_CHAR_ARRAY, "", POINT_LENGTH },
	[SOURCE] = { "source", 0, LDMS_V_CHAR_ARRAY, "", SOURCE_LENGTH },
	[FSTYPE] = { "fstype", 0, LDMS_V_CHAR_ARRAY, "", TYPE_LENGTH },
	[COUNT] = { "count", 0, LDMS_V_U64, "operations", 1 },
	[SUM] = { "sum_ns", 0, LDMS_V_U64, "ns", 1 },
	[BYTES] = { "bytes", 0, LDMS_V_U64, "bytes", 1 },
	[ERRORS] = { "errors", 0, LDMS_V_U64, "operations", 1 },
	[BUCKETS] = { "buckets", 0, LDMS_V_U64_ARRAY, "operations", HISTOGRAM_BUCKETS },
	[SIZES] = { "sizes", 0, LDMS_V_U64_ARRAY, "operations", SIZE_BUCKETS },
	[OPERATION_METRICS] = {},
};

static struct ldms_metric_template_s probe_metrics[] = {
	{ "probe", 0, LDMS_V_CHAR_ARRAY, "", PROBE_LENGTH },   { "started", 0, LDMS_V_U64, "operations", 1 },
	{ "finished", 0, LDMS_V_U64, "operations", 1 },	       { "inflight_full", 0, LDMS_V_U64, "operations", 1 },
	{ "histograms_full", 0, LDMS_V_U64, "operations", 1 }, [PROBE_METRICS] = {},
};

/* Behind the name. */
static const enum counter probe_counters[PROBE_METRICS - 1] = {
	COUNT_STARTED,
	COUNT_FINISHED,
	COUNT_LOST_INFLIGHT,
	COUNT_LOST_HISTOGRAM,
};

int sets_create(struct sets *sets, base_data_t base)
{
	ldms_schema_t schema = base_schema_new(base);
	ldms_record_t operation, probe;

	if (!schema)
		return errno;
	operation = ldms_record_from_template("operation", operation_metrics, sets->operation_ids);
	probe = ldms_record_from_template("probe", probe_metrics, sets->probe_ids);
	if (!operation || !probe)
		return ENOMEM;
	sets->operation_size = ldms_record_heap_size_get(operation);
	sets->probes_size = MAX_PROBES * ldms_record_heap_size_get(probe);
	sets->operation_type = ldms_schema_record_add(schema, operation);
	sets->probe_type = ldms_schema_record_add(schema, probe);
	sets->generation = ldms_schema_metric_add(schema, "generation", LDMS_V_U32);
	sets->left_out = ldms_schema_metric_add(schema, "left_out", LDMS_V_U32);
	sets->operations = ldms_schema_metric_list_add(schema, "operations", NULL, FIRST_ROOM * sets->operation_size);
	sets->probes = ldms_schema_metric_list_add(schema, "probes", NULL, sets->probes_size);
	if (sets->operation_type < 0 || sets->probe_type < 0 || sets->generation < 0 || sets->left_out < 0 ||
	    sets->operations < 0 || sets->probes < 0)
		return ENOMEM;
	if (!base_set_new(base))
		return errno;
	sets->bases[0] = base;
	sets->count = 1;
	return 0;
}

/* Of all sets there are. */
static unsigned int room(const struct sets *sets)
{
	return FIRST_ROOM << (sets->count - 1);
}

/* One as large as all before: NAME.2, NAME.3... Returns whether there is one more. */
static int add_set(struct sets *sets)
{
	base_data_t base = malloc(sizeof(*base));

	if (!base)
		return 0;
	*base = *sets->bases[0];
	base->set = NULL;
	base->job_set = NULL;
	if (asprintf(&base->instance_name, "%s.%u", sets->bases[0]->instance_name, sets->count + 1) < 0)
		goto no_name;
	if (!base_set_new_heap(base, room(sets) * sets->operation_size + sets->probes_size))
		goto no_set;
	sets->bases[sets->count++] = base;
	return 1;
no_set:
	free(base->instance_name);
no_name:
	free(base);
	return 0;
}

void sets_delete(struct sets *sets)
{
	while (sets->count > 1) {
		base_data_t base = sets->bases[--sets->count];

		/* The rest is the first one's. */
		base_set_delete(base);
		if (base->job_set)
			ldms_set_put(base->job_set);
		free(base->instance_name);
		free(base);
	}
	base_set_delete(sets->bases[0]);
	base_del(sets->bases[0]);
}

/* Returns whether there was room for it. */
static int add_operation(const struct sets *sets, ldms_set_t set, const struct reading *reading, unsigned int i)
{
	static const struct named_operation unknown;
	static const struct label nowhere;
	const struct histogram_key *key = &reading->keys[i];
	const struct histogram *value = &reading->values[i];
	const struct label *label = labels_find(reading->labels, reading->label_count, key->mount);
	const struct named_operation *name = &unknown;
	const int *ids = sets->operation_ids;
	ldms_mval_t record = ldms_record_alloc(set, sets->operation_type);

	if (!record)
		return 0;
	if (key->probe < MAX_PROBES && key->operation < MAX_OPERATIONS)
		name = &reading->pins.names[key->probe * MAX_OPERATIONS + key->operation];
	if (!label)
		label = &nowhere;
	ldms_record_array_set_str(record, ids[PROBE], name->probe);
	ldms_record_array_set_str(record, ids[OPERATION], name->operation);
	ldms_record_set_u64(record, ids[MOUNT], key->mount);
	ldms_record_array_set_str(record, ids[MOUNTPOINT], label->mountpoint);
	ldms_record_array_set_str(record, ids[SOURCE], label->source);
	ldms_record_array_set_str(record, ids[FSTYPE], label->fstype);
	ldms_record_set_u64(record, ids[COUNT], value->count);
	ldms_record_set_u64(record, ids[SUM], value->sum);
	ldms_record_set_u64(record, ids[BYTES], value->bytes);
	ldms_record_set_u64(record, ids[ERRORS], value->errors);
	for (int bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
		ldms_record_array_set_u64(record, ids[BUCKETS], bucket, value->buckets[bucket]);
	for (int size = 0; size < SIZE_BUCKETS; size++)
		ldms_record_array_set_u64(record, ids[SIZES], size, value->sizes[size]);
	ldms_list_append_record(set, ldms_metric_get(set, sets->operations), record);
	return 1;
}

static void add_probe(const struct sets *sets, ldms_set_t set, const struct pins *pins, unsigned int probe)
{
	const struct named_operation *name = &pins->names[probe * MAX_OPERATIONS];
	ldms_mval_t record;

	/* A probe's numbers may have holes, the first too. */
	for (int i = 0; i < MAX_OPERATIONS - 1 && !name->probe[0]; i++)
		name++;
	record = name->probe[0] ? ldms_record_alloc(set, sets->probe_type) : NULL;
	if (!record)
		return;
	ldms_record_array_set_str(record, sets->probe_ids[0], name->probe);
	for (int i = 1; i < PROBE_METRICS; i++)
		ldms_record_set_u64(record, sets->probe_ids[i], pins_counter(pins, probe, probe_counters[i - 1]));
	ldms_list_append_record(set, ldms_metric_get(set, sets->probes), record);
}

unsigned int sets_fill(struct sets *sets, const struct reading *reading)
{
	unsigned int next = 0, left_out = 0;

	while (room(sets) < reading->count && sets->count < MOST_SETS && !sets->full)
		sets->full = !add_set(sets);
	if (room(sets) < reading->count)
		left_out = reading->count - room(sets);
	for (unsigned int i = 0; i < sets->count; i++) {
		ldms_set_t set = sets->bases[i]->set;
		unsigned int end = FIRST_ROOM << i; /* of all sets up to this one */

		base_sample_begin(sets->bases[i]);
		ldms_list_purge(set, ldms_metric_get(set, sets->operations));
		ldms_list_purge(set, ldms_metric_get(set, sets->probes));
		for (unsigned int probe = 0; i == 0 && reading->pins.names && probe < MAX_PROBES; probe++)
			add_probe(sets, set, &reading->pins, probe);
		for (; next < end && next < reading->count; next++)
			left_out += !add_operation(sets, set, reading, next);
		ldms_metric_set_u32(set, sets->generation, reading->pins.generation);
		ldms_metric_set_u32(set, sets->left_out, left_out);
		base_sample_end(sets->bases[i]);
	}
	return left_out;
}
