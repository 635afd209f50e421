/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "interrupts/doorbell.h"
#include "interrupts/page.h"

enum {
	PROTOCOL_VERSION = 0,
	CLIENT = 1,	    /* the only one */
	SHARED_MEMORY = -1, /* the message that the page comes with */
	NO_FD = -1,
};

int doorbell_make(struct doorbell *doorbell)
{
	doorbell->page = memfd_create("interrupts", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (doorbell->page < 0)
		return -errno;
	/* Sealed: a client that cut it would have us killed. */
	if (ftruncate(doorbell->page, INTERRUPT_PAGE_BYTES) < 0 ||
	    fcntl(doorbell->page, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ||
	    (doorbell->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
		int error = errno;

		close(doorbell->page);
		return -error;
	}
	return 0;
}

static int address_of(const char *path, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	strcpy(address->sun_path, path);
	return 0;
}

/* For everybody: the mode of a socket before it has its name is that of the file. */
static int bind_open(int fd, const struct sockaddr_un *address)
{
	const mode_t mask = umask(0);
	int error = 0;

	if (fchmod(fd, 0666) < 0 || bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		error = -errno;
	umask(mask);
	return error;
}

int doorbell_listen(const char *path)
{
	struct sockaddr_un address;
	int fd, error = address_of(path, &address);

	if (error < 0)
		return error;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	unlink(path);
	error = bind_open(fd, &address);
	if (error == 0 && listen(fd, 1) < 0)
		error = -errno;
	if (error < 0) {
		close(fd);
		return error;
	}
	return fd;
}

/* A message is a number of 8 bytes, with at most one descriptor. */
static int send_number(int client, int64_t number, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {.bytes = {0}};
	uint64_t little = htole64((uint64_t)number);
	struct iovec data = {.iov_base = &little, .iov_len = sizeof(little)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	ssize_t sent;

	if (fd != NO_FD) {
		struct cmsghdr *with = &control.align;

		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		*with = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(with), &fd, sizeof(fd));
	}
	sent = sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	return sent == sizeof(little) ? 0 : sent < 0 ? -errno : -EIO;
}

static int receive_number(int server, int64_t *number, int *fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	uint64_t little;
	struct iovec data = {.iov_base = &little, .iov_len = sizeof(little)};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(server, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	const struct cmsghdr *with = CMSG_FIRSTHDR(&message);

	*fd = NO_FD;
	if (got != sizeof(little))
		return got < 0 ? -errno : -EPROTO;
	if (with != NULL && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS &&
	    with->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(with), sizeof(*fd));
	*number = (int64_t)le64toh(little);
	return 0;
}

int doorbell_give(const struct doorbell *doorbell, int client)
{
	int error = send_number(client, PROTOCOL_VERSION, NO_FD);

	error = error < 0 ? error : send_number(client, CLIENT, NO_FD);
	error = error < 0 ? error : send_number(client, SHARED_MEMORY, doorbell->page);
	return error < 0 ? error : send_number(client, CLIENT, doorbell->call);
}

int doorbell_take(const char *path, struct doorbell *doorbell)
{
	struct sockaddr_un address;
	int64_t version = -1, own = -1, number = 0;
	int server, none, error = address_of(path, &address);

	*doorbell = (struct doorbell){.page = NO_FD, .call = NO_FD};
	if (error < 0)
		return error;
	server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (server < 0)
		return -errno;
	if (connect(server, (const struct sockaddr *)&address, sizeof(address)) < 0)
		error = -errno;
	error = error < 0 ? error : receive_number(server, &version, &none);
	error = error < 0 ? error : receive_number(server, &own, &none);
	error = error < 0 ? error : receive_number(server, &number, &doorbell->page);
	error = error < 0 ? error : receive_number(server, &number, &doorbell->call);
	if (error == 0 && (version != PROTOCOL_VERSION || number != own || doorbell->page < 0 || doorbell->call < 0))
		error = -EPROTO;
	if (error < 0)
		close(server);
	return error < 0 ? error : server;
}
