// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times the VFS's operations on the watched file systems, at the VFS's own functions. So it makes no difference which
 * file_operations a mount has. Each function has two programs, at its entry and at its return, as fentry and as kprobe.
 * If compilers inline one function into another, the programs are attached to both functions, or to the callers; mod.rs
 * says which on which kernel.
 */
#include "../bpf/fields.h"
#include "arguments.h"
#include "hook.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* By file, */
HOOK(VFS_READ, vfs_read, of_file, rw_arguments)
HOOK(VFS_READ, vfs_readv, of_file, vector_arguments)
HOOK(VFS_READ, vfs_iter_read, of_file, iterator_arguments)
HOOK(VFS_WRITE, vfs_write, of_file, rw_arguments)
HOOK(VFS_WRITE, vfs_writev, of_file, vector_arguments)
HOOK(VFS_WRITE, vfs_iter_write, of_file, iterator_arguments)
HOOK(VFS_SPLICE_READ, do_splice_read, of_file, splice_arguments)
HOOK(VFS_SPLICE_READ, do_splice_to, of_file, splice_arguments)
HOOK(VFS_FSYNC, vfs_fsync_range, of_file, fsync_arguments)
HOOK(VFS_FLUSH, filp_flush, of_file, file_arguments)
HOOK_THAT_FREES(VFS_FLUSH, filp_close, of_file, file_arguments, result)
HOOK_THAT_FREES(VFS_RELEASE, __fput, of_file, file_arguments, 0)
HOOK(VFS_MMAP, vm_mmap_pgoff, of_file, mmap_arguments)
HOOK(VFS_READDIR, iterate_dir, of_file, file_arguments)
HOOK(VFS_FALLOCATE, vfs_fallocate, of_file, fallocate_arguments)
HOOK(VFS_LOCK, fcntl_setlk, of_locked, lock_arguments)
HOOK(VFS_COPY_FILE_RANGE, vfs_copy_file_range, of_copy, copy_arguments)

/* by descriptor, */
HOOK_BY_DESCRIPTOR(VFS_FSYNC, do_fsync, of_descriptor, descriptor_arguments)
#if defined(__TARGET_ARCH_x86)
HOOK_BY_DESCRIPTOR(VFS_FSYNC, __x64_sys_fdatasync, of_registers, fdatasync_arguments)
HOOK_BY_DESCRIPTOR(VFS_LOCK, __x64_sys_flock, of_registers, register_arguments)
#elif defined(__TARGET_ARCH_arm64)
HOOK_BY_DESCRIPTOR(VFS_FSYNC, __arm64_sys_fdatasync, of_registers, fdatasync_arguments)
HOOK_BY_DESCRIPTOR(VFS_LOCK, __arm64_sys_flock, of_registers, register_arguments)
#endif

/* by path, name or mapping. */
HOOK(VFS_LOOKUP, __lookup_slow, of_folder, lookup_arguments)
HOOK(VFS_LOOKUP, lookup_one_qstr_excl, of_folder, lookup_arguments)
HOOK(VFS_GETATTR, vfs_getattr_nosec, of_path, getattr_arguments)
HOOK(VFS_SETATTR, notify_change, of_changed, setattr_arguments)
HOOK(VFS_RENAME, vfs_rename, of_renamed, rename_arguments)
HOOK(VFS_UNLINK, vfs_unlink, of_entry, entry_arguments)
HOOK(VFS_MKDIR, vfs_mkdir, of_entry, mkdir_arguments)
HOOK(VFS_RMDIR, vfs_rmdir, of_entry, entry_arguments)
HOOK(VFS_WRITEBACK, do_writepages, of_mapping, writeback_arguments)

/*
 * Opening. Only the walk shows to which file system a path leads. So every open is timed, and dropped at its end if the
 * file is not on a watched file system. An open that fails belongs to the file system where the walk ended. Trials in RCU
 * mode are no calls.
 */

static __always_inline int opening(const struct nameidata *walk, int flags)
{
	struct call c = { .name = &walk->last, .request = flags };

	return started(VFS_OPEN, &c);
}

