/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The interface between BPF programs and user space: events, flight records, histograms and counters; and the settings.
 * The Rust types are generated from this header's BTF (shared.bpf.c), never written by hand.
 */
#pragma once

#include <linux/types.h>

/* One for each probe. Numbers never change, since the keys of pinned maps contain them. */
enum probe_id {
	PROBE_SMB = 1,
	PROBE_SYSCALLS = 2,
	PROBE_NFS = 3,
	PROBE_VFS = 4,
	PROBE_CONNECTIONS = 5,
	PROBE_MPIIO = 6,
	PROBE_TCP = 7,
	PROBE_CEPHPROXY = 8,
	PROBE_FUSE = 9,
	PROBE_OWN = 10, /* the first of those that a site defines itself */
	PROBE_OWN_END = 16, /* the number behind their last */
	PROBE_SERVER = 16,
	PROBE_CEPH = 17,
	MAX_PROBES = 32, /* a power of two */
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
	MAPS_VERSION = 1, /* increases when a pinned map no longer is as docs/maps.md describes it */
	MAX_ORDINARY = 32, /* codes of ordinary failures, per probe */
};

enum event_flags {
	EVENT_COMPOUND = 1 << 0,
	EVENT_ASYNCHRONOUS = 1 << 1,
	EVENT_UNANSWERED = 1 << 2,
	EVENT_NETWORK_KNOWN = 1 << 3,
	EVENT_FAILED = 1 << 4, /* by the protocol's own measure: an SMB warning is no failure */
	EVENT_BY_KERNEL = 1 << 5, /* CALLER_KERNEL, where there is no room for the caller */
	EVENT_BYTES_UNKNOWN = 1 << 6, /* mpiio: bytes were or may have been moved, and their number is not known */
};

/* The layer above an operation: one of these, or the number of a system call plus one. */
enum caller {
	CALLER_UNKNOWN = 0,
	CALLER_KERNEL = 0xfffe, /* a thread of the kernel's own: writeback, readahead, a worker */
	CALLER_PAGE_FAULT = 0xffff,
};

/* The timing of an operation's own sends, and of sends on its connection that cannot be told from them. */
struct transit {
	__u32 sends; /* acknowledged when the operation ended; 0: the other fields are not valid */
	__u32 local_us; /* the longest from TCP to the driver: in this host's queueing discipline */
	__u32 held_us; /* the longest in TCP's own queue: waiting for window, or paced */
	__u32 least_us; /* the shortest from the driver to the acknowledgement */
	__u32 most_us; /* the longest from the driver to the acknowledgement */
	__u32 retransmitted; /* how often segments of these sends were sent again */
};

/* The server's connection: the state of its socket just after the answer was read from it. */
struct network {
	__u32 srtt_us;
	__u32 rtt_us; /* the newest sample */
	__u32 retransmits; /* segments sent again over the connection's life, less those that the peer calls needless */
	/* For operations that took SHORT_NS or longer: */
	__u32 min_rtt_us; /* TCP's own minimum of the last minutes (net.ipv4.tcp_min_rtt_wlen) */
	__u32 unread_us; /* since data last arrived, to a jiffy: the answer waited in the socket at least as long */
	__u32 out_of_order; /* segments that arrived out of order over the connection's life */
	__u32 segments; /* segments with data sent over the connection's life */
	__u32 own_queue; /* packets in the socket's queueing discipline */
	/* For all operations: */
	__u16 arrival_ms; /* local time less the peer's timestamp (RFC 7323) of the last arrival, modulo 2^16; 0: not known */
	/* For events of connections only: */
	__u16 sacked; /* segments that the peer acknowledged although an earlier one is missing (RFC 2018); saturates */
};

/*
 * Counts of the connection, and of the threads that request and receive. They are totals since each began, so their
 * growth from one event to the next is what happened between. Filled in for operations that took SHORT_NS or longer. If
 * `segments_out`, `requester` or `receiver` is 0, that part is not known.
 */
