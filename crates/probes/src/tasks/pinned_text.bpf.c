// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The process table as text, for `cat`. It is pinned in bpffs, and works for everyone who may read the pin, without a process of
 * Plumbline's. Several readers may read at once, so nothing is kept between records.
 */
#include "../threads/iterator.h"
#include "sum.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { MILLISECOND = 1000000 }; /* in nanoseconds */

SEC("iter/task")
int text(struct bpf_iter__task *ctx)
{
	struct task_struct___all *task = (void *)ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct task_record r = {};
	const char *name = r.comm;

	if (!task)
		return 0;
	if (!ctx->meta->seq_num)
		BPF_SEQ_PRINTF(seq, "    PID    PPID     UID     GID S THREADS     CPU_MS  RSS_PAGES   READ_BYTES"
				    " WRITTEN_BYTES   START_MS   CGROUP COMM\n");
	if (task->pid != task->tgid)
		return 0;
	fill(&r, task, true);
	add_others(&r, task);
	/* Replaces characters that would break a line or a terminal. */
	for (int i = 0; i < TASK_NAME; i++)
		if (r.comm[i] && (r.comm[i] < ' ' || r.comm[i] > '~'))
			r.comm[i] = '?';
	r.comm[TASK_NAME - 1] = 0;
	BPF_SEQ_PRINTF(seq, "%7u %7u %7u %7u %c %7u %10llu %10llu ", r.pid, r.ppid, r.uid, r.gid, r.state, r.threads,
		       r.cpu_ns / MILLISECOND, r.rss_pages);
	BPF_SEQ_PRINTF(seq, "%12llu %13llu %10llu %8llu %s\n", r.read_bytes, r.written_bytes, r.start / MILLISECOND,
		       r.cgroup, name);
	return 0;
}
