/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Reports each file to user space, once, when it is first executed, or mapped by mmap() as the dynamic loader does. Its
 * name must fit a library of the probe's kind, or a program that indicates one. tp_mapped is attached only after such a
 * sign. A file that includes this defines MAPPED_FOR, the probe's number, and is_part_of_name().
 *
 * The kernel calls vm_unmapped_area (Linux 5.8 and later) to find room for a mapping, such as the loader's first one of
 * a library. It does not for a mapping whose room was reserved before (libraries aligned to more than a page). For
 * those, user space looks again every five minutes if a program was started meanwhile.
 */
#pragma once

#include "fields.h"
#include "files.h"
#include "maps.h"
#include "../syscalls/syscall.h"

#if defined(__TARGET_ARCH_x86)
#define CALL_MMAP 9
#elif defined(__TARGET_ARCH_arm64)
#define CALL_MMAP 222
#endif

struct file_id {
	__u64 device;
	__u64 inode;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2048);
	__type(key, struct file_id);
	__type(value, __u8);
} seen_files SEC(".maps");

/* The number of programs started since tp_started was attached. */
__u64 programs_started SEC(".data.started");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct linux_binprm {
	struct file *file;
};
#pragma clang attribute pop

#define WORD(a, b, c, d) ((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* Whether a name with these four characters is that of a library of the kind (or of a program that indicates one). */
static __always_inline bool is_part_of_name(__u32 word, bool is_program);

/* Whether a file's name fits. Other new files, such as a compiler's, must not wake user space, which finds a library
 * with another name when it looks again. */
static __always_inline bool is_of_kind(struct dentry *dentry, bool is_program)
{
	char name[32] = {};
	__u32 word = 0;

	bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(dentry, d_name.name));
	for (int i = 0; i < (int)sizeof(name); i++) {
		word = word << 8 | (__u8)name[i];
		if (is_part_of_name(word, is_program))
			return true;
	}
	return false;
}

static __always_inline void mapped(struct file *file, struct task_struct *task, bool is_program)
{
	struct inode *inode = KERNEL_FIELD(file, file, f_inode);
	struct super_block *sb = KERNEL_FIELD(inode, inode, i_sb);
	struct file_id id = { .device = KERNEL_FIELD(super_block, sb, s_dev),
			      .inode = KERNEL_FIELD(inode, inode, i_ino) };
	struct mapped *told;
	__u8 seen = 1;

	if (!S_ISREG(KERNEL_FIELD(inode, inode, i_mode)) || bpf_map_lookup_elem(&seen_files, &id))
		return;
	bpf_map_update_elem(&seen_files, &id, &seen, BPF_ANY);
	if (!is_of_kind(BPF_CORE_READ(file, f_path.dentry), is_program))
		return;
	told = bpf_ringbuf_reserve(&events, sizeof(*told), 0);
	if (!told) {
		bpf_map_delete_elem(&seen_files, &id);
		return;
	}
	told->head.kind = RING_MAPPED;
	told->head.size = sizeof(*told);
	told->pid = task->tgid;
	told->device = id.device;
	told->inode = id.inode;
	told->probe = MAPPED_FOR;
	told->reserved = 0;
	bpf_ringbuf_submit(told, BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/vm_unmapped_area")
int BPF_PROG(tp_mapped, unsigned long address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs___kernel *regs = (const void *)bpf_task_pt_regs(task);
	struct file *file;

	if (call_number(regs) != CALL_MMAP || is_compat(task) || (int)ARGUMENT_4(regs) < 0)
		return 0;
	file = file_of(task, ARGUMENT_4(regs));
	if (file)
		mapped(file, task, false);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(tp_started, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	__sync_fetch_and_add(&programs_started, 1);
	if (bprm->file)
		mapped(bprm->file, task, true);
	return 0;
}
