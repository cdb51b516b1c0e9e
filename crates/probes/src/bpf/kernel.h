/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The kernel's own types, cut to the fields that probes read; CO-RE finds their offsets. Linux 6.1 to 7.2. */
#pragma once

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

enum { FAMILY_INET = 2 }; /* AF_INET of include/linux/socket.h */

#define NULL ((void *)0)

/* Linux 6.2 and later: the verifier trusts the given type and permits loads of its fields; a fault reads as zero. */
extern void *bpf_rdonly_cast(const void *pointer, __u32 type) __ksym __weak;

/* A field of an argument: a load where the verifier knows its type (fentry), else copied by a helper (kprobe). */
#define FIELD(typed, pointer, field) ((typed) ? (pointer)->field : BPF_CORE_READ(pointer, field))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct __kernel_sockaddr_storage {
	__u16 ss_family;
};

struct list_head {
	struct list_head *next;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct kuid {
	__u32 val;
};

struct cred {
	struct kuid uid;
};

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct super_block;
struct inode;

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
};

struct file_system_type {
	const char *name;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_flags;
	unsigned long s_magic;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	__u16 i_mode;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
	long long f_pos;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct sched_info {
	unsigned long long run_delay; /* nanoseconds */
};

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	const struct cred *cred;
	struct css_set *cgroups;
	struct files_struct *files;
	struct sched_info sched_info;
};

struct sock;

struct socket {
	struct sock *sk;
};

#pragma clang attribute pop

#define S_IFMT 00170000
#define S_ISREG(mode) (((mode)&S_IFMT) == 0100000)
#define S_ISDIR(mode) (((mode)&S_IFMT) == 0040000)
