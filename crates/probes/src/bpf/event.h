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
	PROBE_MPIIO = 6,
	PROBE_TCP = 7,
	PROBE_CEPHPROXY = 8,
	MAX_PROBES = 16, /* a power of two */
};

enum {
	MAX_OPERATIONS = 128, /* per probe */
	ALL_OPERATIONS = MAX_PROBES * MAX_OPERATIONS,
	COMM_LENGTH = 16, /* TASK_COMM_LEN */
	FILE_LENGTH = 128,
	SOURCE_LENGTH = 256,
	PROBE_LENGTH = 16,
	OPERATION_LENGTH = 48,
	HISTOGRAM_BUCKETS = 114, /* model's BUCKETS */
	SIZE_BUCKETS = 32, /* model's SIZES */
	MAX_HISTOGRAMS = 4096,
	MAX_MOUNT_NAMES = 4096,
	MAX_MOUNTS = 4096, /* in the pinned map of that name */
	MAPS_VERSION = 1, /* goes up when what docs/maps.md says of a pinned map is true no longer */
	MAX_ORDINARY = 32, /* failures that are no event, per probe */
};

enum event_flags {
	EVENT_COMPOUND = 1 << 0,
	EVENT_ASYNCHRONOUS = 1 << 1,
	EVENT_UNANSWERED = 1 << 2,
	EVENT_NETWORK_KNOWN = 1 << 3,
	EVENT_FAILED = 1 << 4, /* by the protocol's own measure: an SMB warning is no failure */
	EVENT_BY_KERNEL = 1 << 5, /* CALLER_KERNEL, where there is no room for the caller */
	EVENT_BYTES_UNKNOWN = 1 << 6, /* mpiio: bytes were moved, or may have been, and nobody can tell how many */
};

/* What stands above an operation: one of these, or the number of a system call plus one. */
enum caller {
	CALLER_UNKNOWN = 0,
	CALLER_KERNEL = 0xfffe, /* a thread of the kernel's own: writeback, readahead, a worker */
	CALLER_PAGE_FAULT = 0xffff,
};

/* What was seen of an operation's own send, and of those beside it on its connection that cannot be told from it. */
struct transit {
	__u32 sends; /* acknowledged when the operation ended; 0: the rest says nothing */
	__u32 local_us; /* the longest from TCP's handing it down until the driver had it: this host's queueing discipline */
	__u32 held_us; /* the longest in TCP's own queue: for want of a window, or paced */
	__u32 least_us; /* from the driver to the acknowledgement: the shortest ... */
	__u32 most_us; /* ... and the longest */
	__u32 retransmitted; /* times that segments of these were sent again */
};

/* The server's connection, as its socket was when an answer had been taken off it. */
struct network {
	__u32 srtt_us;
	__u32 rtt_us; /* the newest sample */
	__u32 retransmits; /* segments, over the connection's life; without those that the peer calls needless */
	/* Of operations that took SHORT_NS or longer: */
	__u32 min_rtt_us; /* TCP's own minimum of the last minutes (net.ipv4.tcp_min_rtt_wlen) */
	__u32 unread_us; /* since data last arrived, to a jiffy: the answer lay there for as long at least */
	__u32 out_of_order; /* segments that arrived so, over the connection's life */
	__u32 segments; /* with data, sent over the connection's life */
	__u32 own_queue; /* packets in the queueing discipline that the socket's segments go to */
	/* Of all: */
	__u16 arrival_ms; /* local time less the peer's timestamp (RFC 7323) of the last arrival, modulo 2^16; 0: not known */
	__u16 reserved;
};

/*
 * How the connection and the threads at both of its ends got on. Totals of their whole lives: what these changed by from one event to
 * the next is what happened between. Of operations that took SHORT_NS or longer; where `segments_out`, `requester` or `receiver` is 0,
 * what it stands for is not known.
 */
struct progress {
	__u64 pacing_rate; /* bytes a second; 0: not paced */
	__u64 delivery_rate; /* bytes a second, of TCP's newest sample */
	__u32 segments_out;
	__u32 segments_in;
	__u32 delivered; /* segments with data that the peer has acknowledged */
	__u32 timeouts; /* retransmission timeouts; 0 before Linux 6.7 */
	__u32 needless; /* segments that were sent again, and that the peer had (RFC 2883) */
	__u32 busy_ms; /* something was sent and not acknowledged, or was to be sent */
	__u32 window_ms; /* thereof, what was to be sent did not fit the peer's window */
	__u32 buffer_ms; /* thereof, the send buffer was full */
	__u32 requester; /* thread */
	__u32 requester_us; /* it was runnable, without a CPU */
	__u32 receiver; /* thread that took the answer */
	__u32 receiver_us;
	__u32 cpu_pressure_ms; /* of the requester's cgroup, some of its threads waited for a CPU (PSI) */
	__u32 memory_pressure_ms;
	__u32 application_limited; /* that sample: there was not always something to send */
	__u32 reserved;
};

/* What a record in the ring is. */
enum ring_kind {
	RING_EVENT = 1,
	RING_MAPPED = 2,
	RING_STAMP = 3,
};

