// SPDX-License-Identifier: Apache-2.0
/*
 * A client of a daemon that ends and starts again. The client's reads, listings and queries continue. All data that was confirmed as on disk
 * is there. For everything else the client gets an error if it may be lost.
 *
 *	crash CEPH_CONF prepare		makes the files that load and hold use
 *	crash CEPH_CONF load [SECONDS]	threads that read, list, stat, write and make names for SECONDS, or until the end of
 *					standard input; prints the results
 *	crash CEPH_CONF ping		writes and reads back piece by piece; for each input line it prints how many ms the longest
 *					piece since the last line took; at the end, whether all data is there
 *	crash CEPH_CONF leave PID	writes a file, unmounts with the file open, and kills PID; prints the result of unmounting
 *	crash CEPH_CONF lose PID	likewise, but kills PID first
 *	crash CEPH_CONF left		prints whether the data that leave has written is there
 */
#include "lib/crash.h"
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#define PAUSES 64

static void prepare(void)
{
	static char data[SIZE];
	struct ceph_statx stx;
	struct Fh *fh;
	Inode *dir, *in;
	char name[32];

	in = make(root, "crash.read", O_TRUNC, &fh);
	fill(data, 0, 0, SIZE);
	MUST(ceph_ll_write(m, fh, 0, SIZE, data) - SIZE);
	MUST(ceph_ll_fsync(m, fh, 0));
	MUST(ceph_ll_close(m, fh));
	MUST(ceph_ll_put(m, in));
	/* The directory exists if the cluster is used again. */
	if (ceph_ll_mkdir(m, root, "crash.list", 0755, &dir, &stx, ALL, 0, perms) < 0)
		dir = look_up(root, "crash.list");
	for (int i = 0; i < ENTRIES; i++) {
		sprintf(name, "entry.%d", i);
		if (ceph_ll_lookup(m, dir, name, &in, &stx, ALL, 0, perms) == 0)
			continue;
		MUST(ceph_ll_mknod(m, dir, name, S_IFREG | 0644, 0, &in, &stx, ALL, 0, perms));
		MUST(ceph_ll_put(m, in));
	}
	puts("prepared");
}

/* The work and the results of a thread. */
struct load {
	const char *name;
	long (*step)(struct load *load);
	int number, pauses;
	long done, refused, wrong, failed;
	double pause[PAUSES], longest;
	/* private state of the thread */
	struct Fh *fh;
	Inode *in;
	uint64_t confirmed, seed;
	char file[32];
};

static struct load loads[];
static volatile double until;

static uint64_t noise(struct load *load)
{
	load->seed = load->seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return load->seed >> 20;
}

static long reads(struct load *load)
{
	static __thread char data[100000];
	uint64_t offset = noise(load) % (SIZE - sizeof(data));
	long length = ceph_ll_read(m, load->fh, offset, sizeof(data), data);

	if (length == (long)sizeof(data) && !right(data, 0, offset, length))
		load->wrong++;
	return length < 0 ? length : length == (long)sizeof(data) ? 0 : -EBADMSG;
}

/* Lists each name exactly once, even if the daemon ends meanwhile. */
static long lists(struct load *load)
{
	static __thread unsigned char seen[ENTRIES];
	struct ceph_dir_result *dir;
	struct dirent entry;
	long result = ceph_ll_opendir(m, load->in, &dir, perms);
	int number, names = 0;

	if (result < 0)
		return result;
	memset(seen, 0, sizeof(seen));
	while ((result = ceph_readdir_r(m, dir, &entry)) > 0) {
		if (sscanf(entry.d_name, "entry.%d", &number) == 1)
			names++, load->wrong += number < 0 || number >= ENTRIES || seen[number]++;
		usleep(100);
	}
	load->wrong += result == 0 && names != ENTRIES;
	return result < 0 ? result : ceph_ll_releasedir(m, dir);
}

static long stats(struct load *load)
{
	char name[32];
	struct ceph_statx stx;
	Inode *found;
	long result;

	sprintf(name, "entry.%d", (int)(noise(load) % ENTRIES));
	result = ceph_ll_lookup(m, load->in, name, &found, &stx, ALL, 0, perms);
	if (result < 0)
		return result;
	result = ceph_ll_getattr(m, found, &stx, ALL, 0, perms);
	load->wrong += result == 0 && !S_ISREG(stx.stx_mode);
	ceph_ll_put(m, found);
	return result < 0 ? result : ceph_ll_getattr(m, load->in, &stx, ALL, 0, perms);
}

/* The file may have lost data. Checks that all confirmed data is there. */
static void compare(struct load *load)
{
	static __thread char data[1 << 16];
	struct Fh *fh;

	MUST(ceph_ll_open(m, load->in, O_RDONLY, &fh, perms));
	for (uint64_t at = 0; at < load->confirmed; at += sizeof(data)) {
		long want = load->confirmed - at < sizeof(data) ? load->confirmed - at : sizeof(data);
		long have = ceph_ll_read(m, fh, at, want, data);

		if (have != want || !right(data, load->number, at, want))
			load->wrong++,
				printf("%s: %ld of %ld at %llu\n", load->file, have, want, (unsigned long long)at);
	}
	MUST(ceph_ll_close(m, fh));
}

