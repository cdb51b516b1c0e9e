/*
 * usage: tcp PORT SIZE SENDS
 * Opens one connection over loopback, with both ends in this thread. For each line of standard input, sends and reads SIZE bytes SENDS times
 * in each of 31 rounds, and prints the processor time of one send and its read in nanoseconds: the median of the rounds.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { ROUNDS = 31 };

static double processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;

	return difference < 0 ? -1 : difference > 0;
}

static void check(int result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static char buffer[1 << 20];
	int listening = socket(AF_INET, SOCK_STREAM, 0), sender = socket(AF_INET, SOCK_STREAM, 0), reader, one = 1,
	    room = 4 << 20;
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int size, sends;
	char line[16];

	if (argc != 4)
		return 64;
	address.sin_port = htons(atoi(argv[1]));
	size = atoi(argv[2]);
	sends = atoi(argv[3]);
	setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	check(bind(listening, (void *)&address, sizeof(address)), "bind");
	check(listen(listening, 1), "listen");
	check(connect(sender, (void *)&address, sizeof(address)), "connect");
	check(reader = accept(listening, NULL, NULL), "accept");
	setsockopt(sender, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (fgets(line, sizeof(line), stdin)) {
		double rounds[ROUNDS];

		for (int round = 0; round < ROUNDS; round++) {
			double began = processor_ns();

			for (int i = 0; i < sends; i++) {
				check(send(sender, buffer, size, 0) == size ? 0 : -1, "send");
				for (int got = 0, more; got < size; got += more) {
					more = recv(reader, buffer, size - got, 0);
					check(more - 1, "recv");
				}
			}
			rounds[round] = (processor_ns() - began) / sends;
		}
		qsort(rounds, ROUNDS, sizeof(*rounds), compare);
		printf("%.1f\n", rounds[ROUNDS / 2]);
		fflush(stdout);
	}
	return 0;
}