struct progress {
	__u64 pacing_rate; /* bytes a second; 0: not paced */
	__u64 delivery_rate; /* bytes a second, of TCP's newest sample */
	__u32 segments_out;
	__u32 segments_in;
	__u32 delivered; /* segments with data that the peer has acknowledged */
	__u32 timeouts; /* retransmission timeouts; 0 before Linux 6.7 */
	__u32 needless; /* segments sent again although the peer had them (RFC 2883) */
	__u32 busy_ms; /* time with data to send, or sent and not acknowledged */
	__u32 window_ms; /* part of busy_ms: the data to send did not fit the peer's window */
	__u32 buffer_ms; /* part of busy_ms: the send buffer was full */
	__u32 requester; /* thread id */
	__u32 requester_us; /* how long it was runnable without a CPU */
	__u32 receiver; /* id of the thread that read the answer */
	__u32 receiver_us; /* how long it was runnable without a CPU */
	__u32 cpu_pressure_ms; /* some threads of the requester's cgroup waited for a CPU (PSI) */
	__u32 memory_pressure_ms; /* some threads of the requester's cgroup waited for memory (PSI) */
	__u16 mss; /* the most data that TCP sends in a segment, bytes */
	__u16 route_mtu; /* set on this host's route to the peer, bytes; 0: none, or not known (IPv6, IPsec) */
	__u16 port; /* the peer's */
	__u8 by_loopback; /* data last came in by the loopback interface */
	__u8 application_limited; /* delivery_rate's sample: there was not always data to send */
	__u32 requester_began_us; /* requester_us when the operation began; 0: not known */
	__u32 own_window; /* the receive window that this host offered last, bytes; 0: not known */
};

/* The kinds of records in the ring. */
enum ring_kind {
	RING_EVENT = 1,
	RING_MAPPED = 2,
	RING_STAMP = 3,
};

/* The beginning of every record in the ring. */
struct ring_head {
	__u16 kind; /* enum ring_kind */
	__u16 size; /* of the whole record */
};

/* The same is asserted in Rust (ring.rs). */
#define ASSERT_RING_RECORD(type, bytes)                                                          \
	_Static_assert(sizeof(struct type) == (bytes) && !__builtin_offsetof(struct type, head), \
		       "a record in the ring begins with its head, and is as large as user space takes it for")

/* An operation that user space asked to see. Times in nanoseconds of CLOCK_MONOTONIC; unknown fields are zero. */
struct event {
	struct ring_head head;
	__u32 request; /* vfs: flags, mode or command, as the operation has them; connections: struct remark's ttl */
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
	__u64 inode; /* cephproxy: the connection's own number of the inode, or of a file or directory */
	__u64 offset; /* vfs: offset in the file */
	__u64 asked; /* vfs, mpiio, cephproxy: bytes requested */
	__u32 tree; /* NFS: the session's slot; FUSE: the daemon's process; connections: struct remark's server_ttl */
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
	__u32 sequence; /* NFS: the slot's sequence number */
	__u32 resent; /* NFS: how often the call was sent again */
	struct transit transit;
	struct progress progress;
	char comm[COMM_LENGTH];
	char file[FILE_LENGTH]; /* server: the client's address, if that is one of version 6 */
};

ASSERT_RING_RECORD(event, 456);

/* One finished operation in the flight recorder, which holds all operations: hence small. Times in microseconds. */
struct record {
	__u64 end; /* nanoseconds; 0 while the record is being written */
	__u64 mount;
	__u32 duration_us;
	__u32 queue_us;
	__u32 wire_us; /* if queue or wire is known, the rest of the duration is deliver */
	__u32 pid;
	__u32 tid; /* the requester's */
	__u32 status;
	__u16 error;
	__u16 arrival_ms; /* this and the next two: as in struct network */
	__u32 bytes;
	__u32 rtt_us;
	__u32 retransmits; /* server: the request's xid */
	__u16 operation;
	__u8 probe;
	__u8 flags;
	__u32 connection;
};

_Static_assert(sizeof(struct record) == 64, "a cache line each");

/* The beginning of every entry of an in-flight map: what user space reads of operations that have not returned. */
struct flight {
	__u64 start; /* 0: finished; the entry is kept for reuse. 1: it is only being filled in (bpf/slots.h) */
	__u64 used; /* when the entry was last taken into use */
	__u64 mount;
	__u64 connection;
	__u64 session;
	__u64 message;
	__u64 object; /* address of the kernel's object for it, where it is kept by that in an array (bpf/slots.h) */
	__u32 tree;
	__u32 pid;
	__u32 tid;
	__u16 operation;
	__u8 probe;
	__u8 flags;
	__u32 caller;
	__u32 displaced; /* there: it is not in one of its own slots */
};

/* What a thread is doing. */
struct thread {
	__u32 tid;
	__s32 call; /* number of its current or last system call; negative: an exception or an interrupt */
	__u8 asleep;
	__u8 no_file; /* the call's first argument is a descriptor of neither a file nor a directory */
	__u8 without_calls; /* a kernel thread, or one of another instruction set: the other fields are not valid */
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
	__u64 sizes[SIZE_BUCKETS]; /* operations that moved bytes, by floor(log2(bytes)); the last: from 2^31 on */
};

