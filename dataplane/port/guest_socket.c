/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <rte_lcore.h>
#include <rte_random.h>
#include <rte_thread.h>
#include <rte_version.h>

#include "common/accept.h"
#include "common/grace.h"
#include "common/log.h"
#include "port/guest_connection.h"
#include "port/guest_discard.h"
#include "port/guest_publish.h"
#include "port/guest_socket.h"
#include "port/guest_unread.h"

enum {
	TICK_MS = 20,	/* between tries to connect, and between looks for what takes too long */
	REST_MS = 500,	/* between looks for rings that have been stopped, while nothing else is waited for */
	NOTIFY_MS = 10, /* that waking a guest may take */
};

static _Atomic pthread_t protocol_thread; /* 0: none yet */

/* What the control thread asks of ours; it waits for the answer, so one at a time is enough. */
static struct {
	pthread_mutex_t one, lock;
	pthread_cond_t done;
	int (*call)(struct guest_backend *backend);
	struct guest_backend *backend;
	int rc;
} request = {.one = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static int epoll_fd = -1, wake_fd, spare_fd, look_fd;

/* At whose rings the thread looks first in the next turn; NULL: those of the first port. */
static struct guest_backend *look_next;
_Static_assert((int)GUEST_PAIRS <= (int)GUEST_UNREAD_RINGS, "a turn has room for the rings of any port");

/* epoll tells which socket is ready by a pointer to its port, the lowest bit set for a listener; NULL is a
 * request, or a worker that has sent what a guest had announced, and with that bit the time to look at rings. */
enum { LISTENER = 1, LOOK = LISTENER };

static int wait_for_input(int fd, struct guest_backend *backend, uintptr_t kind)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uintptr_t)backend | kind};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static int connected(struct guest_backend *backend, int fd)
{
	int rc = wait_for_input(fd, backend, 0);

	if (rc != 0) {
		guest_close_socket(backend, fd);
		return rc;
	}
	backend->connection = fd;
	backend->spoke = false;
	backend->have = 0;
	backend->deadline = 0;
	return 0;
}

/* Returns 0 or a negative errno. */
static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat file;
	int rc;

	if (fd < 0)
		return -errno;
	strcpy(address.sun_path, path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	rc = -errno;
	close(fd);
	/* Linux says the same of what is no socket as of one at which nobody listens. */
	return rc == -ECONNREFUSED && stat(path, &file) == 0 && !S_ISSOCK(file.st_mode) ? -ENOTSOCK : rc;
}

static void try_connect(struct guest_backend *backend)
{
	struct guest *guest = backend->guest;
	int rc = connect_to(guest->path), was;
	char why[320];

	if (rc >= 0)
		rc = connected(backend, rc);
	was = atomic_exchange(&guest->unreached, -rc);
	/* Not for each of fifty tries a second. */
	if (-rc != was && guest_unreached(guest, why, sizeof(why)))
		guest_log(backend, rc == -ENOENT || rc == -ECONNREFUSED ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "%s",
			  why);
}

bool guest_unreached(const struct guest *guest, char *why, unsigned why_size)
{
	const int error = atomic_load(&guest->unreached);

	if (error == EACCES || error == EPERM)
		snprintf(why, why_size,
			 "%s: the switch, which is user %u and group %u, may not connect there; give its group the "
			 "socket and the right to write to it (chgrp, chmod g+w), or see docs/guests.md",
			 guest->path, geteuid(), getgid());
	else if (error == ENOENT)
		snprintf(why, why_size, "%s: there is no such socket yet; start the guest that listens there",
			 guest->path);
	else if (error == ECONNREFUSED)
		snprintf(why, why_size, "%s: nobody listens there; start the guest that does", guest->path);
	else if (error == ENOTSOCK)
		snprintf(why, why_size, "%s: that is no socket; name the one at which the guest listens", guest->path);
	else if (error != 0)
		snprintf(why, why_size, "%s: %s", guest->path, strerror(error));
	return error != 0;
}

