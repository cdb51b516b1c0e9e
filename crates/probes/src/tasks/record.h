/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What iterators over tasks give. The Rust types are generated from it, as from bpf/event.h. docs/processes.md has it byte by byte. */
#pragma once

#include <linux/types.h>

enum {
	WAIT_DEPTH = 8, /* frames of the scheduler's own below a wait channel, at most */
	STACK_DEPTH = 64,
	MAX_STACK_PROCESSES = 64,
	MAX_SAMPLED_THREADS = 128,
	SYMBOL_LENGTH = 112,
	PATH_LENGTH = 4096, /* PATH_MAX; a power of two */
	TASK_NAME = 16, /* TASK_COMM_LEN, and enough for a file system's type */
};

/* A process, or a thread. For a process, the sums are those of all its threads, including those that have ended. */
struct task_record {
	__u64 start; /* CLOCK_BOOTTIME, nanoseconds */
	__u64 cpu_ns;
	__u64 rss_pages; /* what /proc/PID/stat has: up to a few pages for each CPU beside the truth */
	__u64 read_chars; /* asked of read(2) and its like */
	__u64 written_chars;
	__u64 read_bytes; /* caused to be read from storage */
	__u64 written_bytes;
	__u64 cgroup; /* id, version 2 */
	__u32 pid; /* of the thread */
	__u32 tgid; /* of the process */
	__u32 ppid;
	__u32 uid; /* real */
	__u32 gid;
	__u32 threads;
	char comm[TASK_NAME];
	__u8 state; /* the letter of /proc/PID/stat */
	__u8 kernel; /* a thread of the kernel's own */
	__u8 reserved[22];
};

_Static_assert(sizeof(struct task_record) == 128, "two cache lines each");

/* The wanted fields, set before the program is loaded: the verifier removes the code for the others. */
struct walk_options {
	__u32 threads; /* a record for each thread */
	__u32 nothing; /* walk only, to see what the kernel's own part takes */
};

/* Where a thread sleeps. */
struct wait_record {
	__u64 address; /* in the function */
	__u32 pid;
	__u32 reserved;
};

struct wait_options {
	/* .sched.text: a task sleeps in the innermost function outside this section. */
	__u64 scheduler_from;
	__u64 scheduler_to;
	__u32 threads; /* also of those that are not the first of their process */
	__u32 reserved;
};

/* In: the address. Out: its symbol. */
struct symbol {
	__u64 address;
	__u32 with_offset;
	__u32 reserved;
	char name[SYMBOL_LENGTH];
};

/* An open file; `path_length` bytes of its path follow. */
struct file_record {
	__u64 inode;
	__u64 position;
	__u32 tgid;
	__u32 fd;
	__u32 device; /* major << 20 | minor */
	__u32 mount; /* id, as in mountinfo */
	__u32 flags; /* as open(2) has them */
	__u32 mode; /* st_mode */
	__u32 path_length; /* 0: the kernel did not say */
	char comm[TASK_NAME];
	char fstype[TASK_NAME];
	char subtype[TASK_NAME]; /* of FUSE: what comes behind the dot */
	__u32 reserved;
};

/* Where a thread is in the kernel; `depth` addresses follow, the innermost first. */
struct stack_record {
	__u32 pid;
	__u32 tgid;
	__u32 depth;
	char comm[TASK_NAME];
	__u8 state;
	__u8 on_cpu; /* the thread runs just now */
	__u8 kernel_thread;
	__u8 reserved;
	__u64 switches; /* context switches so far: while asleep, the number does not change */
};

struct stack_options {
	__u32 processes[MAX_STACK_PROCESSES]; /* whose stacks are wanted whatever their threads do; 0: none */
	__u32 sampling; /* not 0: the threads in the map `sampled`, and those of the kernel that take answers or are blocked; no others */
};

/* A TCP or UDP socket. IPv4 addresses are ::ffff:1.2.3.4; ports in the machine's byte order. */
struct socket_record {
	__u64 inode; /* of its file; 0: it has no file any more */
	__u8 local[16];
	__u8 remote[16];
	__u32 send_queue; /* TCP: bytes written and not acknowledged */
	__u32 receive_queue; /* TCP: bytes received and not read */
	__u16 local_port;
	__u16 remote_port;
	__u8 protocol; /* IPPROTO_TCP, IPPROTO_UDP */
	__u8 state; /* include/net/tcp_states.h */
	__u16 reserved;
};

/* A part of a process's memory that a file is mapped to; `path_length` bytes of the file's path follow. */
struct area_record {
	__u64 start;
	__u64 end;
	__u64 inode;
	__u32 tgid;
	__u32 device; /* major << 20 | minor */
	__u32 flags; /* VM_READ 1, VM_WRITE 2, VM_EXEC 4, VM_SHARED 8 */
	__u32 path_length;
};
