/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <rte_lcore.h>

#include "common/grace.h"
#include "common/log.h"
#include "port/guest_socket.h"

enum {
	TICK_MS = 20,	     /* between tries to connect, and between looks for what takes too long */
	MESSAGE_MS = 1000,   /* that a message may take from its first byte to its last */
	COMPLAINT_MS = 1000, /* between two complaints about one port */
	SETTLE_MS = 10,	     /* that waking a guest may take */
};

struct guest_backend *_Atomic guest_backends;
atomic_ulong guest_settles;
static _Atomic pthread_t protocol_thread; /* 0: none yet */

/* What the control thread asks of ours; it waits for the answer, so one at a time is enough. */
static struct {
	pthread_mutex_t one, lock;
	pthread_cond_t done;
	int (*call)(struct guest_backend *backend);
	struct guest_backend *backend;
	int rc;
} request = {.one = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static int epoll_fd = -1, wake_fd, spare_fd;

/* epoll tells which socket is ready by a pointer to its port, the lowest bit set for a listener; NULL is a request. */
enum { LISTENER = 1 };

uint64_t guest_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ULL + now.tv_nsec / 1000000;
}

static int watch(int fd, struct guest_backend *backend, uintptr_t kind)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uintptr_t)backend | kind};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static void close_fds(struct guest_message *message)
{
	for (unsigned i = 0; i < message->nb_fds; i++)
		if (message->fds[i] >= 0)
			close(message->fds[i]);
	message->nb_fds = 0;
}

static void disconnect(struct guest_backend *backend)
{
	if (backend->connection < 0)
		return;
	close_fds(&backend->message);
	close(backend->connection);
	backend->connection = -1;
	guest_forget(backend);
}

/* The front end has broken a rule. */
static void cut_off(struct guest_backend *backend, const char *why)
{
	guest_complain(backend, "cut off a front end: %s", why);
	atomic_fetch_add(&backend->guest->refused, 1);
	disconnect(backend);
}

static int connected(struct guest_backend *backend, int fd)
{
	int rc = watch(fd, backend, 0);

	if (rc != 0) {
		close(fd);
		return rc;
	}
	backend->connection = fd;
	backend->spoke = false;
	backend->have = 0;
	backend->deadline = 0;
	return 0;
}

static void try_connect(struct guest_backend *backend)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	strcpy(address.sun_path, backend->guest->path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		connected(backend, fd);
	else
		close(fd);
}

/* No descriptor is left: one that was kept for this makes room, so that the visitor hears no. */
static void turn_away(int listener)
{
	int fd;

	close(spare_fd);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void accept_front_end(struct guest_backend *backend)
{
	int fd = accept4(backend->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE) {
			guest_complain(backend, "turned away a front end: no file descriptor is left");
			turn_away(backend->listener);
			atomic_fetch_add(&backend->guest->refused, 1);
		}
		return;
	}
	/* One front end for each port: the first is not disturbed by a second, unless it has said nothing yet. */
	if (backend->connection >= 0 && backend->spoke) {
		guest_complain(backend, "turned away a second front end");
		atomic_fetch_add(&backend->guest->refused, 1);
		close(fd);
		return;
	}
	if (backend->connection >= 0)
		cut_off(backend, "it said nothing, and another came");
	connected(backend, fd);
}

