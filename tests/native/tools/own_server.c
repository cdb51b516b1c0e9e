/*
 * A server with its own function and static probe, for tests/native/own. A line of standard input is a request: NAME BYTES MS. The request
 * takes MS milliseconds, and its answer is a line of standard output.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Like <sys/sdt.h>, which not every machine has: a note names the probe's address and the registers of its arguments. */
#define PROBE(name, first, second)                                    \
	__asm__ volatile("990: nop\n"                                 \
			 ".pushsection .note.stapsdt,\"\",\"note\"\n" \
			 ".balign 4\n"                                \
			 ".4byte 992f-991f, 994f-993f, 3\n"           \
			 "991: .asciz \"stapsdt\"\n"                  \
			 "992: .balign 4\n"                           \
			 "993: .8byte 990b, 0, 0\n"                   \
			 ".asciz \"own_server\"\n"                    \
			 ".asciz \"" #name "\"\n"                     \
			 ".asciz \"8@%0 8@%1\"\n"                     \
			 "994: .balign 4\n"                           \
			 ".popsection\n" ::"r"((long)(first)),        \
			 "r"((long)(second)))

__attribute__((noinline)) long handle_request(const char *name, unsigned int bytes, unsigned int ms)
{
	struct timespec wait = { ms / 1000, ms % 1000 * 1000000L };

	if (ms)
		nanosleep(&wait, NULL);
	return strcmp(name, "missing") ? (long)bytes : -2; /* ENOENT */
}

int main(void)
{
	unsigned int bytes, ms;
	char line[256], name[128];
	long number = 0;

	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%127s %u %u", name, &bytes, &ms) != 3)
			continue;
		number++;
		PROBE(request_start, number, bytes);
		printf("%ld\n", handle_request(name, bytes, ms));
		PROBE(request_done, number, bytes);
		fflush(stdout);
	}
	return 0;
}
