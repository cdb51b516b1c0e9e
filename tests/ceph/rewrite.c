// SPDX-License-Identifier: Apache-2.0
/*
 * Opens one inode twice, writes to it, and knows the expected content byte by byte.
 *
 *	rewrite CEPH_CONF NAME		reads commands and prints the result of each:
 *	open|append FILE		opens NAME and creates it if necessary
 *	close|fsync FILE
 *	write FILE OFFSET LENGTH SEED	writes bytes that are a function of SEED
 *	stream FILE OFFSET LENGTH SEED	likewise, in pieces of 128 KiB
 *	deep FILE OFFSET LENGTH SEED	likewise, in pieces of 10000 bytes, more at once than the library keeps in flight, with reads in between
 *	cut FILE SIZE			sets the size
 *	xattr FILE, times FILE		sets an attribute as Samba does, and the times
 *	learn FILE OFFSET LENGTH SEED	expects these bytes, which another client has written
 *	see FILE OFFSET LENGTH SEED	prints 1 if these bytes are there
 *	check FILE			prints 1 if the whole file is as expected
 */
#include "lib/crash.h"
#include <semaphore.h>

#define MOST (96 << 20)
#define PIECE 10000
#define DEPTH 40

static char ought[MOST], have[MOST];
static long size;

static void learn(long offset, long length, int seed)
{
	fill(ought + offset, seed, offset, length);
	size = offset + length > size ? offset + length : size;
}

static void called(struct io *io)
{
	sem_post(io->priv);
}

static long deep(struct Fh *fh, long offset, long length)
{
	struct io jobs[DEPTH], reads[DEPTH];
	struct iovec parts[DEPTH], room = { have, PIECE };
	long result = length;
	sem_t done;

	sem_init(&done, 0, 0);
	for (long at = 0; at < length; at += DEPTH * PIECE) {
		int count = 0;

		for (; count < DEPTH && at + count * PIECE < length; count++) {
			long from = at + count * PIECE, piece = length - from < PIECE ? length - from : PIECE;

			parts[count] = (struct iovec){ ought + offset + from, piece };
			jobs[count] = (struct io){ .callback = called, .priv = &done, .fh = fh, .iov = &parts[count] };
			jobs[count].iovcnt = 1;
			jobs[count].off = offset + from;
			jobs[count].write = true;
			jobs[count].fsync = count == DEPTH - 1;
			reads[count] = jobs[count];
			reads[count].write = reads[count].fsync = false;
			reads[count].iov = &room;
			if (count % 4 == 0)
				MUST(ceph_ll_nonblocking_readv_writev(m, &reads[count]));
			MUST(ceph_ll_nonblocking_readv_writev(m, &jobs[count]));
		}
		for (int i = 0; i < count + (count + 3) / 4; i++)
			sem_wait(&done);
		for (int i = 0; i < count; i++) {
			if (jobs[i].result != (long)parts[i].iov_len)
				result = jobs[i].result < 0 ? jobs[i].result : -EBADMSG;
			if (i % 4 == 0 && reads[i].result < 0)
				result = reads[i].result;
		}
	}
	return result;
}

static long pieces(struct Fh *fh, long offset, long length, long most)
{
	for (long at = 0, result; at < length; at += result) {
		result =
			ceph_ll_write(m, fh, offset + at, length - at < most ? length - at : most, ought + offset + at);
		if (result < 0)
			return result;
	}
	return length;
}

static long act(const char *what, struct Fh **fh, Inode *in, long offset, long length, int seed)
{
	struct ceph_statx stx = { .stx_size = offset, .stx_mtime = { 1000000000, 5 } };
	long result = 0;

	if (strcmp(what, "open") == 0 || strcmp(what, "append") == 0)
		return ceph_ll_open(m, in, O_RDWR | (*what == 'a' ? O_APPEND : 0), fh, perms);
	if (strcmp(what, "close") == 0)
		return ceph_ll_close(m, *fh);
	if (strcmp(what, "fsync") == 0)
		return ceph_ll_fsync(m, *fh, 0);
	if (strcmp(what, "xattr") == 0)
		return ceph_ll_setxattr(m, in, "user.DOSATTRIB", "0x20", 4, 0, perms);
	if (strcmp(what, "times") == 0)
		return ceph_ll_setattr(m, in, &stx, CEPH_SETATTR_MTIME, perms);
	if (strcmp(what, "cut") == 0) {
		result = ceph_ll_setattr(m, in, &stx, CEPH_SETATTR_SIZE, perms);
		if (result == 0 && offset < size)
			memset(ought + offset, 0, size - offset);
		size = result == 0 ? offset : size;
		return result;
	}
	if (strcmp(what, "see") == 0) {
		result = ceph_ll_read(m, *fh, offset, length, have);
		return result < 0 ? result : result == length && right(have, seed, offset, length);
	}
	if (strcmp(what, "check") == 0) {
		long got = 0;

		while ((result = ceph_ll_read(m, *fh, got, 4 << 20, have + got)) > 0)
			got += result;
		for (long i = 0; result == 0 && i < size && i < got; i++)
			if (have[i] != ought[i]) {
				fprintf(stderr, "byte %ld of %ld is wrong\n", i, size);
				return 0;
			}
		return result < 0 ? result : got == size;
	}
	learn(offset, length, seed);
	if (strcmp(what, "learn") == 0)
		return 0;
	return strcmp(what, "deep") == 0 ? deep(*fh, offset, length) :
					   pieces(*fh, offset, length, strcmp(what, "stream") == 0 ? 1 << 17 : MOST);
}

int main(int argc, char **argv)
{
	struct ceph_statx stx;
	struct Fh *fh[2];
	char line[128], what[16];
	Inode *in;

	if (argc < 3)
		return 64;
	start(argv[1]);
	if (ceph_ll_lookup(m, root, argv[2], &in, &stx, ALL, 0, perms) < 0) {
		in = make(root, argv[2], 0, &fh[0]);
		MUST(ceph_ll_close(m, fh[0]));
	}
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		int file = 0, seed = 0;
		long offset = 0, length = 0;

		sscanf(line, "%15s %d %ld %ld %d", what, &file, &offset, &length, &seed);
		printf("%ld\n", act(what, &fh[file & 1], in, offset, length, seed));
	}
	end();
	return 0;
}
