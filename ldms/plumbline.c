/*
 * An LDMS sampler of what Plumbline's daemon has pinned, and its incidents as LDMS messages. docs/ldms.md describes both.
 * This file is the plugin's interface; sets.h has the metric sets, pins.h the maps.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "incidents.h"
#include "sets.h"

static const char SCHEMA[] = "plumbline";
static const char DEFAULT_PINS[] = "/sys/fs/bpf/plumbline";

enum {
	DEFAULT_PERMISSIONS = 0440, /* of messages */
};

struct plumbline {
	ovis_log_t log;
	char *folder; /* of the pins */
	struct sets sets;
	struct reading reading;
	struct incidents incidents;
	char said[768]; /* what was wrong last; not repeated */
};

static const char *usage(ldmsd_plug_handle_t handle)
{
	return "config name=<name> " BASE_CONFIG_SYNOPSIS "       [pins=<path>] [incidents=<path>]\n" BASE_CONFIG_DESC
	       "    pins         Where the daemon pins its maps, default /sys/fs/bpf/plumbline\n"
	       "    incidents    The daemon's OUTPUT_DIR/incidents: what is new there becomes a message of the "
	       "channel\n"
	       "                 'plumbline'. Without it, there are no messages\n";
}

static char *value_of(struct attr_value_list *values, const char *name, const char *otherwise)
{
	const char *value = av_value(values, name);

	value = value && value[0] ? value : otherwise;
	return value ? strdup(value) : NULL;
}

static int config(ldmsd_plug_handle_t handle, struct attr_value_list *keywords, struct attr_value_list *values)
{
	struct plumbline *p = ldmsd_plug_ctxt_get(handle);
	const char *name = ldmsd_plug_cfg_name_get(handle);
	base_data_t base;
	int error;

	if (p->sets.count) {
		ovis_log(p->log, OVIS_LERROR, "%s is configured already\n", name);
		return EINVAL;
	}
	base = base_config(values, name, SCHEMA, p->log);
	if (!base)
		return errno ? errno : EINVAL;
	p->folder = value_of(values, "pins", DEFAULT_PINS);
	error = p->folder ? sets_create(&p->sets, base) : ENOMEM;
	if (error) {
		ovis_log(p->log, OVIS_LERROR, "cannot make a metric set: %s\n", strerror(error));
		base_del(base);
		free(p->folder);
		p->folder = NULL;
		return error;
	}
	p->incidents.folder = value_of(values, "incidents", NULL);
	p->incidents.producer = base->producer_name;
	p->incidents.permissions = base->auth.perm_is_set ? base->auth.perm : DEFAULT_PERMISSIONS;
	if (p->incidents.folder)
		incidents_watch(&p->incidents);
	return 0;
}

/* What is wrong is told once, not with each sample. */
static void tell(struct plumbline *p, const char *why)
{
	if (strcmp(p->said, why) == 0)
		return;
	if (why[0])
		ovis_log(p->log, OVIS_LERROR, "%s\n", why);
	else
		ovis_log(p->log, OVIS_LINFO, "all is well again\n");
	strcpy(p->said, why);
}

/* What is pinned now: nothing, if no daemon runs. */
static void take(struct reading *reading, const char *folder, char *why, size_t size)
{
	int count = 0;

	if (pins_open(&reading->pins, folder, why, size) == 0)
		count = pins_histograms(&reading->pins, reading->keys, reading->values);
	if (count < 0) {
		snprintf(why, size, "cannot read %s/histograms: %s", folder, strerror(-count));
		pins_close(&reading->pins);
		count = 0;
	}
	reading->count = count;
	reading->label_count = labels_read(reading->labels, reading->keys, count, &reading->pins);
}

static int sample(ldmsd_plug_handle_t handle)
{
	struct plumbline *p = ldmsd_plug_ctxt_get(handle);
	char why[sizeof(p->said)] = "";

	if (!p->sets.count)
		return EINVAL;
	incidents_publish(&p->incidents);
	take(&p->reading, p->folder, why, sizeof(why));
	if (sets_fill(&p->sets, &p->reading))
		snprintf(why, sizeof(why),
			 "there is no room for all records: start ldmsd with more memory, such as -m 16M");
	pins_close(&p->reading.pins);
	tell(p, why);
	return 0;
}

static int constructor(ldmsd_plug_handle_t handle)
{
	struct plumbline *p = calloc(1, sizeof(*p));

	if (!p)
		return ENOMEM;
	p->log = p->incidents.log = ldmsd_plug_log_get(handle);
	p->incidents.inotify = -1;
	ldmsd_plug_ctxt_set(handle, p);
	return 0;
}

static void destructor(ldmsd_plug_handle_t handle)
{
	struct plumbline *p = ldmsd_plug_ctxt_get(handle);

	incidents_close(&p->incidents);
	if (p->sets.count)
		sets_delete(&p->sets);
	free(p->incidents.folder);
	free(p->folder);
	free(p);
}

struct ldmsd_sampler ldmsd_plugin_interface = {
	.base = {
		.type = LDMSD_PLUGIN_SAMPLER,
		.flags = LDMSD_PLUGIN_MULTI_INSTANCE,
		.config = config,
		.usage = usage,
		.constructor = constructor,
		.destructor = destructor,
	},
	.sample = sample,
};
