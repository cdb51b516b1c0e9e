/* Incidents as LDMS messages: see incidents.h. A bundle appears, whole, by being renamed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ldms/ldms.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "bundle.h"
#include "incidents.h"

static const char CHANNEL[] = "plumbline";
static const char SUFFIX[] = ".tar.zst";

enum {
	MOST = 256, /* different bundles in one round: the daemon makes one for an outage, and updates it */
};

/* The names of this round's bundles, each once however often it was written. */
struct names {
	char *all[MOST];
	unsigned int count, left_out;
};

static void add(struct names *names, const char *name)
{
	size_t length = strlen(name), suffix = sizeof(SUFFIX) - 1;

	if (name[0] == '.' || length <= suffix || strcmp(name + length - suffix, SUFFIX) != 0)
		return;
	for (unsigned int i = 0; i < names->count; i++) {
		if (strcmp(names->all[i], name) == 0)
			return;
	}
	if (names->count < MOST && (names->all[names->count] = strdup(name)))
		names->count++;
	else
		names->left_out++;
}

void incidents_watch(struct incidents *incidents)
{
	int error = 0;

	incidents->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (incidents->inotify < 0 ||
	    inotify_add_watch(incidents->inotify, incidents->folder, IN_MOVED_TO | IN_ONLYDIR) < 0) {
		error = errno;
		incidents_close(incidents);
	}
	if (error && error != ENOENT && error != incidents->last_error)
		ovis_log(incidents->log, OVIS_LERROR, "no messages of incidents: cannot watch %s: %s\n",
			 incidents->folder, strerror(error));
	incidents->last_error = error;
}

void incidents_close(struct incidents *incidents)
{
	if (incidents->inotify >= 0)
		close(incidents->inotify);
	incidents->inotify = -1;
}

static void list(const char *folder, struct names *names)
{
	DIR *opened = opendir(folder);
	struct dirent *entry;

	while (opened && (entry = readdir(opened)))
		add(names, entry->d_name);
	if (opened)
		closedir(opened);
}

/* Returns whether the folder itself is gone. */
static int read_events(int inotify, struct names *names)
{
	char buffer[1 << 14] __attribute__((aligned(__alignof__(struct inotify_event))));
	int gone = 0;
	ssize_t got;

	while ((got = read(inotify, buffer, sizeof(buffer))) > 0) {
		const struct inotify_event *event;

		for (char *at = buffer; at < buffer + got; at += sizeof(*event) + event->len) {
			event = (const struct inotify_event *)at;
			gone |= !!(event->mask & IN_IGNORED);
			names->left_out += !!(event->mask & IN_Q_OVERFLOW);
			if (event->len)
				add(names, event->name);
		}
	}
	return gone;
}

static void publish(const struct incidents *incidents, const char *name)
{
	char path[PATH_MAX];
	size_t length = 0;
	char *incident, *message = NULL;
	int error = 0;

	snprintf(path, sizeof(path), "%s/%s", incidents->folder, name);
	incident = bundle_incident(path, &length);
	if (!incident)
		error = errno;
	else if (!(message = incident_message(incident, length, incidents->producer, path)))
		error = EBADMSG;
	else
		error = ldms_msg_publish(NULL, CHANNEL, LDMS_MSG_JSON, NULL, incidents->permissions, message,
					 strlen(message) + 1);
	if (error == ENOTSUP)
		ovis_log(incidents->log, OVIS_LERROR, "no message of %s: ldmsd's configuration lacks msg_enable\n",
			 path);
	else if (error && error != ENOENT) /* retention may have been faster */
		ovis_log(incidents->log, OVIS_LERROR, "no message of %s: %s\n", path, strerror(error));
	free(message);
	free(incident);
}

void incidents_publish(struct incidents *incidents)
{
	struct names names = {};

	if (!incidents->folder)
		return;
	if (incidents->inotify < 0) {
		incidents_watch(incidents);
		/* It was not there when we came, so all that it holds is new. */
		if (incidents->inotify >= 0)
			list(incidents->folder, &names);
	}
	if (incidents->inotify >= 0 && read_events(incidents->inotify, &names))
		incidents_close(incidents);
	for (unsigned int i = 0; i < names.count; i++) {
		publish(incidents, names.all[i]);
		free(names.all[i]);
	}
	if (names.left_out)
		ovis_log(incidents->log, OVIS_LERROR, "some incidents became no message: too many at once\n");
}
