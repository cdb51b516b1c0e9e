// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * A handwritten program for vfs_read as an operation: the twin of the generated program that bench/own-cost defines, with
 * the same hooks, values and maps.
 */
#include "../../crates/probes/src/bpf/observe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	PROBE_TWIN = 9, /* not used by any probe */
	LEAST_RECORDED = 50000,
};

struct reading {
	struct flight flight;
	__u64 file;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct reading);
} readings SEC(".maps");

SEC("fentry/vfs_read")
int BPF_PROG(twin_begins, struct file *file)
{
	struct settings *s = current_settings();
	__u64 id = bpf_get_current_pid_tgid(), key = (__u32)id;
	struct reading r = {};

	if (!s || s->own_pid == id >> 32)
		return 0;
	r.flight.probe = PROBE_TWIN;
	r.flight.pid = id >> 32;
	r.flight.tid = id;
	r.flight.mount = file->f_inode->i_sb->s_dev;
	r.file = (__u64)file;
	r.flight.start = r.flight.used = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&readings, &key, &r, BPF_NOEXIST))
		count(PROBE_TWIN, COUNT_STARTED);
	else if (bpf_map_update_elem(&readings, &key, &r, BPF_EXIST))
		count(PROBE_TWIN, COUNT_LOST_INFLIGHT);
	return 0;
}

SEC("fexit/vfs_read")
int BPF_PROG(twin_ends, struct file *file, char *buf, unsigned long bytes, long long *pos, long result)
{
	struct outcome o = { .end = bpf_ktime_get_ns(), .probe = PROBE_TWIN, .worth_recording = LEAST_RECORDED };
	__u64 key = (__u32)bpf_get_current_pid_tgid();
	struct reading *r = bpf_map_lookup_elem(&readings, &key);
	const unsigned char *name;
	struct file *kept;
	struct event *e;

	if (!r)
		return 0;
	o.start = r->flight.start;
	o.pid = r->flight.pid;
	o.tid = r->flight.tid;
	o.mount = r->flight.mount;
	if (result < 0 && result >= -4095) {
		o.error = -result;
		o.flags = EVENT_FAILED;
	} else {
		o.bytes = result;
	}
	e = observe(&o);
	if (e) {
		name_requester(e, bpf_get_current_task_btf());
		kept = (struct file *)r->file;
		name = BPF_CORE_READ(kept, f_path.dentry, d_name.name);
		bpf_probe_read_kernel_str(e->file, sizeof(e->file), name);
		report(e);
	}
	bpf_map_delete_elem(&readings, &key);
	count(PROBE_TWIN, COUNT_FINISHED);
	return 0;
}
