// SPDX-License-Identifier: Apache-2.0
/*
 * A client that requests the root's attributes every 20 ms, for bench/ceph-kill: ceph-kill CEPH_CONF SECONDS
 *
 * Prints a line when it has mounted, and when its requests begin to succeed or to fail: mounted|well|ERRNO, and the seconds since the epoch.
 */
#include "../tests/ceph/lib/ceph.h"

static double moment(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 64;
	struct ceph_mount_info *m = mounted(argv[1]);
	UserPerm *perms = ceph_userperm_new(0, 0, 0, NULL);
	double end = moment() + atof(argv[2]);
	struct ceph_statx stx;
	int last = 1;
	Inode *root;

	MUST(ceph_ll_lookup_root(m, &root));
	printf("mounted %.3f\n", moment());
	while (moment() < end) {
		int said = ceph_ll_getattr(m, root, &stx, CEPH_STATX_BASIC_STATS, AT_STATX_DONT_SYNC, perms);

		if ((said < 0 ? said : 0) != last) {
			last = said < 0 ? said : 0;
			if (last)
				printf("%d %.3f\n", -last, moment());
			else
				printf("well %.3f\n", moment());
		}
		fflush(stdout);
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
	return 0;
}
