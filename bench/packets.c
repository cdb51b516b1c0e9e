// packets ADDRESS PORT PER_MS SECONDS BYTES: sends PER_MS UDP packets each millisecond. Prints the number of packets sent, and the processor time of
// the process in nanoseconds. The kernel delivers the packets within this time.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define MOST 1000

int main(int argc, char **argv)
{
	static char data[65536];
	static struct mmsghdr messages[MOST];
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct timespec at, used;
	long sent = 0;

	if (argc != 6)
		return 64;
	int per = atoi(argv[3]), seconds = atoi(argv[4]), bytes = atoi(argv[5]);
	struct iovec part = { data, bytes };
	int out = socket(AF_INET, SOCK_DGRAM, 0);

	to.sin_port = htons(atoi(argv[2]));
	if (per > MOST || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 ||
	    connect(out, (struct sockaddr *)&to, sizeof(to)))
		return 1;
	for (int i = 0; i < per; i++)
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &part, .msg_iovlen = 1 };
	clock_gettime(CLOCK_MONOTONIC, &at);
	for (int ms = 0; ms < seconds * 1000; ms++) {
		int done = sendmmsg(out, messages, per, 0);

		sent += done > 0 ? done : 0;
		at.tv_nsec += 1000000;
		if (at.tv_nsec >= 1000000000) {
			at.tv_sec++;
			at.tv_nsec -= 1000000000;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	printf("%ld %lld\n", sent, used.tv_sec * 1000000000LL + used.tv_nsec);
	return 0;
}
