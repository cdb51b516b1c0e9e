// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The descendants of the followed processes, noted when they start, because they may be gone in a moment. */
#include "followed.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 refused; /* that found no room */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, const struct task_struct *parent, const struct task_struct *child)
{
	__u32 above = parent->tgid, below = child->tgid;
	__u8 one = 1;

	if (above == below) /* a thread */
		return 0;
	if (bpf_map_lookup_elem(&followed, &above)) {
		if (bpf_map_update_elem(&followed, &below, &one, BPF_ANY))
			__sync_fetch_and_add(&refused, 1);
	} else {
		bpf_map_delete_elem(&followed, &below); /* the number belonged to another process before */
	}
	return 0;
}
