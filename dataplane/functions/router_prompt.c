/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "router_hops.h"
#include "router_prompt.h"

enum {
	WANTED = 512,
	DISCARD = 9, /* the port of RFC 863, should one ever leave */
	TURN = 32,
};

/* What answers one is not read, so it gets no room. */
static int open_socket(int family)
{
	const int least = 0;
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP);

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	return fd;
}

int router_prompt_open(struct router_prompt *prompt, const unsigned interfaces[ROUTER_LINKS])
{
	*prompt = (struct router_prompt){.fds = {open_socket(AF_INET), open_socket(AF_INET6)},
					 .interfaces = interfaces};
	/* A machine may have no IPv6 at all. */
	if (prompt->fds[ROUTER_4] < 0 || (prompt->fds[ROUTER_6] < 0 && errno != EAFNOSUPPORT) ||
	    getrandom(prompt->mark, sizeof(prompt->mark), 0) != sizeof(prompt->mark)) {
		log_error("a socket of the router: %s", strerror(errno));
		return -EIO;
	}
	prompt->wanted = rte_ring_create("wanted", WANTED, SOCKET_ID_ANY,
					 RING_F_MP_RTS_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
	if (prompt->wanted == NULL) {
		log_error("no memory for queues; use a larger --memory");
		return -ENOMEM;
	}
	return 0;
}

void router_prompt_close(struct router_prompt *prompt)
{
	for (int family = 0; family < ROUTER_FAMILIES; family++)
		if (prompt->fds[family] >= 0)
			close(prompt->fds[family]);
	rte_ring_free(prompt->wanted);
	*prompt = (struct router_prompt){.fds = {-1, -1}};
}

bool router_prompt_want(struct router_prompt *prompt, uint32_t neighbour)
{
	return rte_ring_enqueue(prompt->wanted, (void *)((uintptr_t)neighbour + 1)) == 0;
}

/* By this port, whatever other way leads to that address. */
static void send_one(const struct router_prompt *prompt, const struct router_neighbour *to)
{
	const int interface = (int)prompt->interfaces[to->link];
	struct sockaddr_in address4 = {.sin_family = AF_INET, .sin_port = htons(DISCARD)};
	struct sockaddr_in6 address6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(DISCARD), .sin6_scope_id = (uint32_t)interface};
	struct in_pktinfo by4 = {.ipi_ifindex = interface};
	struct in6_pktinfo by6 = {.ipi6_ifindex = (unsigned)interface};
	const bool is4 = to->family == ROUTER_4;
	const size_t size = is4 ? sizeof(by4) : sizeof(by6);
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(by6))];
	} control = {.header = {.cmsg_level = is4 ? IPPROTO_IP : IPPROTO_IPV6,
				.cmsg_type = is4 ? IP_PKTINFO : IPV6_PKTINFO,
				.cmsg_len = CMSG_LEN(size)}};
	struct iovec mark = {(void *)prompt->mark, sizeof(prompt->mark)};
	struct msghdr message = {
		.msg_name = is4 ? (void *)&address4 : (void *)&address6,
		.msg_namelen = is4 ? sizeof(address4) : sizeof(address6),
		.msg_iov = &mark,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(size),
	};

	memcpy(&address4.sin_addr, to->address.bytes, sizeof(address4.sin_addr));
	memcpy(&address6.sin6_addr, to->address.bytes, sizeof(address6.sin6_addr));
	memcpy(CMSG_DATA(&control.header), is4 ? (void *)&by4 : (void *)&by6, size);
	/* Refused where the port is down, or a rule in the namespace says so; its neighbours then stay as they are. */
	(void)!sendmsg(prompt->fds[to->family], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool router_prompt_send(struct router_prompt *prompt)
{
	void *numbers[TURN];
	unsigned count = rte_ring_sc_dequeue_burst(prompt->wanted, numbers, TURN, NULL);

	for (unsigned i = 0; i < count; i++) {
		struct router_neighbour neighbour;

		if (router_neighbour_get((uint32_t)((uintptr_t)numbers[i] - 1), &neighbour))
			send_one(prompt, &neighbour);
	}
	return count > 0;
}

bool router_prompt_is(const struct router_prompt *prompt, const uint8_t *frame, uint32_t length)
{
	const uint32_t least = RTE_ETHER_HDR_LEN + sizeof(struct rte_ipv4_hdr) + 8 + ROUTER_MARK;

	return length >= least && memcmp(frame + length - ROUTER_MARK, prompt->mark, ROUTER_MARK) == 0;
}
