// SPDX-License-Identifier: Apache-2.0
/*
 * Checks that a read returns the file's content at some moment during the read.
 *
 *	data CEPH_CONF SHARED write|whole|durable SECONDS	changes the files; whole: truncates none; durable: closes the file before it
 *							reports a change as done
 *	data CEPH_CONF SHARED read SECONDS		reads them continuously
 *	data CEPH_CONF SHARED own SECONDS		changes its own file and reads it, which must succeed
 *	data CEPH_CONF SHARED hot TIMES FILES		makes FILES files and reads all of them, TIMES times
 *	data CEPH_CONF SHARED end			removes them
 *
 * SHARED is a file in memory with the progress of the changes to each file. Each 8 bytes of a file are the number of the write that wrote
 * them. Prints the number of changes or reads.
 */
#include "lib/ceph.h"
#include <sys/mman.h>
#include <sys/stat.h>

#define FILES 6
#define SIZE 400000
#define RING 256

/* A change: the length of the file after it, and the number of the last write up to it. */
struct change {
	long length, write;
};

static struct shared {
	struct {
		long begun, done;
		struct change changes[RING];
	} files[FILES];
} * shared;

static struct ceph_mount_info *m;
static UserPerm *perms;
static Inode *root, *inodes[FILES];
static long buffer[SIZE / 8];

static void prepare(const char *conf, const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	if (fd < 0 || ftruncate(fd, sizeof(*shared)))
		exit(2);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(ceph_create(&m, "admin"));
	MUST(ceph_conf_read_file(m, conf));
	/* libcephfs's own cache sometimes returns old data after another host has written. */
	if (getenv("NO_OC"))
		MUST(ceph_conf_set(m, "client_oc", "false"));
	MUST(ceph_mount(m, NULL));
	perms = ceph_userperm_new(0, 0, 0, NULL);
	MUST(ceph_ll_lookup_root(m, &root));
}

static void find(void)
{
	for (int i = 0; i < FILES; i++) {
		struct ceph_statx stx;
		char name[32];
		struct Fh *fh;

		snprintf(name, sizeof(name), "data-%d", i);
		MUST(ceph_ll_create(m, root, name, 0644, O_CREAT | O_RDWR, &inodes[i], &fh, &stx, CEPH_STATX_INO, 0,
				    perms));
		MUST(ceph_ll_close(m, fh));
	}
}

#define TRY(call) (result = (call), result < 0 ? result : 0)

static int change(int file, long number, bool cuts, long length, bool durable)
{
	struct ceph_statx stx = { .stx_size = length };
	int result, flags = O_RDWR;
	struct Fh *fh;

	if (cuts && length) {
		result = ceph_ll_setattr(m, inodes[file], &stx, CEPH_SETATTR_SIZE, perms);
		return result;
	}
	if (cuts)
		flags |= O_TRUNC;
	if (TRY(ceph_ll_open(m, inodes[file], flags, &fh, perms)))
		return result;
	if (!cuts) {
		for (int i = 0; i < SIZE / 8; i++)
			buffer[i] = number;
		result = ceph_ll_write(m, fh, 0, SIZE, (char *)buffer);
		if (!durable && result == SIZE)
			__atomic_store_n(&shared->files[file].done, number, __ATOMIC_SEQ_CST);
		/* Sometimes wait, so that readers read a file that is still open for writing. */
		if (number % 3 == 0)
			usleep(rand() % 20000);
		result = result == SIZE ? 0 : result < 0 ? result : -EIO;
	}
	int closed = ceph_ll_close(m, fh);
	return result < 0 ? result : closed;
}

static long write_all(double seconds, bool durable, bool may_cut)
{
	long count = 0;

	for (double end = now() + seconds; now() < end; count++) {
		int file = rand() % FILES, result;
		long number = shared->files[file].done + 1;
		struct change *next = &shared->files[file].changes[number % RING];
		struct change before = shared->files[file].changes[(number - 1) % RING];
		bool cuts = may_cut && number > 1 && rand() % 3 == 0;

		/* Truncation never extends the file, because that would add zeros. */
		*next = (struct change){ SIZE, number };
		if (cuts)
			*next = (struct change){ (rand() % 3) * (before.length / 24) * 8, before.write };
		__atomic_store_n(&shared->files[file].begun, number, __ATOMIC_SEQ_CST);
		for (int tries = 0; (result = change(file, number, cuts, next->length, durable)); tries++)
			if (!durable || tries > 20) {
				fprintf(stderr, "change %ld of file %d: %d\n", number, file, result);
				exit(1);
			}
		__atomic_store_n(&shared->files[file].done, number, __ATOMIC_SEQ_CST);
		usleep(rand() % 60000);
	}
	return count;
}

static long least(long a, long b)
{
	return a < b ? a : b;
}