/* Written data is on disk after a sync. Otherwise each call fails until the file is closed. */
static long written(struct load *load, long result, long length)
{
	char byte;

	if (result == 0)
		result = ceph_ll_fsync(m, load->fh, load->number % 2);
	if (result == 0) {
		load->confirmed += length;
		return 0;
	}
	if (result != -EIO)
		return result;
	load->refused++;
	load->wrong += ceph_ll_read(m, load->fh, 0, 1, &byte) != -EIO;
	load->wrong += ceph_ll_write(m, load->fh, 0, 1, &byte) != -EIO;
	load->wrong += ceph_ll_fsync(m, load->fh, 0) != -EIO;
	load->wrong += ceph_ll_close(m, load->fh) != -EIO;
	compare(load);
	MUST(ceph_ll_open(m, load->in, O_RDWR, &load->fh, perms));
	return 0;
}

static long writes(struct load *load)
{
	static __thread char data[BLOCK];
	long result;

	fill(data, load->number, load->confirmed, BLOCK);
	result = ceph_ll_write(m, load->fh, load->confirmed, BLOCK, data);
	return written(load, result == BLOCK ? 0 : result, BLOCK);
}

/* A name exists after it was made and is gone after it was removed. No operation is executed twice. */
static long names(struct load *load)
{
	struct ceph_statx stx;
	Inode *found;
	char name[32];
	long made, removed, there;

	sprintf(name, "crash.name.%d.%ld", getpid(), load->done);
	made = ceph_ll_mkdir(m, root, name, 0755, &found, &stx, ALL, 0, perms);
	if (made == 0)
		ceph_ll_put(m, found);
	load->refused += made == -EIO;
	there = ceph_ll_lookup(m, root, name, &found, &stx, ALL, 0, perms);
	if (there == 0)
		ceph_ll_put(m, found);
	load->wrong += made == 0 ? there != 0 : made != -EIO;
	if (there < 0)
		return there == -ENOENT ? 0 : there;
	removed = ceph_ll_rmdir(m, root, name, perms);
	load->refused += removed == -EIO;
	load->wrong += removed != 0 && removed != -EIO;
	if (removed == -EIO)
		ceph_ll_rmdir(m, root, name, perms);
	return 0;
}

static void called(struct io *io)
{
	sem_post(io->priv);
}

#define DEPTH 8
#define PIECE 3000

/* Starts DEPTH requests at once: reads, or writes that are then synced together. Callbacks come in any order. */
static long asynchronous(struct load *load, struct Fh *fh, uint64_t file, uint64_t at, bool write)
{
	static __thread char data[DEPTH * PIECE];
	struct io jobs[DEPTH];
	struct iovec parts[DEPTH];
	long result = 0;
	sem_t done;

	sem_init(&done, 0, 0);
	fill(data, file, at, sizeof(data));
	if (!write)
		memset(data, 0, sizeof(data));
	for (int i = 0; i < DEPTH; i++) {
		parts[i] = (struct iovec){ data + i * PIECE, PIECE };
		jobs[i] = (struct io){ .callback = called, .priv = &done, .fh = fh, .iov = &parts[i] };
		jobs[i].iovcnt = 1;
		jobs[i].off = at + i * PIECE;
		jobs[i].write = write;
		MUST(ceph_ll_nonblocking_readv_writev(m, &jobs[i]));
	}
	for (int i = 0; i < DEPTH; i++)
		sem_wait(&done);
	for (int i = 0; i < DEPTH; i++)
		if (jobs[i].result != PIECE)
			result = jobs[i].result < 0 ? jobs[i].result : -EBADMSG;
	if (!write && result == 0)
		load->wrong += !right(data, file, at, sizeof(data));
	return result;
}

static long async(struct load *load)
{
	long result = asynchronous(load, loads[0].fh, 0, noise(load) % (SIZE - DEPTH * PIECE), false);

	return result ? result :
			written(load, asynchronous(load, load->fh, load->number, load->confirmed, true), DEPTH * PIECE);
}

static void *run(void *arg)
{
	struct load *load = arg;

	while (now() < until) {
		double before = now(), pause;
		long result = load->step(load);

		pause = now() - before;
		if (pause > 0.1 && load->step != lists && load->pauses < PAUSES)
			load->pause[load->pauses++] = pause;
		load->longest = pause > load->longest ? pause : load->longest;
		load->done++;
		if (result < 0) {
			load->failed++;
			printf("%s: %ld\n", load->name, result);
		}
	}
	return NULL;
}

