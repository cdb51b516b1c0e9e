// SPDX-License-Identifier: Apache-2.0
/*
 * One of several clients that use the same files, through the proxy or directly through libcephfs, depending on the library it is linked with.
 *
 *	coherence CEPH_CONF serve                    reads a command per line from standard input and prints the result of each
 *	coherence CEPH_CONF write SEEN DIR SECONDS   increases numbers: a file's time, size and extended attribute, and a name
 *	coherence CEPH_CONF ask SEEN DIR SECONDS     like read, but with paths of which no copy is cached
 *	coherence CEPH_CONF read SEEN DIR SECONDS    checks that no number decreases, whichever client saw it first
 *
 * All clients map the file SEEN. It holds the highest number of each kind that any client has seen.
 */
#include "lib/ceph.h"
#include <sys/mman.h>

static struct ceph_mount_info *m;
static UserPerm *root_user, *nobody, *perms;
static Inode *root;
static struct ceph_statx stx;

/* Looks up a path, one name at a time. With `parent`, looks up the part before the last slash. */
static int find(const char *path, Inode **in, const char **last)
{
	char name[256];
	Inode *at = NULL, *next;
	int result = ceph_ll_lookup_root(m, &at);

	while (result == 0 && *path) {
		size_t length = strcspn(path, "/");

		if (last && !path[length]) {
			*last = path;
			break;
		}
		snprintf(name, sizeof(name), "%.*s", (int)length, path);
		result = ceph_ll_lookup(m, at, name, &next, &stx, CEPH_STATX_BASIC_STATS, 0, perms);
		ceph_ll_put(m, at);
		at = next;
		path += length + (path[length] == '/');
	}
	if (result == 0)
		*in = at;
	return result;
}

static int list(Inode *in)
{
	struct ceph_dir_result *dir;
	struct dirent entry;
	unsigned hash = 0;
	int count = 0, result = ceph_ll_opendir(m, in, &dir, perms);

	if (result)
		return result;
	while ((result = ceph_readdir_r(m, dir, &entry)) > 0) {
		unsigned one = 5381;

		for (const char *c = entry.d_name; *c; c++)
			one = one * 33 + (unsigned char)*c;
		hash += one;
		count++;
	}
	ceph_ll_releasedir(m, dir);
	printf("%d %d %u\n", result, count, hash);
	return 1;
}

static Inode *kept;
static struct Fh *kept_file;

