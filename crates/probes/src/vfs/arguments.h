/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the arguments of the VFS's functions say: the file system, and the call. Linux 6.1 to 7.2; positions are the same on
 * all of them. `typed`: the verifier knows the arguments' types.
 */
#pragma once

#include "../syscalls/syscall.h"
#include "call.h"

/* By file: the first argument, but for locks and copies */

static __always_inline const struct super_block *superblock_of(const struct file *file, bool typed)
{
	const struct inode *inode = FIELD(typed, file, f_inode);

	return FIELD(typed, inode, i_sb);
}

static __always_inline void identify(struct call *c, const struct file *file, bool typed)
{
	const struct inode *inode = FIELD(typed, file, f_inode);

	c->inode = FIELD(typed, inode, i_ino);
	c->dentry = FIELD(typed, file, f_path.dentry);
}

static __always_inline const struct super_block *of_file(const __u64 *a, bool typed)
{
	return superblock_of((void *)a[0], typed);
}

static __always_inline void file_arguments(struct call *c, const __u64 *a, bool typed)
{
	identify(c, (void *)a[0], typed);
}

/* file, buffer, count, position */
static __always_inline void rw_arguments(struct call *c, const __u64 *a, bool typed)
{
	file_arguments(c, a, typed);
	c->asked = a[2];
	c->position = (void *)a[3];
}

/* file, vector of the caller, length, position, flags */
static __always_inline void vector_arguments(struct call *c, const __u64 *a, bool typed)
{
	file_arguments(c, a, typed);
	c->position = (void *)a[3];
	c->request = a[4];
}

/* file, iterator, position, flags */
static __always_inline void iterator_arguments(struct call *c, const __u64 *a, bool typed)
{
	const struct iov_iter *iterator = (void *)a[1];

	file_arguments(c, a, typed);
	c->asked = FIELD(typed, iterator, count);
	c->position = (void *)a[2];
	c->request = a[3];
}

/* file, position, pipe, length, flags */
static __always_inline void splice_arguments(struct call *c, const __u64 *a, bool typed)
{
	file_arguments(c, a, typed);
	c->position = (void *)a[1];
	c->asked = a[3];
	c->request = a[4];
}

/* file, start, end, datasync */
static __always_inline void fsync_arguments(struct call *c, const __u64 *a, bool typed)
{
	file_arguments(c, a, typed);
	c->offset = a[1];
	c->request = a[3];
}

/* file, address, length, protection, flags, page */
static __always_inline void mmap_arguments(struct call *c, const __u64 *a, bool typed)
{
	file_arguments(c, a, typed);
	c->asked = a[2];
	c->request = a[3];
}

/* file, mode, offset, length */
static __always_inline void fallocate_arguments(struct call *c, const __u64 *a, bool typed)
{
	file_arguments(c, a, typed);
	c->request = a[1];
	c->offset = a[2];
	c->asked = a[3];
}

/* descriptor, file, command, lock */
static __always_inline const struct super_block *of_locked(const __u64 *a, bool typed)
{
	return superblock_of((void *)a[1], typed);
}

static __always_inline void lock_arguments(struct call *c, const __u64 *a, bool typed)
{
	const struct flock *lock = (void *)a[3];

	identify(c, (void *)a[1], typed);
	c->request = a[2];
	c->offset = FIELD(typed, lock, l_start);
	c->asked = FIELD(typed, lock, l_len);
}

/* file in, offset, file out, offset, length, flags: the one that is written to */
static __always_inline const struct super_block *of_copy(const __u64 *a, bool typed)
{
	return superblock_of((void *)a[2], typed);
}

static __always_inline void copy_arguments(struct call *c, const __u64 *a, bool typed)
{
	identify(c, (void *)a[2], typed);
	c->offset = a[3];
	c->asked = a[4];
	c->request = a[5];
}

/* By descriptor */

static __always_inline const struct super_block *of_descriptor(const __u64 *a, bool typed)
{
	return superblock_of(file_of(bpf_get_current_task_btf(), a[0]), false);
}

/* descriptor, flags or command */
static __always_inline void descriptor_arguments(struct call *c, const __u64 *a, bool typed)
{
	identify(c, file_of(bpf_get_current_task_btf(), a[0]), false);
	c->request = a[1];
}

/* The system call itself, if the compiler has inlined the function that it calls: its argument is the caller's
 * registers. */
#if defined(__TARGET_ARCH_x86)
#define FIRST di
#define SECOND si
#elif defined(__TARGET_ARCH_arm64)
#define FIRST regs[0]
#define SECOND regs[1]
#endif

static __always_inline const struct super_block *of_registers(const __u64 *a, bool typed)
{
	const struct pt_regs___kernel *registers = (void *)a[0];
	const __u64 descriptor = FIELD(typed, registers, FIRST);

	return of_descriptor(&descriptor, typed);
}

