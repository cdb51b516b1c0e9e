/* A loop of system calls: the load of bench/syscalls and bench/ring-stress. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 20000 };

static int descriptor, batches;
static size_t length = 1;
static char buffer[1 << 20];
static void (*call)(void);

static void call_getppid(void)
{
	syscall(SYS_getppid);
}

static void call_pread(void)
{
	if (pread(descriptor, buffer, length, 0) != (ssize_t)length)
		exit(1);
}

/* With nothing to sync, the call does not reach the file system. It is therefore as fast on a FUSE mount as on any other. */
static void call_sync(void)
{
	if (sync_file_range(descriptor, 0, 1, 0))
		exit(1);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* The fastest batch is the one with the least disturbance by other processes. */
static void *run(void *fastest)
{
	for (int i = 0; i < batches; i++) {
		double start = seconds(), took;

		for (int j = 0; j < BATCH; j++)
			call();
		took = seconds() - start;
		if (took < *(double *)fastest)
			*(double *)fastest = took;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[2]) : 0;
	double fastest[64], least = 1e9;
	pthread_t thread[64];

	for (int i = 0; i < 64; i++)
		fastest[i] = 1e9;
	if (argc > 1)
		call = !strcmp(argv[1], "getppid")   ? call_getppid :
		       !strncmp(argv[1], "pread", 5) ? call_pread :
		       !strcmp(argv[1], "sync")	     ? call_sync :
						       NULL;
	if (argc > 1 && !strncmp(argv[1], "pread:", 6))
		length = atoi(argv[1] + 6);
	if (!call || length < 1 || length > sizeof(buffer) || argc != 5 || threads < 1 || threads > 64 ||
	    (batches = atoi(argv[3])) < 1) {
		fprintf(stderr,
			"usage: %s getppid|pread[:LENGTH]|sync THREADS BATCHES FILE\nReads a line, makes %d calls a "
			"batch in "
			"each "
			"thread, and prints the fastest batch in ns per call.\n",
			argv[0], BATCH);
		return 64;
	}
	descriptor = open(argv[4], O_RDWR | O_CREAT, 0600);
	if (descriptor < 0 || pwrite(descriptor, buffer, length, 0) != (ssize_t)length) {
		perror(argv[4]);
		return 1;
	}
	getchar();
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, run, &fastest[i]))
			return 1;
	for (int i = 0; i < threads; i++) {
		pthread_join(thread[i], NULL);
		if (fastest[i] < least)
			least = fastest[i];
	}
	printf("%.1f\n", least / BATCH * 1e9);
	return 0;
}
