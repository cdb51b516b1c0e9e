/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Finds the mount that a path leads to, by its name alone: for calls without a file to ask. */
#pragma once

#include "../bpf/kernel.h"

enum { PATH_LENGTH = 128 };

struct path_prefix {
	__u32 bits;
	char path[PATH_LENGTH]; /* with a slash at the end */
};

/* Mount points to the device, written by user space: the mount points that the probe needs. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct path_prefix);
	__type(value, __u64);
} mount_points SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct path___pwd {
	struct dentry___pwd *dentry;
};

struct dentry___pwd {
	struct super_block *d_sb;
};

struct fs_struct {
	struct path___pwd pwd;
};

struct ns_common {
	unsigned int inum;
};

struct mnt_namespace {
	struct ns_common ns;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

struct task_struct___paths {
	struct fs_struct *fs;
	struct nsproxy *nsproxy;
};
#pragma clang attribute pop

/* The device of the task's working directory. */
static __always_inline __u64 device_of_cwd(const struct task_struct *task)
{
	return BPF_CORE_READ((const struct task_struct___paths *)task, fs, pwd.dentry, d_sb, s_dev);
}

/* The device that an absolute path leads to, by the known mount points, which all belong to one namespace; 0: none.
 * `length` includes the NUL, which becomes a slash. */
static __always_inline __u64 device_of_absolute(struct path_prefix *prefix, long length, __u32 mount_namespace,
						const struct task_struct *task)
{
	__u64 *device;

	if (BPF_CORE_READ((const struct task_struct___paths *)task, nsproxy, mnt_ns, ns.inum) != mount_namespace)
		return 0;
	prefix->path[(length - 1) & (PATH_LENGTH - 1)] = '/';
	prefix->bits = length * 8;
	device = bpf_map_lookup_elem(&mount_points, prefix);
	return device ? *device : 0;
}