static struct load loads[] = {
	{ .name = "reads", .step = reads }, { .name = "lists", .step = lists },	  { .name = "stats", .step = stats },
	{ .name = "names", .step = names }, { .name = "writes", .step = writes }, { .name = "writes", .step = writes },
	{ .name = "async", .step = async },
};
#define LOADS ((int)(sizeof(loads) / sizeof(loads[0])))

static void load(double seconds)
{
	pthread_t thread[LOADS];
	Inode *list = look_up(root, "crash.list"), *read = look_up(root, "crash.read");

	until = now() + (seconds > 0 ? seconds : 1e6);
	for (int i = 0; i < LOADS; i++) {
		struct load *load = &loads[i];

		load->number = load->seed = i;
		load->in = list;
		if (load->step == reads)
			MUST(ceph_ll_open(m, read, O_RDONLY, &load->fh, perms));
		if (load->step == writes || load->step == async) {
			sprintf(load->file, "crash.write.%d.%d", getpid(), i);
			load->in = make(root, load->file, O_EXCL, &load->fh);
		}
	}
	for (int i = 0; i < LOADS; i++)
		pthread_create(&thread[i], NULL, run, &loads[i]);
	while (seconds <= 0 && getchar() != EOF)
		;
	until = seconds > 0 ? until : 0;
	for (int i = 0; i < LOADS; i++) {
		struct load *load = &loads[i];

		pthread_join(thread[i], NULL);
		if (load->file[0]) {
			MUST(ceph_ll_close(m, load->fh));
			compare(load);
			MUST(ceph_ll_unlink(m, root, load->file, perms));
		}
		printf("%s done %ld refused %ld wrong %ld failed %ld longest %.3f\n", load->name, load->done,
		       load->refused, load->wrong, load->failed, load->longest);
		for (int j = 0; j < load->pauses; j++)
			printf("pause %.3f\n", load->pause[j]);
	}
}

#define PIECES 500

static void ping(void)
{
	static char data[BLOCK], have[BLOCK];
	struct pollfd input = { .fd = 0, .events = POLLIN };
	struct ceph_statx stx;
	struct Fh *fh;
	double longest = 0, before;
	char line[64];
	Inode *in = make(root, "crash.ping", O_TRUNC, &fh);

	for (long piece = 0;; piece++) {
		uint64_t at = piece % PIECES * BLOCK;

		before = now();
		fill(data, piece / PIECES, at, BLOCK);
		MUST(ceph_ll_write(m, fh, at, BLOCK, data) - BLOCK);
		MUST(ceph_ll_read(m, fh, at, BLOCK, have) - BLOCK);
		MUST(!right(have, piece / PIECES, at, BLOCK));
		MUST(ceph_ll_getattr(m, in, &stx, ALL, 0, perms));
		longest = now() - before > longest ? now() - before : longest;
		/* Rewrite the pieces in rounds, so that data written before the end of a daemon is read after it. */
		if (piece >= PIECES) {
			at = (piece + 1) % PIECES * BLOCK;
			MUST(ceph_ll_read(m, fh, at, BLOCK, have) - BLOCK);
			MUST(!right(have, (piece + 1) / PIECES - 1, at, BLOCK));
		}
		if (poll(&input, 1, 1) == 0)
			continue;
		if (!fgets(line, sizeof(line), stdin))
			break;
		printf("%.0f\n", longest * 1000);
		longest = 0;
	}
	MUST(ceph_ll_fsync(m, fh, 0));
	MUST(ceph_ll_close(m, fh));
	puts("all is there");
}

static int leave(pid_t before, pid_t after)
{
	static char data[BLOCK];
	struct Fh *fh;
	int result;

	make(root, "crash.left", O_TRUNC, &fh);
	fill(data, 1, 0, BLOCK);
	MUST(ceph_ll_write(m, fh, 0, BLOCK, data) - BLOCK);
	if (before)
		kill(before, SIGKILL);
	result = ceph_unmount(m);
	if (after)
		kill(after, SIGKILL);
	printf("%d\n", result);
	return 0;
}

static void left(void)
{
	static char data[BLOCK];
	struct Fh *fh;

	MUST(ceph_ll_open(m, look_up(root, "crash.left"), O_RDONLY, &fh, perms));
	puts(ceph_ll_read(m, fh, 0, BLOCK, data) == BLOCK && right(data, 1, 0, BLOCK) ? "there" : "not there");
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 64;
	start(argv[1]);
	if (argc > 3 && strcmp(argv[2], "leave") == 0)
		return leave(0, atoi(argv[3]));
	if (argc > 3 && strcmp(argv[2], "lose") == 0)
		return leave(atoi(argv[3]), 0);
	if (strcmp(argv[2], "left") == 0)
		left();
	else if (strcmp(argv[2], "ping") == 0)
		ping();
	else if (strcmp(argv[2], "prepare") == 0)
		prepare();
	else
		load(argc > 3 ? atof(argv[3]) : 0);
	end();
	return 0;
}
