/* Plumbline's pinned maps: see pins.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pins.h"

enum {
	NAMES_BYTES = ALL_OPERATIONS * sizeof(struct named_operation),
	MOST_CPUS = 8192, /* the kernel's own limit (NR_CPUS) */
};

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static const char *cure(int error)
{
	switch (error) {
	case ENOENT:
		return "no daemon runs, or it is an older one: systemctl start plumbline";
	case EACCES:
	case EPERM:
		return "run ldmsd as root";
	default:
		return "is the BPF file system mounted there?";
	}
}

struct layout {
	const char *name;
	__u32 entries, key_size, value_size;
};

static const struct layout histograms = { "histograms", MAX_HISTOGRAMS, sizeof(struct histogram_key),
					  sizeof(struct histogram) };
static const struct layout mount_names = { "mount_names", MAX_MOUNT_NAMES, sizeof(__u64), sizeof(struct mount_name) };
static const struct layout counters = { "counters", ALL_COUNTERS, sizeof(__u32), sizeof(__u64) };
static const struct layout operation_names = { "operation_names", ALL_OPERATIONS, sizeof(__u32),
					       sizeof(struct named_operation) };

/* Opens a map, if it is what this plugin was built for. Returns a descriptor or -1. */
static int open_map(const char *folder, const struct layout *wanted, __u32 *id, char *why, size_t size)
{
	char path[512];
	struct bpf_map_info info = {};
	union bpf_attr attr = {};
	int map;

	snprintf(path, sizeof(path), "%s/%s", folder, wanted->name);
	attr.pathname = (__u64)(unsigned long)path;
	map = bpf(BPF_OBJ_GET, &attr);
	if (map < 0) {
		int error = errno;

		snprintf(why, size, "cannot open %s: %s; %s", path, strerror(error), cure(error));
		errno = error;
		return -1;
	}
	memset(&attr, 0, sizeof(attr));
	attr.info.bpf_fd = map;
	attr.info.info_len = sizeof(info);
	attr.info.info = (__u64)(unsigned long)&info;
	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) == 0 && info.max_entries == wanted->entries &&
	    info.key_size == wanted->key_size && info.value_size == wanted->value_size) {
		*id = info.id;
		return map;
	}
	snprintf(why, size,
		 "%s has room for %u entries of %u and %u bytes, this plugin was built for %u of %u and %u: "
		 "build it from the sources of the daemon that runs",
		 path, info.max_entries, info.key_size, info.value_size, wanted->entries, wanted->key_size,
		 wanted->value_size);
	close(map);
	errno = EPROTO;
	return -1;
}

int pins_open(struct pins *pins, const char *folder, char *why, size_t size)
{
	__u32 id;
	void *mapped;
	int error, names;

	*pins = (struct pins){ .histograms = -1, .mount_names = -1, .counters = -1 };
	if ((pins->histograms = open_map(folder, &histograms, &pins->generation, why, size)) < 0 ||
	    (pins->mount_names = open_map(folder, &mount_names, &id, why, size)) < 0 ||
	    (pins->counters = open_map(folder, &counters, &id, why, size)) < 0 ||
	    (names = open_map(folder, &operation_names, &id, why, size)) < 0)
		goto failed;
	/* Of a descriptor that may only read, the kernel makes no shared mapping, and a map has no other. */
	mapped = mmap(NULL, NAMES_BYTES, PROT_READ, MAP_SHARED, names, 0);
	close(names);
	if (mapped == MAP_FAILED) {
		snprintf(why, size, "cannot map %s/operation_names: %s", folder, strerror(errno));
		goto failed;
	}
	pins->names = mapped;
	return 0;
failed:
	error = errno;
	pins_close(pins);
	return error;
}

void pins_close(struct pins *pins)
{
	const int maps[] = { pins->histograms, pins->mount_names, pins->counters };

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		if (maps[i] >= 0)
			close(maps[i]);
	}
	if (pins->names)
		munmap((void *)pins->names, NAMES_BYTES);
	*pins = (struct pins){ .histograms = -1, .mount_names = -1, .counters = -1 };
}

/* One call: there is room for all that the map can hold, so a batch ends at the map's end only, which is ENOENT. */
int pins_histograms(const struct pins *pins, struct histogram_key *keys, struct histogram *values)
{
	__u32 next;
	union bpf_attr attr;

	do {
		memset(&attr, 0, sizeof(attr));
		attr.batch.map_fd = pins->histograms;
		attr.batch.out_batch = (__u64)(unsigned long)&next;
		attr.batch.keys = (__u64)(unsigned long)keys;
		attr.batch.values = (__u64)(unsigned long)values;
		attr.batch.count = MAX_HISTOGRAMS;
		if (bpf(BPF_MAP_LOOKUP_BATCH, &attr) == 0 || errno == ENOENT)
			return attr.batch.count;
	} while (errno == EINTR);
	return -errno;
}

static int lookup(int map, const void *key, void *value)
{
	union bpf_attr attr = {};

	attr.map_fd = map;
	attr.key = (__u64)(unsigned long)key;
	attr.value = (__u64)(unsigned long)value;
	return bpf(BPF_MAP_LOOKUP_ELEM, &attr) == 0;
}

int pins_mount_name(const struct pins *pins, __u64 mount, struct mount_name *name)
{
	if (!lookup(pins->mount_names, &mount, name))
		return 0;
	name->source[SOURCE_LENGTH - 1] = '\0';
	return 1;
}

__u64 pins_counter(const struct pins *pins, unsigned int probe, enum counter which)
{
	__u32 index = probe * MAX_COUNTERS + which;
	__u64 each[MOST_CPUS] = {}; /* the kernel fills as many as there can be */
	__u64 sum = 0;

	if (!lookup(pins->counters, &index, each))
		return 0;
	for (int i = 0; i < MOST_CPUS; i++)
		sum += each[i];
	return sum;
}
