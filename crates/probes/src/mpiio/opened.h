/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which file, and so which mount, an MPI_File stands for. The library's own descriptors need not be known: when
 * MPI_File_open() returns, the process has the file open, by a descriptor that was free when the function was called,
 * and under the name that was passed. If a process did not open the file itself (with collective buffering, some
 * processes do not) or failed to, the mount is the one that the name leads to.
 */
#pragma once

#include "../bpf/files.h"
#include "../syscalls/paths.h"
#include "../bpf/observe.h"

enum { NAME_LENGTH = 64, MAX_DESCRIPTORS = 4096 };

struct file_key {
	__u64 handle; /* MPI_File */
	__u64 process;
};

struct opened {
	__u64 mount;
	__u64 inode;
	__u64 split; /* bytes that a split collective under way was asked for */
	char name[NAME_LENGTH];
};

/* User space removes the entries of processes that end without closing the file. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct file_key);
	__type(value, struct opened);
} opened_files SEC(".maps");

/* A thread's own while it opens a file: too large for the stack. */
struct search {
	__u64 path; /* the application's */
	__u32 length; /* of it, with the NUL */
	__u32 first; /* descriptor */
	__u64 mount;
	__u64 inode;
	struct path_prefix prefix;
	char read[512];
	char asked[256];
	char has[256];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct search);
} searches SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct files_struct___next {
	unsigned int next_fd;
};
#pragma clang attribute pop

/* The lowest descriptor that may be free. */
static __always_inline __u32 next_descriptor(const struct task_struct *task)
{
	return BPF_CORE_READ((const struct files_struct___next *)task->files, next_fd);
}

/* Whether the last component of the path is this name. ROMIO takes the type of a file system in front: "ufs:file". */
static __always_inline bool ends_with(struct search *s, struct dentry *dentry)
{
	__u32 length = BPF_CORE_READ(dentry, d_name.len);
	char before = '/';

	if (!length || length >= 255 || length + 1 > s->length)
		return false;
	if (length + 1 < s->length)
		bpf_probe_read_user(&before, 1, (void *)s->path + s->length - length - 2);
	if (before != '/' && before != ':')
		return false;
	__builtin_memset(s->asked, 0, sizeof(s->asked));
	__builtin_memset(s->has, 0, sizeof(s->has));
	if (bpf_probe_read_user(s->asked, length & 255, (void *)s->path + s->length - length - 1) ||
	    bpf_probe_read_kernel(s->has, length & 255, BPF_CORE_READ(dentry, d_name.name)))
		return false;
	for (int i = 0; i < 256; i += 8)
		if (*(__u64 *)(s->asked + i) != *(__u64 *)(s->has + i))
			return false;
	return true;
}

static long try_descriptor(__u32 index, void *unused)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct search *s = bpf_task_storage_get(&searches, task, 0, 0);
	struct file *file;
	struct inode *inode;

	if (!s || s->first + index >= BPF_CORE_READ(task, files, fdt, max_fds))
		return 1;
	file = file_of(task, s->first + index);
	if (!file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	if (!S_ISREG(BPF_CORE_READ(inode, i_mode)) || !ends_with(s, BPF_CORE_READ(file, f_path.dentry)))
		return 0;
	s->mount = BPF_CORE_READ(inode, i_sb, s_dev);
	s->inode = BPF_CORE_READ(inode, i_ino);
	return 1;
}

static __always_inline __u64 device_of_path(struct search *s, const struct task_struct *task)
{
	__u32 length = s->length < PATH_LENGTH ? s->length : PATH_LENGTH - 1;

	if (s->read[0] != '/')
		return device_of_cwd(task);
	__builtin_memcpy(s->prefix.path, s->read, PATH_LENGTH);
	return device_of_absolute(&s->prefix, length, fixed.mount_namespace, task);
}

/* Where the file is that was or was to be opened by that path; `first`: what next_descriptor() said before. */
static __always_inline void find_opened(struct opened *o, struct task_struct *task, __u64 path, __u32 first)
{
	struct search *s = bpf_task_storage_get(&searches, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	long length;

	if (!s)
		return;
	length = bpf_probe_read_user_str(s->read, sizeof(s->read), (void *)path);
	if (length > 1) {
		s->path = path;
		s->length = length;
		s->first = first;
		s->mount = 0;
		s->inode = 0;
		bpf_probe_read_user_str(o->name, sizeof(o->name),
					(void *)path + (length > NAME_LENGTH ? length - NAME_LENGTH : 0));
		if (length < (long)sizeof(s->read))
			bpf_loop(MAX_DESCRIPTORS, try_descriptor, NULL, 0);
		o->mount = s->mount ?: device_of_path(s, task);
		o->inode = s->inode;
	}
	bpf_task_storage_delete(&searches, task);
}
