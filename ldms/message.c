/* What a message says of an incident: the fields of `plumbline incidents --json`, host and producer, and the verdict's reasons. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "incidents.h"

/* What goes first if it gets too long: the bundle has it all. */
static const char *const expendable[] = { "because", "observed", "mountpoint", "server" };
enum {
	EXPENDABLE = sizeof(expendable) / sizeof(expendable[0]),
};

/* A member of the object, or of an object in it; JSON's null if it is not there. */
static json_t *take(const json_t *object, const char *inner, const char *name)
{
	json_t *value = json_object_get(inner ? json_object_get(object, inner) : object, name);

	return value ? json_incref(value) : json_null();
}

static json_t *summary(const json_t *incident, const char *producer, const char *path)
{
	const json_t *mount = json_array_get(json_object_get(json_object_get(incident, "top"), "mounts"), 0);
	const struct {
		const char *name;
		const json_t *object;
		const char *inner;
		const char *source;
	} fields[] = {
		{ "id", incident, NULL, "id" },
		{ "host", incident, "host", "name" },
		{ "detected", incident, NULL, "detected" },
		{ "name", incident, "anomaly", "name" },
		{ "type", incident, "anomaly", "type" },
		{ "probe", incident, "anomaly", "probe" },
		{ "observed", incident, "anomaly", "observed" },
		{ "layer", incident, "verdict", "layer" },
		{ "confidence", incident, "verdict", "confidence" },
		{ "because", incident, "verdict", "because" },
		{ "operations", incident, NULL, "operations" },
		{ "mountpoint", mount, NULL, "mountpoint" },
		{ "server", mount, NULL, "server" },
		{ "closed", incident, NULL, "closed" },
	};
	json_t *message = json_object();

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		json_object_set_new(message, fields[i].name, take(fields[i].object, fields[i].inner, fields[i].source));
	json_object_set_new(message, "producer", json_string(producer));
	json_object_set_new(message, "path", json_string(path));
	return message;
}

char *incident_message(const char *incident, size_t length, const char *producer, const char *path)
{
	json_t *root = json_loadb(incident, length, 0, NULL);
	json_t *message = json_is_object(root) ? summary(root, producer, path) : NULL;
	char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;

	for (int i = 0; i < EXPENDABLE && text && strlen(text) >= MAX_MESSAGE; i++) {
		json_object_set_new(message, expendable[i], json_null());
		free(text);
		text = json_dumps(message, JSON_COMPACT);
	}
	if (text && strlen(text) >= MAX_MESSAGE) {
		free(text);
		text = NULL;
	}
	json_decref(message);
	json_decref(root);
	return text;
}