static void look(int file, struct Fh *fh)
{
	long offset = rand() % 2 ? 0 : rand() % (SIZE / 8) * 8, want = rand() % 2 ? 4096 : rand() % 2 ? SIZE : 70000;
	long done = __atomic_load_n(&shared->files[file].done, __ATOMIC_SEQ_CST);
	int got = ceph_ll_read(m, fh, offset, least(want, SIZE), (char *)buffer);
	long begun = __atomic_load_n(&shared->files[file].begun, __ATOMIC_SEQ_CST);
	long shortest = SIZE, longest = 0, oldest = done, newest = 0;

	/* The ring has no room for so many changes at once. */
	if (!done || begun - done >= RING - 2)
		return;
	for (long number = done; number <= begun; number++) {
		struct change *one = &shared->files[file].changes[number % RING];

		shortest = least(shortest, one->length);
		longest = one->length > longest ? one->length : longest;
		oldest = least(oldest, one->write);
		newest = one->write > newest ? one->write : newest;
	}
	if (__atomic_load_n(&shared->files[file].begun, __ATOMIC_SEQ_CST) - done >= RING - 2)
		return;
	/* A write extends the file in several steps. */
	long from = least(want, shortest > offset ? shortest - offset : 0),
	     to = least(want, longest > offset ? longest - offset : 0);

	if (got < from || got > to) {
		printf("broken: file %d from %ld, %ld bytes: %d, not %ld to %ld; changes %ld to %ld\n", file, offset,
		       want, got, from, to, done, begun);
		exit(1);
	}
	/* If another host extends the file meanwhile, libcephfs returns zeros for the part that it could not read. */
	long zeros = getenv("NO_OC") ? shortest : SIZE;
	for (int i = 0; i < got / 8; i++)
		if ((buffer[i] < oldest || buffer[i] > newest) && (buffer[i] || offset + i * 8 < zeros)) {
			printf("broken: file %d at %ld: %ld, not %ld to %ld; changes %ld to %ld\n", file,
			       offset + i * 8, buffer[i], oldest, newest, done, begun);
			exit(1);
		}
}

static long read_all(double seconds)
{
	struct Fh *open[FILES] = { NULL };
	long count = 0;

	for (double end = now() + seconds; now() < end; count++) {
		int file = count / 50 % FILES;

		if (count % 5000 == 0)
			for (int i = 0; i < FILES; i++) {
				if (open[i])
					MUST(ceph_ll_close(m, open[i]));
				MUST(ceph_ll_open(m, inodes[i], O_RDONLY, &open[i], perms));
			}
		look(file, open[file]);
	}
	return count;
}

/* Reads a part of the file or the whole file. */
static void is_all(struct Fh *fh, long number)
{
	long length = rand() % 2 ? SIZE : 4096, offset = rand() % (SIZE - length + 1) / 8 * 8;

	if (MUST(ceph_ll_read(m, fh, offset, length, (char *)buffer)) != length)
		exit(1);
	for (int i = 0; i < length / 8; i++)
		if (buffer[i] != number) {
			printf("broken: at %ld: %ld, not %ld\n", offset + i * 8, buffer[i], number);
			exit(1);
		}
}

static long own(double seconds)
{
	struct ceph_statx stx;
	char name[32];
	struct Fh *fh;
	Inode *in;
	long count = 0;

	snprintf(name, sizeof(name), "own-%d", getpid());
	MUST(ceph_ll_create(m, root, name, 0644, O_CREAT | O_RDWR, &in, &fh, &stx, CEPH_STATX_INO, 0, perms));
	MUST(ceph_ll_close(m, fh));
	for (double end = now() + seconds; now() < end; count++) {
		/* Many small writes give the next daemon some to repeat. */
		MUST(ceph_ll_open(m, in, O_RDWR, &fh, perms));
		for (int i = 0; i < SIZE / 8; i++)
			buffer[i] = count;
		for (int at = 0; at < SIZE; at += SIZE / 8)
			MUST(ceph_ll_write(m, fh, at, SIZE / 8, (char *)buffer));
		for (int i = 0; i < 5; i++)
			is_all(fh, count);
		MUST(ceph_ll_close(m, fh));
		MUST(ceph_ll_open(m, in, O_RDONLY, &fh, perms));
		for (int i = 0; i < 200; i++)
			is_all(fh, count);
		MUST(ceph_ll_close(m, fh));
	}
	MUST(ceph_ll_unlink(m, root, name, perms));
	return count;
}

static long hot(int times, int files)
{
	struct Fh *open[files];
	struct ceph_statx stx;
	char name[32];
	long count = 0;

	for (int i = 0; i < files; i++) {
		Inode *in;

		snprintf(name, sizeof(name), "hot-%d", i);
		MUST(ceph_ll_create(m, root, name, 0644, O_CREAT | O_RDWR, &in, &open[i], &stx, CEPH_STATX_INO, 0,
				    perms));
		MUST(ceph_ll_write(m, open[i], 0, 4096, (char *)buffer));
		MUST(ceph_ll_close(m, open[i]));
		MUST(ceph_ll_open(m, in, O_RDONLY, &open[i], perms));
	}
	for (; count < (long)times * files; count++) {
		/* The daemon caches data that is read again after a while. */
		if (count == 3 * files)
			usleep(1200000);
		MUST(ceph_ll_read(m, open[count % files], 0, 4096, (char *)buffer));
	}
	return count;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 64;
	srand(getpid());
	prepare(argv[1], argv[2]);
	if (!strcmp(argv[3], "own") || !strcmp(argv[3], "hot")) {
		printf("%ld\n", argc > 5 ? hot(atoi(argv[4]), atoi(argv[5])) : own(atof(argv[4])));
		ceph_unmount(m);
		return 0;
	}
	find();
	if (!strcmp(argv[3], "end")) {
		for (int i = 0; i < FILES; i++) {
			char name[32];

			snprintf(name, sizeof(name), "data-%d", i);
			MUST(ceph_ll_unlink(m, root, name, perms));
		}
	} else if (!strcmp(argv[3], "read")) {
		printf("%ld\n", read_all(atof(argv[4])));
	} else {
		printf("%ld\n", write_all(atof(argv[4]), !strcmp(argv[3], "durable"), strcmp(argv[3], "whole")));
	}
	ceph_unmount(m);
	return 0;
}
