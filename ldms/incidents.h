/* Incidents as LDMS messages: what is new or has changed in OUTPUT_DIR/incidents. */
#pragma once

#include <ovis_log/ovis_log.h>
#include <stddef.h>
#include <stdint.h>

enum {
	/*
	 * What InfiniBand and libfabric carry in one piece is 2 KiB, some 500 bytes of which are LDMS's own. A message of
	 * several pieces ends the ldmsd that receives it (4.5: __part_send() of ldms_msg.c sends the first one for ever).
	 */
	MAX_MESSAGE = 1400,
};

struct incidents {
	char *folder; /* NULL: nobody wants to know */
	const char *producer; /* of the sets: by it, a message is joined to their rows */
	int inotify; /* -1: the folder is not watched, or not yet */
	int last_error; /* why not; 0: not tried */
	uint32_t permissions; /* of the messages */
	ovis_log_t log;
};

/* Begins to watch the folder. What is in it already is not told; if there is none yet, all that it will hold is. */
void incidents_watch(struct incidents *incidents);
void incidents_close(struct incidents *incidents);

/* Publishes a message for each bundle that was written since the last call. */
void incidents_publish(struct incidents *incidents);

/*
 * What an incident.json, published by `producer` and found at `path`, comes to in fewer than MAX_MESSAGE bytes, to be freed by
 * the caller; NULL if it is none.
 */
char *incident_message(const char *incident, size_t length, const char *producer, const char *path);
