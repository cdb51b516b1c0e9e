/* What mounts are called: see labels.h. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "labels.h"

static const __u64 HASHED = 1ULL << 63; /* of a key that is no device number */

/* One line of proc_pid_mountinfo(5). */
struct mount {
	__u64 device;
	char *point;
	char *fstype;
	char *source;
};

static int by_mount(const void *one, const void *other)
{
	__u64 a = ((const struct label *)one)->mount, b = ((const struct label *)other)->mount;

	return a < b ? -1 : a > b;
}

const struct label *labels_find(const struct label *labels, unsigned int count, __u64 mount)
{
	const struct label wanted = { .mount = mount };

	return bsearch(&wanted, labels, count, sizeof(*labels), by_mount);
}

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* What the kernel says of a hashed key: \\server\share and \\server of SMB, server: of NFS. */
static void name_hashed(struct label *label, const struct pins *pins)
{
	struct mount_name name;

	if (!pins_mount_name(pins, label->mount, &name))
		return;
	copy(label->fstype, sizeof(label->fstype), name.source[0] == '\\' ? "cifs" : "nfs");
	copy(label->source, sizeof(label->source), name.source);
	for (char *c = label->source; *c; c++) {
		if (*c == '\\')
			*c = '/';
	}
}

static int parse(char *line, struct mount *mount)
{
	unsigned int major, minor;
	int at = 0;
	char *rest = strstr(line, " - "); /* there is no other: spaces in names are \040 */

	if (!rest || sscanf(line, "%*u %*u %u:%u %*s %n", &major, &minor, &at) != 2 || !at)
		return 0;
	mount->device = (__u64)major << 20 | minor;
	rest += 3;
	mount->point = line + at;
	strsep(&mount->point, " ");
	mount->point = line + at;
	mount->fstype = strsep(&rest, " ");
	mount->source = strsep(&rest, " ");
	return mount->source != NULL;
}

/* The share of //server/share/folder is that of all its folders. */
static int is_of_share(const char *source, const char *share)
{
	size_t length = strlen(share);

	return strncasecmp(source, share, length) == 0 && (source[length] == '\0' || source[length] == '/');
}

/* The first mount of a superblock, or of a share, names it: later ones are bind mounts more often than not. */
static void tell(struct label *label, const struct mount *mount)
{
	if (label->mountpoint[0])
		return;
	copy(label->mountpoint, sizeof(label->mountpoint), mount->point);
	copy(label->source, sizeof(label->source), mount->source);
	copy(label->fstype, sizeof(label->fstype), mount->fstype);
}

static void read_mountinfo(struct label *labels, unsigned int count)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t size = 0;
	struct mount mount;

	if (!file)
		return;
	while (getline(&line, &size, file) > 0) {
		struct label *label;

		if (!parse(line, &mount))
			continue;
		label = (struct label *)labels_find(labels, count, mount.device);
		if (label)
			tell(label, &mount);
		if (strcmp(mount.fstype, "cifs") != 0 && strcmp(mount.fstype, "smb3") != 0)
			continue;
		for (label = labels; label < labels + count; label++) {
			/* A server's own key, //server, is that of no share. */
			if (label->mount & HASHED && strchr(label->source + 2, '/') &&
			    is_of_share(mount.source, label->source))
				tell(label, &mount);
		}
	}
	free(line);
	fclose(file);
}

unsigned int labels_read(struct label *labels, const struct histogram_key *keys, unsigned int count,
			 const struct pins *pins)
{
	unsigned int found = 0;

	for (unsigned int i = 0; i < count; i++)
		labels[i].mount = keys[i].mount;
	qsort(labels, count, sizeof(*labels), by_mount);
	for (unsigned int i = 0; i < count; i++) {
		__u64 mount = labels[i].mount;

		if (found && labels[found - 1].mount == mount)
			continue;
		labels[found] = (struct label){ .mount = mount };
		if (mount & HASHED)
			name_hashed(&labels[found], pins);
		found++;
	}
	if (found)
		read_mountinfo(labels, found);
	return found;
}
