/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Types of the CephFS client (fs/ceph/mds_client.h, super.h) and of libceph (include/linux/ceph/osd_client.h, messenger.h), as
 * Linux 6.1 to 7.3 have them.
 */
#pragma once

#include "../bpf/kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ceph_entity_addr {
	struct __kernel_sockaddr_storage in_addr;
};

struct ceph_entity_name {
	__u8 type; /* ENTITY_* */
};

struct ceph_connection {
	void *private; /* of a metadata server: struct ceph_mds_session; of an OSD: struct ceph_osd */
	struct {
		int counter;
	} sock_state; /* SOCKET_CONNECTED, or another */
	struct socket *sock; /* NULL: there is none now */
	struct ceph_entity_name peer_name;
	struct ceph_entity_addr peer_addr;
};

struct ceph_mds_info {
	__s32 state; /* CEPH_MDS_STATE_*: below or equal to 0 out, 13 active */
	bool laggy; /* the monitors hear nothing of it */
};

struct ceph_mdsmap {
	int possible_max_rank; /* length of m_info */
	struct ceph_mds_info *m_info;
};

struct ceph_fs_client;

struct ceph_client {
	void *private; /* CephFS: struct ceph_fs_client */
	void *extra_mon_dispatch; /* NULL: the client is not CephFS's, but an RBD device's */
};

struct ceph_fs_client {
	struct super_block *sb;
	bool blocklisted;
};

struct ceph_mds_client {
	struct ceph_fs_client *fsc;
	struct ceph_mdsmap *mdsmap;
};

struct ceph_mds_session {
	struct ceph_mds_client *s_mdsc;
	int s_mds; /* the rank */
	int s_state; /* SESSION_OPEN, or another */
	struct ceph_connection s_con;
};

struct ceph_msg_header {
	__u16 type; /* little-endian */
};

struct kvec {
	void *iov_base;
};

struct ceph_msg {
	struct ceph_msg_header hdr;
	struct kvec front;
};

struct ceph_mds_session_head {
	__u32 op; /* little-endian */
};

struct ceph_mds_reply_head {
	__u32 result; /* 0 or a negative errno, little-endian */
};

struct ceph_mds_reply_info_parsed {
	struct ceph_mds_reply_head *head;
};

struct kref {
	struct {
		struct {
			int counter;
		} refs;
	} refcount;
};

struct ceph_mds_request {
	__u64 r_tid;
	struct ceph_mds_client *r_mdsc;
	struct kref r_kref;
	int r_op;
	struct inode *r_inode;
	struct dentry *r_dentry;
	struct inode *r_target_inode; /* what the answer was about */
	unsigned long r_req_flags; /* bits: REQUEST_* */
	struct ceph_mds_reply_info_parsed r_reply_info;
	int r_err; /* 0 or a negative errno that no metadata server has answered */
	unsigned long r_end_latency; /* nanoseconds of CLOCK_MONOTONIC: when it was completed */
	struct ceph_mds_session *r_session; /* the session that it was sent to last */
	int r_attempts; /* how often it was sent */
	int r_num_fwd; /* how often a metadata server has sent the client to another one */
};

struct ceph_cap {
	struct ceph_mds_session *session;
};

struct netfs_inode {
	struct inode inode;
};

struct ceph_inode_info {
	struct netfs_inode netfs;
	struct ceph_cap *i_auth_cap;
};

struct ceph_object_id {
	char *name;
};

struct ceph_osd_request_target {
	struct ceph_object_id base_oid;
	int osd; /* -1: there is none for it now */
};

struct ceph_osd_client {
	struct ceph_client *client;
};

struct ceph_osd {
	struct ceph_osd_client *o_osdc;
	int o_osd;
	struct ceph_connection o_con;
};

struct ceph_osd_req_op {
	__u16 op;
	struct {
		__u64 length;
	} extent;
};

struct ceph_osd_request {
	__u64 r_tid;
	struct ceph_osd *r_osd; /* NULL: no OSD has it now */
	struct ceph_osd_request_target r_t;
	unsigned int r_num_ops;
	int r_result; /* bytes read, 0, or a negative errno */
	struct ceph_osd_client *r_osdc;
	struct kref r_kref;
	int r_attempts; /* how often it was sent */
	struct ceph_osd_req_op r_ops[];
};

#pragma clang attribute pop

/* con_sock_state_* of net/ceph/messenger.c; CEPH_MDS_SESSION_* of fs/ceph/mds_client.h; CEPH_MSG_* and CEPH_SESSION_* of
 * include/linux/ceph/ceph_fs.h. */
enum { SOCKET_CONNECTED = 3, SESSION_OPEN = 3, SESSION_HUNG = 4, MESSAGE_OF_SESSION = 22 };
enum { SESSION_CLOSED = 3, SESSION_STALE = 6, SESSION_REJECTED = 11 };

/* CEPH_ENTITY_TYPE_* of include/linux/ceph/msgr.h */
enum { ENTITY_MDS = 2, ENTITY_OSD = 4 };

/* Bits of r_req_flags (CEPH_MDS_R_*), unchanged since Linux 4.12. */
enum { REQUEST_ABORTED = 1 << 2, REQUEST_GOT_RESULT = 1 << 5, REQUEST_ASYNC = 1 << 8 };
