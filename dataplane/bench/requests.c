/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-requests: small requests over TCP, answered one by one, as netperf's TCP_RR and TCP_CRR send them, over
 * several connections at once.  A request is a byte and so is its answer.
 *
 * With --connect every request has a connection of its own, which the server closes first: so it is the server that
 * remembers it (TIME_WAIT), and the client does not run out of ports.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/option.h"

enum {
	PORT = 5202,
	CONNECTIONS = 1024,
	EVENTS = 64,
};

static bool connects; /* for each request */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool watch(int epoll, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* ------- the server ------- */

static int listen_at(const struct sockaddr_in *address)
{
	const int yes = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
	    bind(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 || listen(fd, CONNECTIONS) != 0)
		return -1;
	return fd;
}

static void take_connections(int epoll, int listening)
{
	const int yes = 1;
	int fd;

	while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		if (!watch(epoll, fd, EPOLLIN))
			close(fd);
	}
}

static void answer(int fd)
{
	char request;

	if (read(fd, &request, 1) != 1 || write(fd, &request, 1) != 1 || connects)
		close(fd);
}

static int serve(const struct sockaddr_in *address)
{
	struct epoll_event events[EVENTS];
	int epoll = epoll_create1(0), listening = listen_at(address);

	if (epoll < 0 || listening < 0 || !watch(epoll, listening, EPOLLIN)) {
		log_error("port %d: %s", PORT, strerror(errno));
		return 1;
	}
	for (;;) {
		int count = epoll_wait(epoll, events, EVENTS, -1);

		for (int i = 0; i < count; i++)
			if (events[i].data.fd == listening)
				take_connections(epoll, listening);
			else
				answer(events[i].data.fd);
	}
}

/* ------- the client ------- */

/* Connect, and send a request as soon as that has succeeded. */
static bool begin(int epoll, const struct sockaddr_in *address)
{
	const int yes = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0)
		return false;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 && errno != EINPROGRESS)
		return false;
	return watch(epoll, fd, EPOLLOUT);
}

/* Returns whether there is an answer; with errno, also where the server has closed the connection. */
static bool answered_at(int fd)
{
	char byte;

	errno = ECONNRESET;
	return read(fd, &byte, 1) == 1;
}

/* Returns whether a request was answered; `*failed` if the connection is lost. */
static bool go_on(int epoll, const struct sockaddr_in *address, struct epoll_event *event, bool *failed)
{
	const int fd = event->data.fd;
	bool answered = false;
	char byte = 0;

	if (event->events & EPOLLOUT) { /* connected */
		event->events = EPOLLIN;
		*failed = epoll_ctl(epoll, EPOLL_CTL_MOD, fd, event) != 0 || write(fd, &byte, 1) != 1;
		return false;
	}
	answered = answered_at(fd);
	if (connects) {
		close(fd);
		*failed = !answered || !begin(epoll, address);
	} else {
		*failed = !answered || write(fd, &byte, 1) != 1;
	}
	return answered;
}

static int request(const struct sockaddr_in *address, unsigned connections, unsigned seconds)
{
	struct epoll_event events[EVENTS];
	uint64_t answered = 0;
	int epoll = epoll_create1(0);
	bool failed = epoll < 0;
	double began, end;

	for (unsigned i = 0; i < connections && !failed; i++)
		failed = !begin(epoll, address);
	began = now();
	for (end = began; end - began < seconds && !failed; end = now()) {
		int count = epoll_wait(epoll, events, EVENTS, 100);

		for (int i = 0; i < count && !failed; i++)
			answered += go_on(epoll, address, &events[i], &failed);
	}
	if (failed) {
		log_error("after %" PRIu64 " requests: %s", answered, strerror(errno));
		return 1;
	}
	printf("{\"requests\": %" PRIu64 ", \"seconds\": %.3f}\n", answered, end - began);
	return 0;
}

static const char usage[] = "usage: tailrace-requests --server [--connect]\n"
			    "       tailrace-requests --client ADDRESS [--connect] [--connections N] [--seconds S]\n"
			    "\n"
			    "Requests of one byte over TCP.  --connect: each has a connection of its own.\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"server", no_argument, NULL, 's'},
		{"client", required_argument, NULL, 'c'},
		{"connect", no_argument, NULL, 'o'},
		{"connections", required_argument, NULL, 'n'},
		{"seconds", required_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	unsigned connections = 32, seconds = 1;
	bool server = false;
	int option;

	log_open("tailrace-requests", LOG_LEVEL_INFO);
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1)
		switch (option) {
		case 's':
			server = true;
			break;
		case 'c':
			if (inet_pton(AF_INET, optarg, &address.sin_addr) != 1) {
				log_error("--client %s: expected an IPv4 address", optarg);
				return 2;
			}
			break;
		case 'o':
			connects = true;
			break;
		case 'n':
			connections = option_number("connections", optarg, 1, CONNECTIONS);
			break;
		case 't':
			seconds = option_number("seconds", optarg, 1, 3600);
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (optind < argc || server == (address.sin_addr.s_addr != 0)) {
		fputs(usage, stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN); /* who writes to a connection that is gone is told so */
	return server ? serve(&address) : request(&address, connections, seconds);
}
