/* Reading a bundle (docs/formats.md): a tar.zst whose first entry is incident.json. */
#pragma once

#include <stddef.h>

enum {
	MAX_INCIDENT = 1 << 20, /* an incident.json is a few kilobytes */
};

/* The bundle's incident.json, to be freed by the caller; NULL and errno if there is none. */
char *bundle_incident(const char *path, size_t *length);
