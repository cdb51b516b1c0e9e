/*
 * Measures how long it takes to map and unmap memory or a file, or to start a program: the fastest of many batches, in nanoseconds.
 * usage: map memory|file|program FILE
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int count, char **word)
{
	int program = !strcmp(word[1], "program"), file = -1, calls = program ? 20 : 2000;
	char *words[] = { "/bin/true", NULL };
	double best = 1e18;

	if (!strcmp(word[1], "file"))
		file = open(word[2], O_RDONLY);
	for (int batch = 0; batch < (program ? 60 : 100); batch++) {
		double start = now(), took;

		for (int call = 0; call < calls; call++) {
			pid_t child;

			if (program) {
				posix_spawn(&child, words[0], NULL, NULL, words, NULL);
				waitpid(child, NULL, 0);
			} else {
				munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | (file < 0 ? MAP_ANONYMOUS : 0), file,
					    0),
				       4096);
			}
		}
		took = (now() - start) / calls;
		if (took < best)
			best = took;
	}
	printf("%.1f\n", best);
	return 0;
}