/* By which requester operations are counted (settings.account). A zero in a usage_key is not wanted or not known. */
enum account {
	ACCOUNT_NOBODY,
	ACCOUNT_CGROUP, /* the process where the cgroup is not known because a kernel worker ends the operation */
	ACCOUNT_PROCESS,
};

/* A key with only operation and probe counts all operations for which there was no room. */
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
	__u32 sizes[SIZE_BUCKETS]; /* as in struct histogram */
	__u32 buckets[HISTOGRAM_BUCKETS]; /* as in struct histogram */
	char comm[COMM_LENGTH]; /* of the process's first thread seen; empty if not known */
};

/* Counters per probe and CPU. COUNT_PRODUCED is exactly the events that user space consumes plus COUNT_LOST_RING. */
enum counter {
	COUNT_STARTED, /* operations seen to start */
	COUNT_FINISHED, /* operations seen to finish, of those */
	COUNT_PRODUCED, /* events meant for the ring */
	COUNT_LOST_RING, /* of those, events lost because the ring was full */
	COUNT_LOST_INFLIGHT, /* operations not timed: the in-flight map was full */
	COUNT_LOST_HISTOGRAM, /* operations not counted: the histogram map was full */
	COUNT_OTHER_USAGE, /* operations counted without a requester: the usage map was full */
	COUNT_SAMPLED_OUT, /* events left out by sampling; the other events' weight compensates for them */
	COUNT_SWEPT, /* in-flight entries that never finished and were removed by age */
	COUNT_NEVER_SENT, /* SMB: waits for credits that led to no command; NFS: operations that ended before they were sent */
	COUNT_BYTES_UNKNOWN, /* mpiio: operations whose bytes are missing in the histograms */
	MAX_COUNTERS,
	ALL_COUNTERS = MAX_PROBES * MAX_COUNTERS,
	COUNT_RECORDED = 0, /* at probe 0, for all probes: records written, that is, the recorder's head */
};

struct settings {
	__u64 mount; /* only this mount; 0: all */
	__u64 wake_bytes; /* wake user space once this many bytes wait in the ring; 0: with every event */
	__u32 pid; /* only this process; 0: all */
	__u32 errors_only;
	__u32 sample_shift; /* one event in 2^this */
	__u32 any_filesystem; /* syscalls: not only network file systems and FUSE */
	__u32 own_pid; /* Plumbline's own process, which is never watched */
	__u32 magic; /* vfs: only file systems with this magic number; 0: all that are watched */
	__u32 account; /* enum account */
	__u32 reserved;
	__u64 threshold[ALL_OPERATIONS]; /* nanoseconds; all ones: no duration makes an event */
	__u8 failures[ALL_OPERATIONS]; /* 1: a failure is an event, however fast */
	__u32 ordinary[MAX_PROBES *
		       MAX_ORDINARY]; /* codes that are no event: the protocol's status, or the errno without one */
};

/* Settings that are fixed when the programs are loaded: the verifier leaves out what they rule out. */
struct fixed_settings {
	__u64 tick_ns; /* length of a jiffy, nanoseconds */
	__u32 recorder_mask; /* records per CPU, less one */
	__u32 mount_namespace; /* inode number of the mount namespace whose mount points are known */
	__u32 only_followed; /* only the processes in the map `followed`, and threads of the kernel */
	__u32 accounts; /* there is room in `usage` */
};

/* For other programs: the layout of the pinned maps. */
struct maps_layout {
	__u32 version; /* MAPS_VERSION */
	__u32 histogram_buckets;
	__u32 size_buckets;
	__u32 counters; /* for each probe */
};

/* For other programs: the mount that a key stands for. */
struct mount_entry {
	char fstype[32];
	char mountpoint[SOURCE_LENGTH];
	char source[SOURCE_LENGTH];
};

/* What a hashed mount key stands for, as the kernel names it. */
struct mount_name {
	__u64 connection;
	/* SMB: \\server\share, or \\server for commands that belong to no share; NFS: "server:" */
	char source[SOURCE_LENGTH];
	__u16 family; /* AF_INET, AF_INET6 */
	__u8 port[2]; /* network byte order */
	__u8 address[16];
	__u32 reserved;
};

/* In the same ring as events: a process has mapped a file that no process has mapped before. */
struct mapped {
	struct ring_head head;
	__u32 pid;
	__u64 device;
	__u64 inode;
	__u32 probe; /* the probe to whose libraries the file may belong */
	__u32 reserved;
};

ASSERT_RING_RECORD(mapped, 32);

/* The names of the probe and the operation at index probe * MAX_OPERATIONS + operation. */
struct named_operation {
	char probe[PROBE_LENGTH];
	char operation[OPERATION_LENGTH];
};