/* Take the descriptors that came with some bytes of a message.  False: there are more than any message has. */
static bool take_fds(struct guest_message *message, struct msghdr *header)
{
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
				close(fd);
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
	char control[CMSG_SPACE(GUEST_MESSAGE_FDS * sizeof(int))];
	struct iovec bytes = {(uint8_t *)message + backend->have, end - backend->have};
	struct msghdr header = {
		.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t got;

	if (backend->have >= end)
		return 1;
	got = recvmsg(backend->connection, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (!take_fds(message, &header) || got == 0)
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

static void read_message(struct guest_backend *backend)
{
	struct guest_message *message = &backend->message;
	char why[64];
	int rc;

	if (backend->have == 0)
		message->nb_fds = 0;
	rc = read_to(backend, GUEST_MESSAGE_HEADER);
	if (rc == 1 && ((message->flags & (GUEST_FLAG_VERSION_MASK | GUEST_FLAG_REPLY)) != GUEST_FLAG_VERSION ||
			message->size > GUEST_MESSAGE_PAYLOAD)) {
		cut_off(backend, "what it said is no vhost-user message");
		return;
	}
	if (rc == 1)
		rc = read_to(backend, GUEST_MESSAGE_HEADER + message->size);
	if (rc < 0) {
		if (backend->have > 0)
			cut_off(backend, "it left in the middle of a message");
		else
			disconnect(backend);
		return;
	}
	if (rc == 0) {
		if (backend->deadline == 0)
			backend->deadline = guest_now() + MESSAGE_MS;
		return;
	}
	backend->have = 0;
	backend->deadline = 0;
	backend->spoke = true;
	snprintf(why, sizeof(why), "message %u is refused, or not answered", message->request);
	if (!answer(backend, guest_message_handle(backend, message)))
		cut_off(backend, why);
	else
		close_fds(message);
}

static void handle_request(void)
{
	uint64_t count;

	if (read(wake_fd, &count, sizeof(count)) < 0)
		return;
	pthread_mutex_lock(&request.lock);
	if (request.call != NULL) {
		request.rc = request.call(request.backend);
		request.call = NULL;
		pthread_cond_signal(&request.done);
	}
	pthread_mutex_unlock(&request.lock);
}

/* Say once which ring has been stopped and why; the worker only left a note. */
static void report_faults(struct guest_backend *backend)
{
	for (unsigned ring = 0; ring < GUEST_VRINGS_EACH * backend->guest->pairs; ring++) {
		enum vring_fault fault = __atomic_load_n(&backend->guest->fault[ring], __ATOMIC_RELAXED);

		if (fault == backend->reported[ring])
			continue;
		backend->reported[ring] = fault;
		if (fault != VRING_FAULT_NONE)
			log_warning("port %s: queue %u, %s ring: stopped until the guest resets it: %s", backend->name,
				    ring / GUEST_VRINGS_EACH,
				    ring % GUEST_VRINGS_EACH == GUEST_RECEIVES ? "receive" : "send",
				    vring_fault_text(fault));
	}
}

static void tick(uint64_t now)
{
	for (struct guest_backend *backend = guest_backends; backend != NULL; backend = backend->next) {
		report_faults(backend);
		if (backend->barred_until != 0 && now >= backend->barred_until)
			guest_end_bar(backend);
		if (backend->deadline != 0 && now >= backend->deadline)
			cut_off(backend, "it stopped in the middle of a message");
		if (backend->guest->client && backend->connection < 0)
			try_connect(backend);
	}
}

static void *serve(void *unused)
{
	uint64_t next = 0;

	for (;;) {
		struct epoll_event event;
		uint64_t now;

		/* One at a time: what an event points at cannot have gone with an earlier one. */
		if (epoll_wait(epoll_fd, &event, 1, TICK_MS) == 1) {
			struct guest_backend *backend = (struct guest_backend *)(event.data.u64 & ~(uint64_t)LISTENER);

			if (backend == NULL)
				handle_request();
			else if (event.data.u64 & LISTENER)
				accept_front_end(backend);
			else
				read_message(backend);
		}
		now = guest_now();
		if (now >= next) {
			next = now + TICK_MS;
			tick(now);
		}
	}
	return NULL;
}

/* ------- for the control thread ------- */

static int start_thread(void)
{
	pthread_t thread;
	int rc;

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (epoll_fd < 0 || wake_fd < 0 || spare_fd < 0 || watch(wake_fd, NULL, 0) != 0)
		return -errno;
	/* It keeps away from the workers' cores. */
	rc = rte_ctrl_thread_create(&thread, "guests", NULL, serve, NULL);
	if (rc == 0) {
		pthread_detach(thread);
		atomic_store(&protocol_thread, thread);
	}
	return rc;
}

static int ask(int (*call)(struct guest_backend *backend), struct guest_backend *backend)
{
	const uint64_t one = 1;
	int rc = 0;

	pthread_mutex_lock(&request.one);
	if (epoll_fd < 0)
		rc = start_thread();
	pthread_mutex_lock(&request.lock);
	if (rc == 0) {
		request.call = call;
		request.backend = backend;
		if (write(wake_fd, &one, sizeof(one)) < 0)
			rc = -errno;
		while (rc == 0 && request.call != NULL)
			pthread_cond_wait(&request.done, &request.lock);
		if (rc == 0)
			rc = request.rc;
	}
	pthread_mutex_unlock(&request.lock);
	pthread_mutex_unlock(&request.one);
	return rc;
}

static int adopt(struct guest_backend *backend)
{
	int rc = backend->listener >= 0 ? watch(backend->listener, backend, LISTENER) : 0;

	if (rc != 0)
		return rc;
	atomic_store(&backend->next, atomic_load(&guest_backends));
	atomic_store(&guest_backends, backend);
	/* At once: a front end that outlived an earlier switch waits for us. */
	if (backend->guest->client)
		try_connect(backend);
	return 0;
}

static int abandon(struct guest_backend *backend)
{
	struct guest_backend *_Atomic *at = &guest_backends;

	disconnect(backend);
	if (backend->listener >= 0)
		close(backend->listener);
	while (atomic_load(at) != backend)
		at = &atomic_load(at)->next;
	atomic_store(at, atomic_load(&backend->next));
	/* A worker may be looking through the ports for the address of a fault. */
	grace_wait();
	return 0;
}

int guest_socket_adopt(struct guest_backend *backend)
{
	return ask(adopt, backend);
}

void guest_watch(void)
{
	const uint64_t since = atomic_load(&guest_settles);
	const pthread_t thread = atomic_load(&protocol_thread);

	if (since != 0 && thread != 0 && guest_now() > since + SETTLE_MS)
		pthread_kill(thread, SIGUSR1);
}

void guest_socket_abandon(struct guest_backend *backend)
{
	ask(abandon, backend);
}

void guest_complain(struct guest_backend *backend, const char *format, ...)
{
	const uint64_t now = guest_now();
	char text[200];
	va_list arguments;

	if (backend->warned != 0 && now < backend->warned + COMPLAINT_MS)
		return;
	backend->warned = now;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_warning("port %s: %s", backend->name, text);
}