/* Has the front end closed its end?  What it sent before may still be unread. */
static bool has_gone(int fd)
{
	struct pollfd end = {.fd = fd, .events = POLLRDHUP};

	return poll(&end, 1, 0) == 1;
}

static void accept_front_end(struct guest_backend *backend)
{
	int fd;

	if (guest_closer_over(backend->closer, GUEST_CLOSER_FEW)) {
		backend->deaf = epoll_ctl(epoll_fd, EPOLL_CTL_DEL, backend->listener, NULL) == 0;
		return;
	}
	fd = accept_next(backend->listener, &spare_fd);
	if (fd < 0) {
		if (fd == -EMFILE || fd == -ENFILE) {
			guest_complain(backend, "turned away a front end: no file descriptor is left");
			guest_count_refused(backend);
		}
		return;
	}
	/* One front end for each port: a second does not disturb one that is there and has spoken. */
	if (backend->connection >= 0 && backend->spoke && !has_gone(backend->connection)) {
		guest_complain(backend, "turned away a second front end");
		guest_count_refused(backend);
		guest_close_socket(backend, fd);
		return;
	}
	if (backend->connection >= 0 && backend->spoke)
		guest_disconnect(backend);
	else if (backend->connection >= 0)
		guest_cut_off(backend, "it said nothing, and another came");
	connected(backend, fd);
}

/* Once more after a while, or (0) no more. */
static void look_again_in(uint64_t us)
{
	const struct itimerspec when = {.it_value = {.tv_nsec = (long)us * 1000}};

	timerfd_settime(look_fd, 0, &when, NULL);
}

/* Look at the rings of ports of which that is wanted, so many in a turn; of none: until it is again. */
static void look_at_rings(void)
{
	struct guest_backend *backend = look_next != NULL ? look_next : guest_backends;
	bool any = look_next != NULL; /* there may be some before it */
	unsigned rings = 0;

	for (; backend != NULL && rings + backend->guest->pairs <= GUEST_UNREAD_RINGS; backend = backend->next)
		rings += guest_unread_count(backend);
	look_next = backend;
	any |= rings > 0 || backend != NULL;
	look_again_in(any ? GUEST_UNREAD_US / 2 + rte_rand() % GUEST_UNREAD_US : 0);
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
	for (struct guest_backend *backend = guest_backends; backend != NULL; backend = backend->next)
		guest_announced(backend);
	look_at_rings();
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
			guest_complain(backend, "queue %u, %s ring: stopped until the guest resets it: %s",
				       ring / GUEST_VRINGS_EACH,
				       ring % GUEST_VRINGS_EACH == GUEST_RECEIVES ? "receive" : "send",
				       vring_fault_text(fault));
	}
}

/* Returns whether something is waited for that may take long, or shall be tried again. */
static bool tick(uint64_t now)
{
	bool waiting = false;

	for (struct guest_backend *backend = guest_backends; backend != NULL; backend = backend->next) {
		report_faults(backend);
		log_left_out(&backend->log, backend->name);
		if (backend->barred_until != 0 && now >= backend->barred_until)
			guest_end_bar(backend);
		if (backend->deadline != 0 && now >= backend->deadline)
			guest_cut_off(backend, "it stopped in the middle of a message");
		if (backend->guest->client && backend->connection < 0 &&
		    !guest_closer_over(backend->closer, GUEST_CLOSER_FEW))
			try_connect(backend);
		if (backend->deaf && !guest_closer_over(backend->closer, GUEST_CLOSER_FEW))
			backend->deaf = wait_for_input(backend->listener, backend, LISTENER) != 0;
		waiting |= guest_discard(backend, now);
		waiting |= backend->barred_until != 0 || backend->deadline != 0 || backend->deaf ||
			   (backend->guest->client && backend->connection < 0);
	}
	return waiting;
}

