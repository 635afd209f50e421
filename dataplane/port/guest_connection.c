/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/vhost.h>

#include "port/guest_connection.h"
#include "port/guest_protocol.h"
#include "port/guest_publish.h"

enum {
	MESSAGE_MS = 1000, /* that a message may take from its first byte to its last */
	RIGHTS_MOST = 253, /* SCM_MAX_FD: Linux closes what there is no room for, in the thread that reads */
};

/* What guests send that mean no harm is closed at once. */
static void close_sent(struct guest_backend *backend, int fd)
{
	struct stat stat;

	if (guest_memory_page(fd, &stat) != 0 || guest_eventfd(fd) >= 0)
		close(fd);
	else
		guest_closer_give(backend->closer, fd);
}

static void close_fds(struct guest_backend *backend)
{
	struct guest_message *message = &backend->message;

	for (unsigned i = 0; i < message->nb_fds; i++)
		if (message->fds[i] >= 0)
			close_sent(backend, message->fds[i]);
	message->nb_fds = 0;
}

/* Note what the front end has said, for guest_facts(). */
static void note_facts(struct guest_backend *backend)
{
	const struct guest_table *table = atomic_load(&backend->memory.table);
	struct guest_facts facts = {
		.since = backend->since,
		.features = backend->features,
		.logs = backend->features & 1ULL << VHOST_F_LOG_ALL && table != NULL && table->log.length != 0,
	};

	for (unsigned i = 0; table != NULL && i < table->count; i++)
		facts.memory += table->maps[i].size;
	for (unsigned i = 0; i < GUEST_VRINGS; i++)
		facts.sizes[i] = backend->rings[i].size;
	pthread_mutex_lock(&backend->facts_lock);
	backend->facts = facts;
	pthread_mutex_unlock(&backend->facts_lock);
}

void guest_close_socket(struct guest_backend *backend, int fd)
{
	epoll_ctl(backend->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	shutdown(fd, SHUT_RDWR);
	guest_closer_give(backend->closer, fd);
}

void guest_disconnect(struct guest_backend *backend)
{
	if (backend->connection < 0)
		return;
	/* Not of those who have never said anything: they were counted. */
	if (backend->spoke)
		guest_log(backend, LOG_LEVEL_INFO, "its guest has gone");
	backend->since = 0;
	close_fds(backend);
	guest_close_socket(backend, backend->connection);
	backend->connection = -1;
	guest_forget(backend);
	note_facts(backend);
}

void guest_cut_off(struct guest_backend *backend, const char *why)
{
	guest_complain(backend, "cut off a front end: %s", why);
	guest_count_refused(backend);
	guest_disconnect(backend);
}

/* Take the descriptors that came with some bytes of a message.  False: there are more than any message has. */
static bool take_fds(struct guest_backend *backend, struct msghdr *header)
{
	struct guest_message *message = &backend->message;
	bool fit = !(header->msg_flags & MSG_CTRUNC);

	for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control != NULL; control = CMSG_NXTHDR(header, control)) {
		size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(fd));
			if (message->nb_fds < GUEST_MESSAGE_FDS) {
				message->fds[message->nb_fds++] = fd;
			} else {
				close_sent(backend, fd);
				fit = false;
			}
		}
	}
	return fit;
}

/*
 * Read what is there of the message, as far as `end`.  Returns 1 when it is whole as far as that, 0 when more must
 * come, -1 when the connection is no more.
 */
static int read_to(struct guest_backend *backend, unsigned end)
{
	struct guest_message *message = &backend->message;
	char control[CMSG_SPACE(RIGHTS_MOST * sizeof(int))];
	struct iovec bytes = {(uint8_t *)message + backend->have, end - backend->have};
	struct msghdr header = {
		.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t got;

	if (backend->have >= end)
		return 1;
	got = recvmsg(backend->connection, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (!take_fds(backend, &header) || got == 0)
		return -1;
	backend->have += got;
	return backend->have == end;
}

static bool answer(struct guest_backend *backend, enum guest_answer answer)
{
	struct guest_message *message = &backend->message;
	unsigned length;

	if (answer != GUEST_ANSWER_REPLY) {
		if (!(message->flags & GUEST_FLAG_NEED_REPLY))
			return answer == GUEST_ANSWER_DONE;
		message->number = answer != GUEST_ANSWER_DONE;
		message->size = sizeof(message->number);
	}
	message->flags = GUEST_FLAG_VERSION | GUEST_FLAG_REPLY;
	length = GUEST_MESSAGE_HEADER + message->size;
	return send(backend->connection, message, length, MSG_DONTWAIT | MSG_NOSIGNAL) == length;
}

void guest_read_message(struct guest_backend *backend)
{
	struct guest_message *message = &backend->message;
	enum guest_answer done;
	char why[64];
	int rc;

	if (guest_closer_over(backend->closer, GUEST_CLOSER_MOST)) {
		guest_cut_off(backend, "descriptors that it has sent take long to be closed");
		return;
	}
	if (backend->have == 0)
		message->nb_fds = 0;
	rc = read_to(backend, GUEST_MESSAGE_HEADER);
	if (rc == 1 && ((message->flags & (GUEST_FLAG_VERSION_MASK | GUEST_FLAG_REPLY)) != GUEST_FLAG_VERSION ||
			message->size > GUEST_MESSAGE_PAYLOAD)) {
		guest_cut_off(backend, "what it said is no vhost-user message");
		return;
	}
	if (rc == 1)
		rc = read_to(backend, GUEST_MESSAGE_HEADER + message->size);
	if (rc < 0) {
		if (backend->have > 0) {
			guest_cut_off(backend, "it left in the middle of a message");
			return;
		}
		if (!backend->spoke)
			guest_count_refused(backend);
		guest_disconnect(backend);
		return;
	}
	if (rc == 0) {
		if (backend->deadline == 0)
			backend->deadline = guest_now() + MESSAGE_MS;
		return;
	}
	backend->have = 0;
	backend->deadline = 0;
	if (!backend->spoke) {
		backend->since = time(NULL);
		guest_log(backend, LOG_LEVEL_INFO, "a guest is there");
	}
	backend->spoke = true;
	snprintf(why, sizeof(why), "message %u is refused, or not answered", message->request);
	done = guest_message_handle(backend, message);
	note_facts(backend);
	/* Those that were not kept, and before the answer: whoever has heard it may count on that. */
	close_fds(backend);
	if (!answer(backend, done))
		guest_cut_off(backend, why);
}