/* Executes a command. Returns 1 if the answer is already printed. */
static int does(const char *what, const char *path, const char *more, const char *value)
{
	char buffer[4096] = "";
	struct ceph_statx s = { 0 };
	const char *name = NULL;
	Inode *in = NULL, *made = NULL, *to = NULL;
	struct Fh *fh = NULL;
	static const char *const names[] = { "create", "unlink", "rmdir", "directory", "rename" };
	bool below = false;
	int result;

	perms = *what == '-' ? nobody : root_user;
	what += *what == '-';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		below |= !strcmp(what, names[i]);
	if (!strcmp(what, "attr") || !strcmp(what, "close") || !strcmp(what, "append"))
		in = kept, result = 0;
	else if (!strcmp(what, "walk"))
		result = ceph_ll_walk(m, path, &in, &stx, CEPH_STATX_BASIC_STATS, 0, perms);
	else
		result = find(path, &in, below ? &name : NULL);
	if (result)
		return result;
	if (!strcmp(what, "look") || !strcmp(what, "walk")) {
		printf("0 %o %u %llu %lld\n", stx.stx_mode, stx.stx_nlink, (unsigned long long)stx.stx_size,
		       (long long)stx.stx_mtime.tv_sec);
		result = 1;
	} else if (!strcmp(what, "attr")) {
		result = ceph_ll_getattr(m, in, &stx, CEPH_STATX_BASIC_STATS, 0, perms);
		if (result == 0)
			printf("0 %o %u %llu %lld\n", stx.stx_mode, stx.stx_nlink, (unsigned long long)stx.stx_size,
			       (long long)stx.stx_mtime.tv_sec);
		return result ? result : 1;
	} else if (!strcmp(what, "keep")) {
		kept = in;
		return ceph_ll_getattr(m, in, &stx, CEPH_STATX_BASIC_STATS, 0, perms);
	} else if (!strcmp(what, "open")) {
		kept = in;
		return ceph_ll_open(m, in, strtol(more, NULL, 0), &kept_file, perms);
	} else if (!strcmp(what, "read")) {
		result = ceph_ll_open(m, in, O_RDONLY, &fh, perms);
		if (result == 0)
			result = ceph_ll_close(m, fh);
	} else if (!strcmp(what, "close")) {
		return ceph_ll_close(m, kept_file);
	} else if (!strcmp(what, "append")) {
		return ceph_ll_write(m, kept_file, atoll(path), 1, "x") - 1;
	} else if (!strcmp(what, "list")) {
		result = list(in);
	} else if (!strcmp(what, "mode")) {
		s.stx_mode = strtol(more, NULL, 8);
		result = ceph_ll_setattr(m, in, &s, CEPH_SETATTR_MODE, perms);
	} else if (!strcmp(what, "time")) {
		s.stx_mtime.tv_sec = atoll(more);
		result = ceph_ll_setattr(m, in, &s, CEPH_SETATTR_MTIME, perms);
	} else if (!strcmp(what, "size")) {
		s.stx_size = atoll(more);
		result = ceph_ll_setattr(m, in, &s, CEPH_SETATTR_SIZE, perms);
	} else if (!strcmp(what, "write")) {
		result = ceph_ll_open(m, in, O_RDWR, &fh, perms);
		if (result == 0) {
			result = ceph_ll_write(m, fh, atoll(more), 1, "x") - 1;
			ceph_ll_close(m, fh);
		}
	} else if (!strcmp(what, "truncate")) {
		result = ceph_ll_open(m, in, O_RDWR | O_TRUNC, &fh, perms);
		if (result == 0)
			ceph_ll_close(m, fh);
	} else if (!strcmp(what, "getx")) {
		result = ceph_ll_getxattr(m, in, more, buffer, sizeof(buffer) - 1, perms);
		if (result >= 0) {
			printf("0 %s\n", buffer);
			result = 1;
		}
	} else if (!strcmp(what, "setx")) {
		result = ceph_ll_setxattr(m, in, more, value, strlen(value), 0, perms);
	} else if (!strcmp(what, "removex")) {
		result = ceph_ll_removexattr(m, in, more, perms);
	} else if (!strcmp(what, "create")) {
		result = ceph_ll_create(m, in, name, 0644, O_CREAT | O_RDWR | (*more == 't' ? O_TRUNC : 0), &made, &fh,
					&stx, CEPH_STATX_BASIC_STATS, 0, perms);
		if (result == 0)
			ceph_ll_close(m, fh);
	} else if (!strcmp(what, "unlink")) {
		result = ceph_ll_unlink(m, in, name, perms);
	} else if (!strcmp(what, "rmdir")) {
		result = ceph_ll_rmdir(m, in, name, perms);
	} else if (!strcmp(what, "directory")) {
		result = ceph_ll_mkdir(m, in, name, 0755, &made, &stx, CEPH_STATX_BASIC_STATS, 0, perms);
	} else if (!strcmp(what, "rename")) {
		const char *new_name = NULL;

		result = find(more, &to, &new_name);
		if (result == 0)
			result = ceph_ll_rename(m, in, name, to, new_name, perms);
	} else if (!strcmp(what, "hard")) {
		const char *new_name = NULL;

		result = find(more, &to, &new_name);
		if (result == 0)
			result = ceph_ll_link(m, in, to, new_name, perms);
	} else {
		result = -ENOSYS;
	}
	if (made && result == 0)
		ceph_ll_put(m, made);
	if (to)
		ceph_ll_put(m, to);
	ceph_ll_put(m, in);
	return result;
}

static void serve(void)
{
	char line[1024], what[32], path[512], more[256], value[64];

	while (fgets(line, sizeof(line), stdin)) {
		*what = *path = *more = *value = 0;
		sscanf(line, "%31s %511s %255s %63s", what, path, more, value);
		double start = now();
		int result = does(what, path, more, value);
		if (result != 1)
			printf("%d\n", result);
		printf("%.0f\n", (now() - start) * 1000);
		fflush(stdout);
	}
}

enum { TIME, SIZE, XATTR, NAME, KINDS };
static const char *const kinds[] = { "time", "size", "extended attribute", "name" };
static unsigned *seen;
/* A separate file for the time, because changes of size set the time as well. */
static Inode *timed;