/* What a thread of DPDK's returns, and how one is started that keeps away from the workers' cores: changed in 23.11. */
#if RTE_VERSION < RTE_VERSION_NUM(23, 11, 0, 0)
typedef void *thread_end;

static int start_control_thread(pthread_t *thread, const char *name, thread_end (*run)(void *))
{
	return rte_ctrl_thread_create(thread, name, NULL, run, NULL);
}
#else
typedef uint32_t thread_end;

static int start_control_thread(pthread_t *thread, const char *name, thread_end (*run)(void *))
{
	rte_thread_t id = {0};
	const int rc = rte_thread_create_control(&id, name, run, NULL);

	*thread = (pthread_t)id.opaque_id;
	return rc;
}
#endif

static thread_end serve(void *unused)
{
	uint64_t now = guest_now(), next = now;

	for (;;) {
		struct epoll_event event;

		/* One at a time: what an event points at cannot have gone with an earlier one. */
		if (epoll_wait(epoll_fd, &event, 1, next > now ? (int)(next - now) : 0) == 1) {
			struct guest_backend *backend = (struct guest_backend *)(event.data.u64 & ~(uint64_t)LISTENER);

			if (event.data.u64 == LOOK)
				look_at_rings();
			else if (backend == NULL)
				handle_request();
			else if (event.data.u64 & LISTENER)
				accept_front_end(backend);
			else
				guest_read_message(backend);
			/* It may have begun something that is waited for. */
			if (event.data.u64 != LOOK)
				next = RTE_MIN(next, now + TICK_MS);
		}
		now = guest_now();
		if (now >= next)
			next = now + (tick(now) ? TICK_MS : REST_MS);
	}
	return 0;
}

/* ------- for the control thread ------- */

static int start_thread(void)
{
	pthread_t thread;
	int rc;

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	spare_fd = accept_spare();
	look_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	rc = epoll_fd < 0 || wake_fd < 0 || spare_fd < 0 || look_fd < 0 ? -errno : wait_for_input(wake_fd, NULL, 0);
	if (rc == 0)
		rc = wait_for_input(look_fd, NULL, LOOK);
	if (rc == 0)
		rc = start_control_thread(&thread, "guests", serve);
	if (rc == 0) {
		pthread_detach(thread);
		atomic_store(&protocol_thread, thread);
		return 0;
	}
	/* The next port tries again. */
	close(epoll_fd);
	close(wake_fd);
	close(spare_fd);
	close(look_fd);
	epoll_fd = -1;
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
	const int rc = backend->listener >= 0 ? wait_for_input(backend->listener, backend, LISTENER) : 0;

	if (rc != 0)
		return rc;
	backend->epoll_fd = epoll_fd;
	backend->wake_fd = wake_fd;
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

	guest_disconnect(backend);
	if (backend->listener >= 0)
		guest_close_socket(backend, backend->listener);
	guest_closer_close(backend->closer);
	while (atomic_load(at) != backend)
		at = &atomic_load(at)->next;
	atomic_store(at, atomic_load(&backend->next));
	if (look_next == backend)
		look_next = backend->next;
	/* A worker may be looking through the ports for the address of a fault. */
	grace_wait();
	return 0;
}

int guest_socket_adopt(struct guest_backend *backend)
{
	return ask(adopt, backend);
}

void guest_count_unread(struct guest *guest, bool wanted)
{
	const uint64_t one = 1;

	/* Whoever is told looks, and goes on for as long as that is wanted of any. */
	if (atomic_exchange(&guest->unread, wanted) != wanted && write(wake_fd, &one, sizeof(one)) < 0)
		atomic_store(&guest->unread, !wanted);
}

void guest_watchdog(void)
{
	const uint64_t since = atomic_load(&guest_notifying);
	const pthread_t thread = atomic_load(&protocol_thread);

	if (since != 0 && thread != 0 && guest_now() > since + NOTIFY_MS)
		pthread_kill(thread, SIGUSR1);
}

void guest_socket_abandon(struct guest_backend *backend)
{
	ask(abandon, backend);
}
