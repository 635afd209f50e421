/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/if_packet.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device_send_only.h"

/* What this thread is opening. */
static _Thread_local struct {
	bool active;
	unsigned bound;
} opening;

void send_only_begin(void)
{
	opening.active = true;
	opening.bound = 0;
}

unsigned send_only_end(void)
{
	opening.active = false;
	return opening.bound;
}

__attribute__((visibility("default"))) int socket(int domain, int type, int protocol)
{
	if (opening.active && domain == AF_PACKET)
		protocol = 0;
	return (int)syscall(SYS_socket, domain, type, protocol);
}

__attribute__((visibility("default"))) int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t size)
{
	struct sockaddr_ll to;
	int rc;

	if (!opening.active || size != sizeof(to) || address.__sockaddr__->sa_family != AF_PACKET)
		return (int)syscall(SYS_bind, fd, address.__sockaddr__, size);
	memcpy(&to, address.__sockaddr__, sizeof(to));
	to.sll_protocol = 0;
	rc = (int)syscall(SYS_bind, fd, &to, sizeof(to));
	opening.bound += rc == 0;
	return rc;
}

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	/* Only sockets that receive can share what comes in. */
	if (opening.active && level == SOL_PACKET && name == PACKET_FANOUT)
		return 0;
	return (int)syscall(SYS_setsockopt, fd, level, name, value, size);
}