static __always_inline int walked(const struct nameidata *walk, bool typed)
{
	const struct dentry *dentry = FIELD(typed, walk, path.dentry);
	const struct super_block *sb = FIELD(typed, dentry, d_sb);
	const struct inode *inode = FIELD(typed, dentry, d_inode);
	struct call *c;

	if (!is_watched(sb, typed))
		return 0;
	c = call_of_current(VFS_OPEN);
	if (!c || c->name != &walk->last)
		return 0;
	c->op.mount = FIELD(typed, sb, s_dev);
	c->dentry = dentry;
	/* The walk had reached the file itself: the file was found, but could not be opened. */
	if (!S_ISDIR(FIELD(typed, inode, i_mode)))
		c->name = NULL;
	return 0;
}

static __always_inline bool arrived(struct call *c, const struct file *file, bool typed)
{
	const struct super_block *sb = superblock_of(file, typed);

	if (!is_watched(sb, typed))
		return false;
	c->op.mount = FIELD(typed, sb, s_dev);
	c->name = NULL;
	identify(c, file, typed);
	return true;
}

static __always_inline bool is_worth_telling(struct call *c, __u64 result)
{
	__u32 error = error_of(result);

	if (error)
		return c->op.mount && error != ECHILD && error != EOPENSTALE;
	if (bpf_ksym_exists(bpf_rdonly_cast))
		return arrived(c, bpf_rdonly_cast((void *)result, TYPE_ID(file)), true);
	return arrived(c, (void *)result, false);
}

static __always_inline int opened(__u64 result, __u32 program)
{
	struct call *c = call_of_current(VFS_OPEN);

	if (!c)
		return 0;
	if (!is_worth_telling(c, result))
		return forget(c);
	count(PROBE_VFS, COUNT_STARTED);
	return end(VFS_OPEN, c, result, program);
}

SEC("fentry/path_openat")
int fentry_path_openat(__u64 *ctx)
{
	const struct open_flags *how = (void *)ctx[1];

	return opening((void *)ctx[0], how->open_flag);
}

SEC("fentry/terminate_walk")
int fentry_terminate_walk(__u64 *ctx)
{
	return walked((void *)ctx[0], true);
}

SEC("fexit/path_openat")
int fexit_path_openat(__u64 *ctx)
{
	__u64 result = 0;

	bpf_get_func_ret(ctx, &result);
	return opened(result, NUMBER_OF_THIS);
}

SEC("kprobe/path_openat")
int kprobe_path_openat(struct pt_regs *ctx)
{
	const struct open_flags *how = (void *)PT_REGS_PARM2(ctx);

	return opening((void *)PT_REGS_PARM1(ctx), BPF_CORE_READ(how, open_flag));
}

SEC("kprobe/terminate_walk")
int kprobe_terminate_walk(struct pt_regs *ctx)
{
	return walked((void *)PT_REGS_PARM1(ctx), false);
}

SEC("kretprobe/path_openat")
int kretprobe_path_openat(struct pt_regs *ctx)
{
	return opened(PT_REGS_RC(ctx), NUMBER_OF_THIS);
}

/*
 * A cached name that has to be checked with the server: most often, a stat waits here. A call that took less than a round
 * trip made no such check. It is one of the many names that a walk passes without a check.
 */

static __always_inline int revalidated(__u64 result, __u32 program)
{
	struct call *c = call_of_current(VFS_REVALIDATE);

	if (!c)
		return 0;
	if (error_of(result) == ECHILD || bpf_ktime_get_ns() - c->op.start < LEAST_RECORDED)
		return forget(c);
	count(PROBE_VFS, COUNT_STARTED);
	return end(VFS_REVALIDATE, c, result, program);
}

ON_ENTRY(VFS_REVALIDATE, lookup_fast, of_walk, true, walk_arguments)

SEC("fexit/lookup_fast")
int fexit_lookup_fast(__u64 *ctx)
{
	__u64 result = 0;

	if (!may_be_watched(of_walk(ctx, true), true))
		return 0;
	bpf_get_func_ret(ctx, &result);
	return revalidated(result, NUMBER_OF_THIS);
}

SEC("kretprobe/lookup_fast")
int kretprobe_lookup_fast(struct pt_regs *ctx)
{
	return revalidated(PT_REGS_RC(ctx), NUMBER_OF_THIS);
}

_Static_assert(NUMBER_OF_THIS <= MAX_PROGRAMS, "each has a text for paths");
