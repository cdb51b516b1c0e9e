// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Events of the SMB client: it loses its connection and sets it up again, loses its session, answers a lease or oplock
 * break too late, or gets no credits. cifs_reconnect runs in the connection's own thread from the loss until TCP is
 * connected again.
 */
#include "../bpf/names.h"
#include "connections.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Samba takes a lease back after 30 s without an answer, Windows after 35 (MS-SMB2 3.3.2.1). */
#define BREAK_TIMEOUT_NS 30000000000ULL

enum { MAX_THREADS = 4096 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

enum statusEnum { SERVER_EXITING = 2 /* CifsExiting */ };

struct TCP_Server_Info {
	enum statusEnum tcpStatus;
	struct socket *ssocket;
	struct __kernel_sockaddr_storage dstaddr;
};

struct cifs_ses {
	struct TCP_Server_Info *server;
};

struct cifs_tcon {
	struct cifs_ses *ses;
};

struct tcon_link {
	struct cifs_tcon *tl_tcon;
};

struct work_struct {
};

struct cifsFileInfo {
	struct tcon_link *tlink;
	struct work_struct oplock_break;
};

#pragma clang attribute pop

/* A reconnection or the answer to a break that a thread is working on. */
struct under_way {
	__u64 since;
	__u64 server;
	struct peer peer;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, struct under_way);
} reconnecting SEC(".maps"), breaking SEC(".maps");

/* Threads to which the server has just answered that the session is gone. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, __u64);
} expired SEC(".maps");

static __always_inline void read_server(struct peer *peer, const struct TCP_Server_Info *server)
{
	read_peer(peer, (const void *)server + bpf_core_field_offset(struct TCP_Server_Info, dstaddr));
}

static __always_inline int losing(const struct TCP_Server_Info *server)
{
	struct under_way entry = { .since = bpf_ktime_get_ns(), .server = (__u64)server };
	struct outcome o = { .operation = CONNECTION_LOST };
	__u32 thread = bpf_get_current_pid_tgid();
	__u16 port;

	/* The outer function has reported the loss already; or the last mount is gone, and its connection is closed. */
	if (bpf_map_lookup_elem(&reconnecting, &thread) || BPF_CORE_READ(server, tcpStatus) == SERVER_EXITING)
		return 0;
	read_server(&entry.peer, server);
	port = BPF_CORE_READ(server, ssocket, sk, __sk_common.skc_num);
	if (bpf_map_lookup_elem(&expired, &thread)) {
		bpf_map_delete_elem(&expired, &thread);
		o.operation = SESSION_LOST;
	} else {
		o.status = BPF_CORE_READ(server, ssocket, sk, __sk_common.skc_state);
	}
	bpf_map_update_elem(&reconnecting, &thread, &entry, BPF_ANY);
	happened(&o, &entry.peer, port, NULL, 0);
	return 0;
}

static __always_inline int connected(void)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct under_way *entry = bpf_map_lookup_elem(&reconnecting, &thread);
	struct outcome o = { .operation = RECONNECT };
	const struct TCP_Server_Info *server;
	struct peer peer;

	if (!entry)
		return 0;
	o.start = entry->since;
	peer = entry->peer;
	server = (void *)entry->server;
	bpf_map_delete_elem(&reconnecting, &thread);
	if (BPF_CORE_READ(server, tcpStatus) != SERVER_EXITING)
		happened(&o, &peer, BPF_CORE_READ(server, ssocket, sk, __sk_common.skc_num), NULL, 0);
	return 0;
}

static __always_inline int break_begins(const void *work)
{
	const struct cifsFileInfo *file = work - bpf_core_field_offset(struct cifsFileInfo, oplock_break);
	struct under_way entry = { .since = bpf_ktime_get_ns() };
	__u32 thread = bpf_get_current_pid_tgid();

	read_server(&entry.peer, BPF_CORE_READ(file, tlink, tl_tcon, ses, server));
	bpf_map_update_elem(&breaking, &thread, &entry, BPF_ANY);
	return 0;
}

