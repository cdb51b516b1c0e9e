/*
 * Starts processes for tests of the process table. `spawn KIND ARGUMENT...` prints one line when all are in the described state, then waits
 * until its standard input ends. The processes end with it.
 *   sleepers N        N processes that sleep, named ps-sleeper
 *   zombies N         N processes that have ended and are not waited for
 *   threads N MS      N threads that take MS of CPU time each, one after the other; every second one then ends. Prints the process's CPU time, ns
 *   leaderless MS     a process whose first thread ends after MS of CPU time, while another, which took as much, continues
 *   churn             processes that end at once, without pause; prints nothing more
 *   names             a process for each hostile name, with its number as the first byte of the name
 *   io FILE BYTES     a process that has written BYTES bytes in one call; the file stays open
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *names[] = { "0line\nbreak",	 "1\x1b[31mred\x1b[0m",	 "2\xff\xfe\x80utf", "3a) S 1 (b",
			       "4quo\"te\\,;\t", "5\xe2\x80\xaegpj.exe", "6fifteen-bytes." };
static long burn_ns;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void say_ready(long long number)
{
	printf("%lld\n", number);
	fflush(stdout);
}

static void wait_for_end(void)
{
	char byte;

	while (read(0, &byte, 1) > 0 || errno == EINTR)
		;
}

/* Starts a child that sleeps and dies with its parent. */
static pid_t child(const char *name)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	for (;;)
		pause();
}

static long cpu_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void *burn(void *stays)
{
	while (cpu_ns(CLOCK_THREAD_CPUTIME_ID) < burn_ns)
		;
	if (stays)
		for (;;)
			pause();
	return NULL;
}

/* Checks the name of a child, which the child sets last. */
static int is_named(pid_t pid, const char *name)
{
	char path[64], text[32] = "";
	int file;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = open(path, O_RDONLY);
	if (file < 0)
		return 0;
	if (read(file, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(file);
	return !strncmp(text, name, strlen(name) < 15 ? strlen(name) : 15);
}

static void *outlive(void *nothing)
{
	(void)nothing;
	burn(NULL);
	say_ready(getpid());
	wait_for_end();
	exit(0);
}

int main(int count, char **arguments)
{
	const char *kind = count > 1 ? arguments[1] : "";
	long number = count > 2 ? atol(arguments[2]) : 0, before = 0;
	pthread_t thread;
	pid_t last = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!strcmp(kind, "sleepers")) {
		pid_t *all = calloc(number, sizeof(*all));

		for (long n = 0; n < number; n++)
			all[n] = child("ps-sleeper");
		for (long n = 0; n < number; n++)
			while (!is_named(all[n], "ps-sleeper"))
				usleep(1000);
	} else if (!strcmp(kind, "zombies")) {
		for (long n = 0; n < number; n++) {
			last = fork();
			if (!last)
				_exit(0);
			siginfo_t ended;
			waitid(P_PID, last, &ended, WEXITED | WNOWAIT);
		}
	} else if (!strcmp(kind, "threads")) {
		burn_ns = (count > 3 ? atol(arguments[3]) : 0) * 1000000L;
		for (long n = 0; n < number; n++) {
			if (pthread_create(&thread, NULL, burn, n % 2 ? (void *)1 : NULL))
				die("pthread_create");
			if (n % 2 == 0)
				pthread_join(thread, NULL);
		}
		/* Wait until the CPU time no longer grows. The remaining threads have then used theirs. */
		while (before != cpu_ns(CLOCK_PROCESS_CPUTIME_ID) / 10000000) {
			before = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) / 10000000;
			usleep(300000);
		}
		number = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
	} else if (!strcmp(kind, "leaderless")) {
		burn_ns = number * 1000000L;
		burn(NULL);
		pthread_create(&thread, NULL, outlive, NULL);
		pthread_exit(NULL);
	} else if (!strcmp(kind, "churn")) {
		say_ready(0);
		for (;;) {
			last = fork();
			if (!last)
				_exit(0);
			waitpid(last, NULL, 0);
		}
	} else if (!strcmp(kind, "names")) {
		for (number = 0; number < (long)(sizeof(names) / sizeof(*names)); number++) {
			last = child(names[number]);
			while (!is_named(last, names[number]))
				usleep(1000);
		}
	} else if (!strcmp(kind, "io") && count > 3) {
		int file = open(arguments[2], O_CREAT | O_RDWR | O_TRUNC, 0600);
		char *bytes = calloc(1, atol(arguments[3]));

		if (file < 0 || write(file, bytes, atol(arguments[3])) != atol(arguments[3]))
			die("write");
		number = getpid();
	} else {
		fprintf(stderr, "usage: spawn KIND ARGUMENT...: see its source\n");
		return 64;
	}
	say_ready(number);
	wait_for_end();
	return 0;
}
