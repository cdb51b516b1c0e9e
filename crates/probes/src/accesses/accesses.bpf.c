// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Notes which files processes read and write, and in which order: where each access begins, and whether that is where the one before
 * it ended. An object of its own, loaded for a recording only, so that the syscalls probe costs nothing more without one.
 *
 * A program runs when the call has ended. The offset is the call's own, or the file's position before the call. If threads read or
 * write through one position at the same time, the program may confuse their offsets.
 */
#include "../bpf/files.h"
#include "../processes/followed.h"
#include "../syscalls/syscall.h"
#include "access.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct access_options options SEC(".rodata.options");

/* Sized when loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct access_key);
	__type(value, struct access);
} accesses SEC(".maps");

__u64 refused; /* accesses and opens that found no room */

static const struct access empty_access;

static __always_inline struct access *access_of(const struct access_key *key, const struct file *file)
{
	struct access *a = bpf_map_lookup_elem(&accesses, key);

	if (a)
		return a;
	bpf_map_update_elem(&accesses, key, &empty_access, BPF_NOEXIST);
	a = bpf_map_lookup_elem(&accesses, key);
	if (a)
		bpf_probe_read_kernel_str(a->name, sizeof(a->name), BPF_CORE_READ(file, f_path.dentry, d_name.name));
	else
		__sync_fetch_and_add(&refused, 1);
	return a;
}

static __always_inline void add(struct transfers *t, __u64 offset, __u64 bytes)
{
	if (t->calls) {
		if (offset >= t->next)
			__sync_fetch_and_add(&t->sequential, 1);
		if (offset == t->next)
			__sync_fetch_and_add(&t->consecutive, 1);
	}
	if (offset & (ACCESS_ALIGNMENT - 1))
		__sync_fetch_and_add(&t->unaligned, 1);
	t->next = offset + bytes;
	if (t->end < offset + bytes)
		t->end = offset + bytes;
	__sync_fetch_and_add(&t->bytes, bytes);
	__sync_fetch_and_add(&t->calls, 1);
}

static __always_inline bool is_watched(const struct file *file)
{
	if (!S_ISREG(BPF_CORE_READ(file, f_inode, i_mode)))
		return false;
	return options.any_filesystem || is_remote(BPF_CORE_READ(file, f_inode, i_sb, s_magic));
}

static __always_inline bool is_wanted(const struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (pid == options.own_pid || is_compat(task))
		return false;
	return !options.only_followed || bpf_map_lookup_elem(&followed, &pid);
}

static __always_inline int ended(const struct pt_regs___kernel *regs, long result)
{
	struct access_key key = {};
	struct task_struct *task;
	__u64 offset = -1ULL;
	struct access *a;
	struct file *file;
	long number = call_number(regs);
	__u8 kind;

	if ((unsigned long)number >= ACCESS_CALLS || result < 0)
		return 0;
	kind = options.kinds[number];
	if (!kind)
		return 0;
	task = bpf_get_current_task_btf();
	if (!is_wanted(task))
		return 0;
	file = file_of(task, (kind & ACCESS_KIND) == ACCESS_OPEN ? result : ARGUMENT_0_AT_END(regs));
	if (!file || !is_watched(file))
		return 0;
	key.mount = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	key.inode = BPF_CORE_READ(file, f_inode, i_ino);
	key.pid = task->tgid;
	a = access_of(&key, file);
	if (!a)
		return 0;
	if (kind & ACCESS_POSITIONAL)
		offset = ARGUMENT_3(regs);
	if (offset == -1ULL)
		offset = BPF_CORE_READ(file, f_pos) - result;
	if ((kind & ACCESS_KIND) == ACCESS_READ)
		add(&a->read, offset, result);
	else if ((kind & ACCESS_KIND) == ACCESS_WRITE)
		add(&a->written, offset, result);
	else
		__sync_fetch_and_add(&a->opens, 1);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(accessed, struct pt_regs *regs, long result)
{
	return ended((const void *)regs, result);
}
