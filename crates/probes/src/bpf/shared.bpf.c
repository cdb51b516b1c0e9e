// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Loaded first: creates the maps that every probe shares, carries the types for Rust, and tries out what this kernel
 * allows.
 */
#include "observe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Named so that their BTF is kept; nothing reads them. */
struct event event_type;
enum probe_id probe_id_type;
enum counter counter_type;
enum event_flags event_flags_type;
enum caller caller_type;
struct record record_type;
struct flight flight_type;
struct thread thread_type;
struct histogram_key histogram_key_type;
struct histogram histogram_type;
struct settings settings_type;
struct mount_name mount_name_type;

__u64 bucket_input;
__u32 bucket_output;

/* For the test that holds bucket_of() and its twin in Rust together. */
SEC("syscall")
int bucket(void *ctx)
{
	bucket_output = bucket_of(bucket_input);
	return 0;
}

/* Does this kernel let us attach to functions? The function is there for just such trials (net/bpf/test_run.c). */
SEC("fentry/bpf_fentry_test1")
int try_fentry(void *ctx)
{
	return 0;
}

SEC("tp_btf/sys_exit")
int try_tp_btf(void *ctx)
{
	return 0;
}

SEC("kprobe/bpf_fentry_test1")
int try_kprobe(void *ctx)
{
	return 0;
}
