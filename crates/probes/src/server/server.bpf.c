// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Times every request to the kernel's NFS server, version 3 and 4, while it is on this host:
 *
 *   arrived    all of it is in the socket           svcsock_data_ready (arrivals.h)
 *   received   a thread has read it                 svcsock_tcp_recv, and rq_stime, which the server notes itself
 *   exported   the thread knows which export        rqst_exp_find, at its return
 *   read       bytes of a file have been read       nfsd_read_io_done
 *   executed   the answer is ready                  svc_stats_latency
 *   sent       TCP has the answer                   svc_send
 *
 * A thread does one request at a time, so the thread's slot holds what is known of the request until the answer has been
 * sent. Only requests that the last program sees are counted: a request that is dropped is not counted.
 */
#include "../bpf/fields.h"
#include "../bpf/observe.h"
#include "arrivals.h"
#include "operation.h"
#include "svc.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	THREADS = 1024, /* a power of two: threads whose numbers are equal by it share a slot, and lose times then */
	/* Addresses of version 6 have numbers that no unicast address of version 4 has (class E). */
	CLIENT_HASHED = 0xf0000000,
};

/* What a thread is doing. Times are nanoseconds of CLOCK_MONOTONIC. */
struct serving {
	__u32 tid;
	__u32 read; /* bytes */
	__u64 arrived; /* 0: not known, not by TCP */
	__u64 executed; /* 0: not yet */
	__u64 device; /* of the export's superblock; 0: not known */
};

struct serving threads[THREADS];

static __always_inline __u32 current_tid(void)
{
	return bpf_get_current_pid_tgid();
}

/* The slot of this thread; the slot may belong to another thread. */
static __always_inline struct serving *slot_of(__u32 tid)
{
	return &threads[tid & (THREADS - 1)];
}

static __always_inline struct serving *current_serving(void)
{
	__u32 tid = current_tid();
	struct serving *serving = slot_of(tid);

	if (serving->tid != tid)
		serving = NULL;
	/* Without this, the compiler compares the numbers again, not the pointer: the verifier does not understand that. */
	barrier_var(serving);
	return serving;
}

static __always_inline __u64 socket_of(const void *transport)
{
	return FIELD_BITS(64, struct svc_sock, transport, sk_sk);
}

SEC("tp_btf/svcsock_data_ready")
int tp_arrived(unsigned long long *ctx)
{
	const void *transport = (void *)ctx[0];
	__u64 socket;

	if (!transport)
		return 0;
	socket = socket_of(transport);
	if (socket)
		note_arrival(socket);
	return 0;
}

/* If a request came in parts, the last time counts. */
SEC("tp_btf/svcsock_tcp_recv")
int tp_received(unsigned long long *ctx)
{
	const void *transport = (void *)ctx[0];
	__u32 tid = current_tid();
	struct serving *serving = slot_of(tid);
	__u64 socket, since;

	if (!transport)
		return 0;
	socket = socket_of(transport);
	if (!socket)
		return 0;
	since = since_arrival(socket);
	serving->tid = tid;
	serving->read = 0;
	serving->arrived = bpf_ktime_get_ns() - since;
	serving->executed = 0;
	serving->device = 0;
	return 0;
}

/* The first export of a request: a RENAME or COPY has two. */
SEC("fexit/nfsd:rqst_exp_find")
int fexit_exported(unsigned long long *ctx)
{
	struct serving *serving = current_serving();
	const void *dentry, *superblock;
	__u64 found = 0;

	if (!serving || serving->device || bpf_get_func_ret(ctx, &found) || !found || found >= (__u64)-4095)
		return 0;
	dentry = (void *)FIELD_BITS(64, struct svc_export, found, ex_path.dentry);
	if (!dentry)
		return 0;
	superblock = KERNEL_FIELD(dentry, dentry, d_sb);
	if (superblock)
		serving->device = KERNEL_FIELD(super_block, superblock, s_dev);
	return 0;
}

/* The answer does not say how many bytes a READ of version 4 has read. At the end of a file, these are fewer than it asked
 * for. */
SEC("tp_btf/nfsd:nfsd_read_io_done")
int tp_read(unsigned long long *ctx)
{
	struct serving *serving = current_serving();

	if (serving)
		serving->read += (__u32)ctx[3];
	return 0;
}

SEC("tp_btf/svc_stats_latency")
int tp_executed(unsigned long long *ctx)
{
	struct serving *serving = current_serving();

	if (serving)
		serving->executed = bpf_ktime_get_ns();
	return 0;
}

struct client {
	__u32 number; /* an address of version 4 as it is, in this host's byte order; else CLIENT_HASHED and a hash */
	__u32 family;
	__u64 high, low; /* the address of version 6, as it lies in memory */
};

/* Twin of model's Served::client_number. */
static __always_inline void read_client(struct client *client, const struct svc_rqst *request)
{
	const char *address = (const char *)request + bpf_core_field_offset(struct svc_rqst, rq_addr);
	__u64 hash;

	client->family = KERNEL_BITS(32, address) & 0xffff;
	if (client->family != AF_INET6) {
		client->number = bpf_ntohl(KERNEL_BITS(32, address + 4));
		return;
	}
	client->high = KERNEL_BITS(64, address + 8);
	client->low = KERNEL_BITS(64, address + 16);
	/* ::ffff:a.b.c.d is one of version 4. */
	if (!client->high && (__u32)client->low == bpf_htonl(0xffff)) {
		client->number = bpf_ntohl(client->low >> 32);
		return;
	}
	hash = (client->high ^ (client->low << 32 | client->low >> 32)) * 0x9e3779b97f4a7c15;
	client->number = CLIENT_HASHED | hash >> 36;
}

SEC("tp_btf/svc_send")
int tp_sent(unsigned long long *ctx)
{
	const struct svc_rqst *request = (void *)ctx[0];
	struct outcome o = { .probe = PROBE_SERVER };
	struct serving *serving;
	struct client client = {};
	struct done done = {};
	__u64 received;
	struct event *e;

	if (!request || request->rq_prog != NFS_PROGRAM)
		return 0;
	o.end = bpf_ktime_get_ns();
	received = request->rq_stime;
	o.start = received;
	o.tid = current_tid();
	o.pid = o.tid;
	serving = current_serving();
	if (serving) {
		if (serving->arrived && serving->arrived < received)
			o.start = serving->arrived;
		if (serving->executed > received)
			o.wire = serving->executed - received;
		o.mount = serving->device;
		o.bytes = serving->read;
		serving->read = 0;
		serving->arrived = 0;
		serving->executed = 0;
		serving->device = 0;
	}
	o.queue = received - o.start;
	read_done(&done, request);
	o.operation = done.operation;
	o.status = done.status;
	if (done.written)
		o.bytes = done.written;
	if (done.status)
		o.flags = EVENT_FAILED;
	read_client(&client, request);
	o.connection = client.number;
	o.retransmits = bpf_ntohl(request->rq_xid); /* struct record has no other place for it */
	e = observe(&o);
	if (e) {
		e->message = o.retransmits;
		e->network.retransmits = 0;
		if (client.family == AF_INET6) {
			__builtin_memcpy(e->file, &client.high, sizeof(client.high));
			__builtin_memcpy(e->file + sizeof(client.high), &client.low, sizeof(client.low));
		}
		bpf_get_current_comm(e->comm, sizeof(e->comm));
		report(e);
	}
	return 0;
}