/* How every record in the ring begins. */
struct ring_head {
	__u16 kind; /* enum ring_kind */
	__u16 size; /* of the whole record */
};

/* The same is asserted in Rust (ring.rs). */
#define ASSERT_RING_RECORD(type, bytes)                                                          \
	_Static_assert(sizeof(struct type) == (bytes) && !__builtin_offsetof(struct type, head), \
		       "a record in the ring begins with its head, and is as large as user space takes it for")

/* Times in nanoseconds of CLOCK_MONOTONIC; what a probe cannot know is zero. */
struct event {
	struct ring_head head;
	__u32 request; /* vfs: flags, mode or command, as the operation has them */
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
	__u64 inode; /* cephproxy: the connection's own number of it, or of a file or directory */
	__u64 offset; /* vfs: where in the file */
	__u64 asked; /* vfs, mpiio, cephproxy: bytes asked for */
	__u32 tree; /* NFS: the session's slot */
	__u32 pid; /* thread group */
	__u32 tid;
	__u32 uid;
	__u32 status; /* the protocol's own */
	__u32 error; /* errno, positive */
	struct network network;
	__u32 weight; /* operations that this event stands for */
	__u16 operation;
	__u8 probe;
	__u8 flags;
	__u32 caller;
	__u32 sequence; /* NFS: of the slot */
	__u32 resent; /* NFS: how often the call was sent again */
	struct transit transit;
	struct progress progress;
	char comm[COMM_LENGTH];
	char file[FILE_LENGTH];
};

ASSERT_RING_RECORD(event, 448);

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
	__u16 error;
	__u16 arrival_ms; /* this and the next two: as in struct network */
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
	__u64 sizes[SIZE_BUCKETS]; /* those that moved bytes, by floor(log2(bytes)); the last: from 2^31 on */
};

/* Who asked, if that is wanted at all (settings.account). A zero is what was not asked for, or is not known. */
enum account {
	ACCOUNT_NOBODY,
	ACCOUNT_CGROUP, /* the process where the cgroup is not known: a worker of the kernel's ends the operation */
	ACCOUNT_PROCESS,
};

/* All zero but operation and probe: whatever found no room. */
struct usage_key {
	__u64 mount;
	__u64 cgroup;
	__u32 pid;
	__u16 operation;
	__u8 probe;
	__u8 reserved;
};

struct usage {
	__u64 calls;
	__u64 bytes;
	__u64 ns;
	__u64 errors;
	__u32 sizes[SIZE_BUCKETS]; /* as of histograms */
	__u32 buckets[HISTOGRAM_BUCKETS]; /* likewise */
	char comm[COMM_LENGTH]; /* of the first that asked; empty where that was no longer to be known */
};

/* Per probe and CPU. produced = what user space consumes + LOST_RING, exactly. */
enum counter {
	COUNT_STARTED, /* operations seen to start */
	COUNT_FINISHED, /* operations seen to finish, of those */
	COUNT_PRODUCED, /* events meant for the ring */
	COUNT_LOST_RING, /* of those, events that found it full */
	COUNT_LOST_INFLIGHT, /* operations not timed: the in-flight map was full */
	COUNT_LOST_HISTOGRAM, /* operations not counted: the histogram map was full */
	COUNT_OTHER_USAGE, /* operations counted in nobody's name: the usage map was full */
	COUNT_SAMPLED_OUT, /* events left out on purpose while flooded; the others' weight makes up for them */
	COUNT_SWEPT, /* in-flight entries that never finished and were removed by age */
	COUNT_NEVER_SENT, /* SMB: waits for credits that led to no command; NFS: operations that ended before they were sent */
	COUNT_BYTES_UNKNOWN, /* mpiio: operations that are missing in the histograms' bytes */
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
	__u32 account; /* enum account */
	__u32 reserved;
	__u64 threshold[ALL_OPERATIONS]; /* nanoseconds; all ones: never an event for being slow */
	__u8 failures[ALL_OPERATIONS]; /* 1: a failure is an event, however fast */
	__u32 ordinary[MAX_PROBES *
		       MAX_ORDINARY]; /* but for these: the protocol's status, where it has none the errno */
};

/* For other programs: how the pinned maps are laid out. */
struct maps_layout {
	__u32 version; /* MAPS_VERSION */
	__u32 histogram_buckets;
	__u32 size_buckets;
	__u32 counters; /* for each probe */
};

/* For other programs: what the mount in a key means. */
struct mount_entry {
	char fstype[32];
	char mountpoint[SOURCE_LENGTH];
	char source[SOURCE_LENGTH];
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

/* In the same ring as events: a process has mapped a file that none has mapped before. */
struct mapped {
	struct ring_head head;
	__u32 pid;
	__u64 device;
	__u64 inode;
	__u32 probe; /* whose libraries it may be one of */
	__u32 reserved;
};

ASSERT_RING_RECORD(mapped, 32);

/* What the numbers in a histogram's key mean; at index probe * MAX_OPERATIONS + operation. */
struct named_operation {
	char probe[PROBE_LENGTH];
	char operation[OPERATION_LENGTH];
};
