// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The object that is loaded first. It creates the maps that all probes share, carries the types for Rust, and tries out
 * which ways to attach this kernel allows.
 */
#include "../accesses/access.h"
#include "../connections/interface.h"
#include "../own/own.h"
#include "../tasks/record.h"
#include "../tcp/flow.h"
#include "observe.h"
#include "sends.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The layout of the pinned maps, for other programs; user space writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct maps_layout);
} version SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MOUNTS);
	__type(key, __u64);
	__type(value, struct mount_entry);
} mounts SEC(".maps");

/* These variables keep the types' BTF in the object; nothing reads them. */
enum ring_kind ring_kind_type;
struct ring_head ring_head_type;
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
struct usage_key usage_key_type;
struct usage usage_type;
enum account account_type;
struct settings settings_type;
struct fixed_settings fixed_settings_type;
struct mount_name mount_name_type;
struct mapped mapped_type;
struct named_operation named_operation_type;
struct maps_layout maps_layout_type;
struct mount_entry mount_entry_type;
enum stage stage_type;
struct selection selection_type;
struct flow flow_type;
struct connection connection_type;
struct stamp stamp_type;
struct task_record task_record_type;
struct walk_options walk_options_type;
struct symbol symbol_type;
struct file_record file_record_type;
struct wait_record wait_record_type;
struct wait_options wait_options_type;
struct stack_record stack_record_type;
struct stack_options stack_options_type;
struct socket_record socket_record_type;
struct area_record area_record_type;
struct access_options access_options_type;
enum access_kind access_kind_type;
struct access_key access_key_type;
struct access access_type;
struct own_plan own_plan_type;
enum own_from own_from_type;
struct interface_drops interface_drops_type;

/* For other programs; no probe reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ALL_OPERATIONS);
	__type(key, __u32);
	__type(value, struct named_operation);
} operation_names SEC(".maps");

struct {
	__u64 input;
	__u32 bucket;
	__u32 size;
} bucket_test SEC(".data.bucket");

/* For the test that compares bucket_of() and size_of() with their twins in Rust. */
SEC("syscall")
int bucket(void *ctx)
{
	bucket_test.bucket = bucket_of(bucket_test.input);
	bucket_test.size = size_of(bucket_test.input);
	return 0;
}

/* Tests whether this kernel permits attaching to functions. The kernel has this function for such tests
 * (net/bpf/test_run.c). */
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
