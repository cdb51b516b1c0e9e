// SPDX-License-Identifier: Apache-2.0
/*
 * Takes as many objects of one kind as the daemon allows, or COUNT. Prints how many there were and the error, and waits to be killed.
 *
 *	hoard CEPH_CONF inodes|files|directories|identities|mounts COUNT
 *	hoard CEPH_CONF prepare COUNT	makes a directory with COUNT files that have long names, for the other commands
 *	hoard CEPH_CONF list	opens this directory
 *	hoard CEPH_CONF get OPTION	prints its value
 */
#include "lib/ceph.h"

/* the most groups that a process can have (NGROUPS_MAX) */
#define GROUPS 65536

static struct ceph_mount_info *m;
static UserPerm *perms;
static const char *conf;
static Inode *root, *folder;
static struct ceph_statx stx;
static char name[256];

static const char *named(int number)
{
	snprintf(name, sizeof(name), "%0200d", number);
	return name;
}

static void prepare(int count)
{
	MUST(ceph_ll_mkdir(m, root, "hoard", 0700, &folder, &stx, ALL, 0, perms));
	for (int i = 0; i < count; i++) {
		Inode *made;

		MUST(ceph_ll_mknod(m, folder, named(i), S_IFREG | 0600, 0, &made, &stx, ALL, 0, perms));
		ceph_ll_put(m, made);
	}
}

static long one_more(const char *what, int number)
{
	static gid_t groups[GROUPS];
	struct ceph_mount_info *mount;
	struct ceph_dir_result *dir;
	struct Fh *file;
	Inode *found;

	if (!strcmp(what, "inodes"))
		return ceph_ll_lookup(m, folder, named(number), &found, &stx, ALL, 0, perms);
	if (!strcmp(what, "files")) {
		static Inode *in;

		if (!in)
			MUST(ceph_ll_lookup(m, folder, named(0), &in, &stx, ALL, 0, perms));
		return ceph_ll_open(m, in, O_RDONLY, &file, perms);
	}
	if (!strcmp(what, "directories"))
		return ceph_ll_opendir(m, folder, &dir, perms);
	if (!strcmp(what, "identities")) {
		UserPerm *own = ceph_userperm_new(1, number, GROUPS, groups);
		long result = ceph_ll_getattr(m, root, &stx, ALL, 0, own);

		ceph_userperm_destroy(own);
		return result;
	}
	/* Each has a different configuration, so that no mount is shared. */
	snprintf(name, sizeof(name), "%d", (number + 1) << 12);
	long result = ceph_create(&mount, "admin");
	if (result >= 0 && (result = ceph_conf_read_file(mount, conf)) >= 0)
		result = ceph_conf_set(mount, "client_readahead_max_bytes", name);
	return result < 0 ? result : ceph_mount(mount, NULL);
}

int main(int argc, char **argv)
{
	int count;
	long result = 0;

	if (argc < 4 && !(argc == 3 && !strcmp(argv[2], "list")))
		return 64;
	conf = argv[1];
	perms = ceph_userperm_new(0, 0, 0, NULL);
	m = mounted(conf);
	if (!strcmp(argv[2], "get")) {
		MUST(ceph_conf_get(m, argv[3], name, sizeof(name)));
		return puts(name), 0;
	}
	MUST(ceph_ll_lookup_root(m, &root));
	if (!strcmp(argv[2], "prepare"))
		return prepare(atoi(argv[3])), 0;
	MUST(ceph_ll_lookup(m, root, "hoard", &folder, &stx, ALL, 0, perms));
	if (!strcmp(argv[2], "list")) {
		MUST(one_more("directories", 0));
		return puts("listed"), 0;
	}
	for (count = 0; count < atoi(argv[3]) && result >= 0; count++)
		result = one_more(argv[2], count);
	printf("%d %ld\n", result < 0 ? count - 1 : count, result);
	fflush(stdout);
	pause();
}
