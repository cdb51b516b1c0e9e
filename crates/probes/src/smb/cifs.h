/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Types of the SMB client (fs/smb/client/cifsglob.h) and of the wire (MS-SMB2). */
#pragma once

#include "../bpf/event.h"
#include "../bpf/kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct TCP_Server_Info {
	struct list_head smb_ses_list;
	__u64 conn_id;
	int credits; /* left to send with */
	char *hostname;
	struct socket *ssocket;
	struct __kernel_sockaddr_storage dstaddr;
	struct TCP_Server_Info *primary_server; /* of a multichannel connection; NULL for the primary itself */
};

struct cifs_tcon {
	struct list_head tcon_list;
	char tree_name[SOURCE_LENGTH];
	__u32 tid;
};

struct cifs_ses {
	struct list_head smb_ses_list;
	struct list_head tcon_list;
	struct cifs_tcon *tcon_ipc;
	__u64 Suid;
};

struct mid_q_entry {
	__u64 mid;
	__u16 command;
	unsigned long when_alloc; /* jiffies */
	unsigned long when_sent;
	int mid_state;
	struct task_struct *creator;
	void *callback_data;
	void *resp_buf;
};

/* While a mid knew its server: __release_mid(struct kref *), dequeue_mid(mid, malformed). Since it does not (before 7.2),
 * these are __release_mid(server, mid) and dequeue_mid(server, mid, malformed). */
struct kref {
};

struct mid_q_entry___with_server {
	struct kref refcount;
	struct TCP_Server_Info *server;
};

/* The request behind an asynchronous READ, with the answer's header in its first vector: 6.1, then 6.12 and later. */
struct kvec {
	void *iov_base;
};

struct cifs_readdata {
	struct kvec iov[2];
};

struct cifs_io_subrequest {
	struct kvec iov[2];
};

#pragma clang attribute pop

/* MS-SMB2 2.2.1.2, and the length that READ and WRITE have at the same place in request (2.2.19, 2.2.21) and answer (2.2.20, 2.2.22). */
struct smb2_head {
	__u32 protocol;
	__u16 size;
	__u16 credit_charge;
	__u32 status;
	__u16 command;
	__u16 credits;
	__u32 flags;
	__u32 next_command;
	__u64 message;
	__u32 process;
	__u32 tree;
	__u64 session;
	__u8 signature[16]; /* the kernel's struct smb2_hdr ends here */
	__u32 body;
	__u32 length;
	__u32 remaining; /* READ answers only: the length of data that went by RDMA */
};

_Static_assert(__builtin_offsetof(struct smb2_head, remaining) == 72, "as on the wire");

enum {
	MID_FREE = 0, /* set by __release_mid (cifsglob.h, as the others) */
	/* MID_RESPONSE_RECEIVED, MID_RESPONSE_MALFORMED, MID_RESPONSE_READY (cifsglob.h) */
	MID_ANSWERED = 0x4 | 0x10 | 0x40,
	SMB2_NEGOTIATE = 0,
	SMB2_SESSION_SETUP = 1,
	SMB2_TREE_CONNECT = 3,
	SMB2_READ = 8,
	SMB2_WRITE = 9,
	STATUS_MORE_PROCESSING_REQUIRED = (int)0xc0000016,
	SMB2_FLAGS_ASYNC_COMMAND = 0x2,
	SMB2_FLAGS_RELATED_OPERATIONS = 0x4,
};
