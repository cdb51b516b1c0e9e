/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The maps that all probes share. Each object declares them; the loader makes all objects use the same maps. */
#pragma once

#include "../processes/followed.h"
#include "event.h"
#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* Not preallocated: memory is used only for mounts in use. Not per CPU: a reader gets one value for each key. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_HISTOGRAMS);
	__type(key, struct histogram_key);
	__type(value, struct histogram);
} histograms SEC(".maps");

/* Operations also by requester (settings.account). User space sets the size before loading: one entry if off. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct usage_key);
	__type(value, struct usage);
} usage SEC(".maps");

/* The flight recorder: a ring of records for each CPU. User space sets the size before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct record);
} recorder SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ALL_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

const volatile struct fixed_settings fixed SEC(".rodata.fixed") = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MOUNT_NAMES);
	__type(key, __u64);
	__type(value, struct mount_name);
} mount_names SEC(".maps");
