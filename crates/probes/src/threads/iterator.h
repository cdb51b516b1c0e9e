/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What an iterator over tasks gets and gives (include/linux/bpf.h, kernel/bpf/task_iter.c). */
#pragma once

#include "../bpf/kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num; /* 0 for the first */
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};
#pragma clang attribute pop