static void saw(int kind, unsigned value)
{
	unsigned before = __atomic_load_n(&seen[kind], __ATOMIC_SEQ_CST);

	while (before < value &&
	       !__atomic_compare_exchange_n(&seen[kind], &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static void write_numbers(Inode *dir, Inode *in, double seconds)
{
	double end = now() + seconds;

	for (unsigned n = 1; now() < end; n++) {
		struct ceph_statx s = { 0 };
		char text[32];
		Inode *made;

		snprintf(text, sizeof(text), "%u", n);
		switch (n % KINDS) {
		case TIME:
			s.stx_mtime.tv_sec = n;
			MUST(ceph_ll_setattr(m, timed, &s, CEPH_SETATTR_MTIME, perms));
			break;
		case SIZE:
			s.stx_size = n;
			MUST(ceph_ll_setattr(m, in, &s, CEPH_SETATTR_SIZE, perms));
			break;
		case XATTR:
			MUST(ceph_ll_setxattr(m, in, "user.number", text, strlen(text), 0, perms));
			break;
		case NAME:
			MUST(ceph_ll_mknod(m, dir, text, S_IFREG | 0600, 0, &made, &stx, 0, 0, perms));
			ceph_ll_put(m, made);
			break;
		}
		saw(n % KINDS, n);
		if (n > 40)
			usleep(200);
	}
}

static unsigned long looks, broken;
static const char *asks;

static void look(int kind, Inode *dir, Inode *in)
{
	unsigned before = __atomic_load_n(&seen[kind], __ATOMIC_SEQ_CST), value = 0;
	char text[32] = "";
	Inode *found;

	looks++;
	if (kind == NAME) {
		/* The next name probably does not exist, so the client may cache its absence. */
		snprintf(text, sizeof(text), "%u", before + KINDS);
		if (ceph_ll_lookup(m, dir, text, &found, &stx, CEPH_STATX_BASIC_STATS, 0, perms) == 0) {
			ceph_ll_put(m, found);
			saw(NAME, before + KINDS);
		}
		snprintf(text, sizeof(text), "%u", before);
		if (!before || ceph_ll_lookup(m, dir, text, &found, &stx, CEPH_STATX_BASIC_STATS, 0, perms) == 0) {
			if (before)
				ceph_ll_put(m, found);
			return;
		}
	} else if (kind == XATTR) {
		if (ceph_ll_getxattr(m, in, "user.number", text, sizeof(text) - 1, perms) > 0)
			value = atoi(text);
	} else {
		char path[256];

		if (asks) {
			snprintf(path, sizeof(path), "/%s/../%s/%s", asks, asks, kind == TIME ? "times" : "numbers");
			MUST(ceph_ll_walk(m, path, &found, &stx, CEPH_STATX_BASIC_STATS, 0, perms));
			ceph_ll_put(m, found);
		} else {
			MUST(ceph_ll_getattr(m, kind == TIME ? timed : in, &stx, CEPH_STATX_BASIC_STATS, 0, perms));
		}
		value = kind == TIME ? (unsigned)stx.stx_mtime.tv_sec : (unsigned)stx.stx_size;
	}
	if (value < before && ++broken < 5)
		fprintf(stderr, "%s: %u, after somebody saw %u\n", kinds[kind], value, before);
	saw(kind, value);
}

static void read_numbers(Inode *dir, Inode *in, double seconds)
{
	double end = now() + seconds;

	while (now() < end)
		for (int kind = 0; kind < KINDS; kind++)
			for (int i = 0; i < 5; i++)
				look(kind, dir, in);
	printf("%lu looks, %lu broken\n", looks, broken);
}

int main(int argc, char **argv)
{
	Inode *dir, *in;

	if (argc < 3)
		return 64;
	m = mounted(argv[1]);
	root_user = perms = ceph_userperm_new(0, 0, 0, NULL);
	nobody = ceph_userperm_new(65534, 65534, 0, NULL);
	MUST(ceph_ll_lookup_root(m, &root));
	if (argc < 6) {
		serve();
	} else {
		int fd = open(argv[3], O_RDWR);

		seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		asks = *argv[2] == 'a' ? argv[4] : NULL;
		MUST(find(argv[4], &dir, NULL));
		MUST(ceph_ll_lookup(m, dir, "numbers", &in, &stx, CEPH_STATX_BASIC_STATS, 0, perms));
		MUST(ceph_ll_lookup(m, dir, "times", &timed, &stx, CEPH_STATX_BASIC_STATS, 0, perms));
		(*argv[2] == 'w' ? write_numbers : read_numbers)(dir, in, atof(argv[5]));
	}
	MUST(ceph_unmount(m));
	return broken > 0;
}
