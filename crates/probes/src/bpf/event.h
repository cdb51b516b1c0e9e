/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What leaves the kernel side: events, flight records, histograms, counters; and the settings that come in.
 * The Rust types are generated from this header's BTF (shared.bpf.c), never written by hand.
 */
#pragma once

#include <linux/types.h>

/* One per probe, stable: it is part of the keys of pinned maps. */
enum probe_id {
	PROBE_SMB = 1,
	PROBE_SYSCALLS = 2,
	PROBE_NFS = 3,
	PROBE_VFS = 4,
	PROBE_CONNECTIONS = 5,
	MAX_PROBES = 8,
};

enum {
	MAX_OPERATIONS = 128, /* per probe */
	COMM_LENGTH = 16, /* TASK_COMM_LEN */
	FILE_LENGTH = 128,
	SOURCE_LENGTH = 256,
	HISTOGRAM_BUCKETS = 114, /* model's BUCKETS */
	MAX_HISTOGRAMS = 4096,
	MAX_MOUNT_NAMES = 4096,
	MAX_ORDINARY = 32, /* failures that are no event, per probe */
};

enum event_flags {
	EVENT_COMPOUND = 1 << 0,
	EVENT_ASYNCHRONOUS = 1 << 1,
	EVENT_UNANSWERED = 1 << 2,
	EVENT_NETWORK_KNOWN = 1 << 3,
	EVENT_FAILED = 1 << 4, /* by the protocol's own measure: an SMB warning is no failure */
	EVENT_BY_KERNEL = 1 << 5, /* CALLER_KERNEL, where there is no room for the caller */
};

/* What stands above an operation: one of these, or the number of a system call plus one. */
enum caller {
	CALLER_UNKNOWN = 0,
	CALLER_KERNEL = 0xfffe, /* a thread of the kernel's own: writeback, readahead, a worker */
	CALLER_PAGE_FAULT = 0xffff,
};

/* Times in nanoseconds of CLOCK_MONOTONIC; what a probe cannot know is zero. */
struct event {
	__u64 start;
	__u64 duration;
	__u64 queue; /* start until sent */
	__u64 wire; /* sent until received */
	__u64 deliver; /* received until the requester had it */
	__u64 bytes;
	__u64 mount; /* device number, or a hash of the source with bit 63 set */
	__u64 cgroup;
	__u64 session;
	__u64 message;
	__u64 connection;
	__u64 inode;
	__u64 offset; /* vfs: where in the file */
	__u64 asked; /* vfs: bytes asked for */
	__u32 tree; /* NFS: the session's slot */
	__u32 pid; /* thread group */
	__u32 tid;
	__u32 uid;
	__u32 status; /* the protocol's own */
	__u32 error; /* errno, positive */
	__u32 srtt_us;
	__u32 rtt_us;
	__u32 retransmits;
	__u32 weight; /* operations that this event stands for */
	__u16 operation;
	__u8 probe;
	__u8 flags;
	__u32 request; /* vfs: flags, mode or command, as the operation has them */
	__u32 caller;
	__u32 sequence; /* NFS: of the slot */
	__u32 resent; /* NFS: how often the call was sent again */
	__u32 reserved;
	char comm[COMM_LENGTH];
	char file[FILE_LENGTH];
};

/* One finished operation in the flight recorder: every one of them, so it is small. Times in microseconds. */
struct record {
	__u64 end; /* nanoseconds; 0 while the record is being written */
	__u64 mount;
	__u32 duration_us;
	__u32 queue_us;
	__u32 wire_us; /* the rest of what was split is deliver */
	__u32 pid;
	__u32 tid; /* the requester's */
	__u32 status;
	__u32 error;
	__u32 bytes;
	__u32 rtt_us;
	__u32 retransmits;
	__u16 operation;
	__u8 probe;
	__u8 flags;
	__u32 connection;
};

_Static_assert(sizeof(struct record) == 64, "a cache line each");

/* How every entry of an in-flight map begins: what user space reads of operations that have not returned. */
struct flight {
	__u64 start; /* 0: finished; the entry is kept to be used again */
	__u64 used; /* when it was taken */
	__u64 mount;
	__u64 connection;
	__u64 session;
	__u64 message;
	__u32 tree;
	__u32 pid;
	__u32 tid;
	__u16 operation;
	__u8 probe;
	__u8 flags;
	__u32 caller;
	__u32 reserved;
};

/* Where a thread is. */
struct thread {
	__u32 tid;
	__s32 call; /* number of the system call that it is or was last in; negative: an exception or an interrupt */
	__u8 asleep;
	__u8 no_file; /* the call's first argument is a descriptor of neither a file nor a folder */
	__u8 without_calls; /* the kernel's own, or of another instruction set: the rest says nothing */
	__u8 reserved;
};

struct histogram_key {
	__u64 mount;
	__u16 operation;
	__u8 probe;
	__u8 reserved[5];
};

struct histogram {
	__u64 count;
	__u64 sum; /* nanoseconds */
	__u64 bytes;
	__u64 errors;
	__u64 buckets[HISTOGRAM_BUCKETS];
};

/* Per probe and CPU. produced = what user space consumes + LOST_RING, exactly. */
enum counter {
	COUNT_STARTED, /* operations seen to start */
	COUNT_FINISHED, /* operations seen to finish, of those */
	COUNT_PRODUCED, /* events meant for the ring */
	COUNT_LOST_RING, /* of those, events that found it full */
	COUNT_LOST_INFLIGHT, /* operations not timed: the in-flight map was full */
	COUNT_LOST_HISTOGRAM, /* operations not counted: the histogram map was full */
	COUNT_SAMPLED_OUT, /* events left out on purpose while flooded; the others' weight makes up for them */
	COUNT_SWEPT, /* in-flight entries that never finished and were removed by age */
	COUNT_NEVER_SENT, /* SMB: waits for credits that led to no command; NFS: operations that ended before they were sent */
	MAX_COUNTERS,
	ALL_COUNTERS = MAX_PROBES * MAX_COUNTERS,
	COUNT_RECORDED = 0, /* of no probe, all probes together: records written, so the recorder's head */
};

struct settings {
	__u64 mount; /* only this mount; 0: all */
	__u64 wake_bytes; /* wake user space once this much waits in the ring; 0: with every event */
	__u64 tick_ns; /* length of a jiffy */
	__u32 pid; /* only this process; 0: all */
	__u32 errors_only;
	__u32 sample_shift; /* one event in 2^this */
	__u32 recorder_mask; /* records per CPU, less one */
	__u32 any_filesystem; /* syscalls: not only network file systems and FUSE */
	__u32 own_pid; /* never watch ourselves */
	__u32 mount_namespace; /* inode number of the one that mount points are known for */
	__u32 magic; /* vfs: only file systems with this magic number; 0: all that are watched */
	__u64 threshold[MAX_PROBES * MAX_OPERATIONS]; /* nanoseconds; all ones: never an event for being slow */
	__u8 failures[MAX_PROBES * MAX_OPERATIONS]; /* 1: a failure is an event, however fast */
	__u32 ordinary[MAX_PROBES *
		       MAX_ORDINARY]; /* but for these: the protocol's status, where it has none the errno */
};

/* How the kernel names what a hashed mount key stands for. */
struct mount_name {
	__u64 connection;
	/* SMB: \\server\share, or \\server for commands that belong to no share; NFS: "server:" */
	char source[SOURCE_LENGTH];
	__u16 family; /* AF_INET, AF_INET6 */
	__u8 port[2]; /* network byte order */
	__u8 address[16];
	__u32 reserved;
};