static __always_inline void register_arguments(struct call *c, const __u64 *a, bool typed)
{
	const struct pt_regs___kernel *registers = (void *)a[0];
	const __u64 arguments[] = { FIELD(typed, registers, FIRST), FIELD(typed, registers, SECOND) };

	descriptor_arguments(c, arguments, typed);
}

static __always_inline void fdatasync_arguments(struct call *c, const __u64 *a, bool typed)
{
	register_arguments(c, a, typed);
	c->request = 1; /* as do_fsync's datasync */
}

/* By name */

static __always_inline const struct super_block *superblock_at(const struct dentry *dentry, bool typed)
{
	return FIELD(typed, dentry, d_sb);
}

static __always_inline void identify_at(struct call *c, const struct dentry *dentry, bool typed)
{
	const struct inode *inode = FIELD(typed, dentry, d_inode);

	c->dentry = dentry;
	c->inode = FIELD(typed, inode, i_ino);
}

/* path, buffer, mask, flags */
static __always_inline const struct super_block *of_path(const __u64 *a, bool typed)
{
	const struct path *path = (void *)a[0];

	return superblock_at(FIELD(typed, path, dentry), typed);
}

static __always_inline void getattr_arguments(struct call *c, const __u64 *a, bool typed)
{
	const struct path *path = (void *)a[0];

	identify_at(c, FIELD(typed, path, dentry), typed);
	c->request = a[2];
}

/* name, folder, flags */
static __always_inline const struct super_block *of_folder(const __u64 *a, bool typed)
{
	return superblock_at((void *)a[1], typed);
}

static __always_inline void lookup_arguments(struct call *c, const __u64 *a, bool typed)
{
	c->dentry = (void *)a[1];
	c->name = (void *)a[0];
}

/* walk: the folder that it is in, and the name to come */
static __always_inline const struct super_block *of_walk(const __u64 *a, bool typed)
{
	const struct nameidata *walk = (void *)a[0];

	return superblock_at(FIELD(typed, walk, path.dentry), typed);
}

static __always_inline void walk_arguments(struct call *c, const __u64 *a, bool typed)
{
	const struct nameidata *walk = (void *)a[0];

	c->dentry = FIELD(typed, walk, path.dentry);
	c->name = &walk->last;
}

/* idmap, dentry, attributes */
static __always_inline const struct super_block *of_changed(const __u64 *a, bool typed)
{
	return superblock_at((void *)a[1], typed);
}

static __always_inline void setattr_arguments(struct call *c, const __u64 *a, bool typed)
{
	const struct iattr *attributes = (void *)a[2];

	identify_at(c, (void *)a[1], typed);
	c->request = FIELD(typed, attributes, ia_valid);
	if (c->request & ATTR_SIZE)
		c->asked = FIELD(typed, attributes, ia_size);
}

/* idmap, folder, dentry, mode for mkdir: since 5.12, the idmap was a user namespace at first */
static __always_inline const struct super_block *of_entry(const __u64 *a, bool typed)
{
	return superblock_at((void *)a[2], typed);
}

static __always_inline void entry_arguments(struct call *c, const __u64 *a, bool typed)
{
	identify_at(c, (void *)a[2], typed);
}

static __always_inline void mkdir_arguments(struct call *c, const __u64 *a, bool typed)
{
	entry_arguments(c, a, typed);
	c->request = (__u16)a[3];
}

static __always_inline const struct super_block *of_renamed(const __u64 *a, bool typed)
{
	const struct renamedata *data = (void *)a[0];

	return superblock_at(FIELD(typed, data, old_dentry), typed);
}

static __always_inline void rename_arguments(struct call *c, const __u64 *a, bool typed)
{
	const struct renamedata *data = (void *)a[0];

	identify_at(c, FIELD(typed, data, old_dentry), typed);
	c->request = FIELD(typed, data, flags);
}

/* By mapping: the pages of one file */

static __always_inline const struct super_block *of_mapping(const __u64 *a, bool typed)
{
	const struct address_space *mapping = (void *)a[0];
	const struct inode *inode = FIELD(typed, mapping, host);

	return FIELD(typed, inode, i_sb);
}

/* mapping, control */
static __always_inline void writeback_arguments(struct call *c, const __u64 *a, bool typed)
{
	const struct address_space *mapping = (void *)a[0];
	const struct inode *inode = FIELD(typed, mapping, host);
	const struct writeback_control *control = (void *)a[1];

	c->inode = FIELD(typed, inode, i_ino);
	c->offset = FIELD(typed, control, range_start);
	c->request = FIELD(typed, control, sync_mode);
}