static __always_inline int break_ends(void)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct under_way *entry = bpf_map_lookup_elem(&breaking, &thread);
	struct outcome o = { .operation = LEASE_BREAK_TIMEOUT };
	struct peer peer;

	if (!entry)
		return 0;
	o.start = entry->since;
	peer = entry->peer;
	bpf_map_delete_elem(&breaking, &thread);
	if (bpf_ktime_get_ns() - o.start >= BREAK_TIMEOUT_NS)
		happened(&o, &peer, 0, NULL, 0);
	return 0;
}

/* The server answered STATUS_NETWORK_SESSION_EXPIRED or STATUS_USER_SESSION_DELETED; cifs_reconnect follows. */
SEC("tp_btf/smb3_ses_expired")
int tp_expired(void *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&expired, &thread, &now, BPF_ANY);
	return 0;
}

/* Rung 1: fentry */

SEC("fentry/cifs_reconnect")
int fentry_losing(unsigned long long *ctx)
{
	return losing((void *)ctx[0]);
}

SEC("fexit/cifs_reconnect")
int fexit_connected(void *ctx)
{
	return connected();
}

/* Where cifs_reconnect only calls __cifs_reconnect or its DFS variant, compilers inline it into some of its callers. */
SEC("fentry/__cifs_reconnect")
int fentry_losing_inner(unsigned long long *ctx)
{
	return losing((void *)ctx[0]);
}

SEC("fexit/__cifs_reconnect")
int fexit_connected_inner(void *ctx)
{
	return connected();
}

SEC("fentry/cifs_oplock_break")
int fentry_break_begins(unsigned long long *ctx)
{
	return break_begins((void *)ctx[0]);
}

SEC("fexit/cifs_oplock_break")
int fexit_break_ends(void *ctx)
{
	return break_ends();
}

/* A request got no credits for 60 s, the client's limit. Runs in the requester; knows only the server's name. */
SEC("tp_btf/smb3_credit_timeout")
int tp_no_credits(unsigned long long *ctx)
{
	struct outcome o = { .operation = CREDIT_STARVATION };
	struct peer nobody = {};
	__u32 zero = 0;
	struct mount_name *name = bpf_map_lookup_elem(&name_scratch, &zero);

	if (name) {
		__builtin_memset(name, 0, sizeof(*name));
		name->source[0] = name->source[1] = '\\';
		bpf_probe_read_kernel_str(name->source + 2, SOURCE_LENGTH - 2, (const void *)ctx[2]);
		o.mount = source_key(name);
		bpf_map_update_elem(&mount_names, &o.mount, name, BPF_NOEXIST);
	}
	o.pid = bpf_get_current_pid_tgid() >> 32;
	happened(&o, &nobody, 0, NULL, 0);
	return 0;
}

/* Rung 2: kprobe */

SEC("kprobe/cifs_reconnect")
int kprobe_losing(struct pt_regs *ctx)
{
	return losing((void *)PT_REGS_PARM1(ctx));
}

SEC("kretprobe/cifs_reconnect")
int kretprobe_connected(void *ctx)
{
	return connected();
}

SEC("kprobe/__cifs_reconnect")
int kprobe_losing_inner(struct pt_regs *ctx)
{
	return losing((void *)PT_REGS_PARM1(ctx));
}

SEC("kretprobe/__cifs_reconnect")
int kretprobe_connected_inner(void *ctx)
{
	return connected();
}

SEC("kprobe/cifs_oplock_break")
int kprobe_break_begins(struct pt_regs *ctx)
{
	return break_begins((void *)PT_REGS_PARM1(ctx));
}

SEC("kretprobe/cifs_oplock_break")
int kretprobe_break_ends(void *ctx)
{
	return break_ends();
}
