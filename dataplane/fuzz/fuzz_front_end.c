/* SPDX-License-Identifier: Apache-2.0
 *
 * A malicious front end, and a worker that serves what it sets up.  The input is what happens at one port, in turn: the
 * front end sends messages with descriptors, writes to the memory that it shares, cuts that short, hangs up and comes
 * back; time passes; a worker polls.  It goes over a real socket through reading, parsing and acting, with real files.
 * Two things are not real: there is one thread, which is the worker too, so nothing happens at the same time; and what
 * is to be closed is closed at once.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "common/grace.h"
#include "fuzz/fuzz.h"
#include "port/guest_connection.h"
#include "port/guest_discard.h"
#include "port/guest_pages.h"
#include "port/guest_publish.h"
#include "port/guest_ring.h"
#include "port/guest_socket.h"
#include "vring/hop.h"

enum {
	PAIRS = 2,
	EVENTS_MOST = 256,
	MEMORY_MOST = 1 << 20,
	LATER_MS = 150, /* rings that are stopped are looked at after less */
	SEND_MOST = 16, /* descriptors with one piece of a message: more than any message has */
	PAYLOAD_MOST = 512,
};

/* What the front end may send a descriptor of. */
enum { MEMORY, SHORT_MEMORY, LOG, KICK, CALL, PIPE, OWN_END, DEVICE, FILES };
enum { MEMORIES = LOG + 1 };
static const size_t sizes[MEMORIES] = {[MEMORY] = 64 << 10, [SHORT_MEMORY] = 6000, [LOG] = 4096};

static struct guest guest;
static struct queue_counters counters[PAIRS];
static int files[FILES];
static uint64_t later; /* milliseconds that have passed in the input */
static long mapped;    /* bytes that are there */

/* ------- what is not real, or counted (the linker puts these in the place of the others) ------- */

int __wrap_guest_socket_adopt(struct guest_backend *backend);
void __wrap_guest_closer_give(struct guest_closer *closer, int fd);
bool __wrap_guest_closer_over(struct guest_closer *closer, unsigned most);
void __wrap_guest_populate(void *base, size_t length, size_t page);
void *__real_mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t length);
int __wrap_munmap(void *address, size_t length);
sighandler_t __wrap_signal(int number, sighandler_t handler);

int __wrap_guest_socket_adopt(struct guest_backend *backend)
{
	atomic_store(&guest_backends, backend);
	return 0;
}

void __wrap_guest_closer_give(struct guest_closer *closer, int fd)
{
	close(fd);
}

bool __wrap_guest_closer_over(struct guest_closer *closer, unsigned most)
{
	return false;
}

void __wrap_guest_populate(void *base, size_t length, size_t page)
{
	const size_t step = GUEST_PAGES_STEP * page;

	for (size_t at = 0; at < length; at += step)
		guest_pages_map_present((uintptr_t)base + at, RTE_MIN(step, length - at), page);
}

void *__wrap_mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *at = __real_mmap64(address, length, protection, flags, fd, offset);

	mapped += at != MAP_FAILED && !(flags & MAP_FIXED) ? (long)length : 0;
	return at;
}

int __wrap_munmap(void *address, size_t length)
{
	const int rc = __real_munmap(address, length);

	check(rc == 0, "what is no mapping is unmapped");
	mapped -= (long)length;
	return rc;
}

/* A fault in memory that is no guest's: the input is to be kept. */
sighandler_t __wrap_signal(int number, sighandler_t handler)
{
	check(false, "a fault outside of the memory that is shared");
	return NULL;
}

/* ------- the front end ------- */

static int connection = -1;

static void call_up(void)
{
	int ends[2];

	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "no socket");
	connection = files[OWN_END] = ends[0];
	/* As guest_socket.c takes it. */
	guest.backend->connection = ends[1];
	guest.backend->spoke = false;
	guest.backend->have = 0;
	guest.backend->deadline = 0;
}

/* Every answer is a whole message that says it is one. */
static void read_answers(void)
{
	static uint8_t answers[1 << 16];
	const ssize_t got = read(connection, answers, sizeof(answers));

	for (ssize_t at = 0; at < got;) {
		struct guest_message answer;

		check(got - at >= GUEST_MESSAGE_HEADER, "half an answer");
		memcpy(&answer, answers + at, GUEST_MESSAGE_HEADER);
		check(answer.flags == (GUEST_FLAG_VERSION | GUEST_FLAG_REPLY) && answer.size <= GUEST_MESSAGE_PAYLOAD &&
			      at + GUEST_MESSAGE_HEADER + answer.size <= got,
		      "what is no answer");
		at += GUEST_MESSAGE_HEADER + answer.size;
	}
}

/* The port may hold the front end's own end of the connection, as a part of half a message: then its time runs out. */
static void hang_up(void)
{
	struct guest_backend *backend = guest.backend;

	close(connection);
	if (backend->connection >= 0)
		guest_read_message(backend);
	if (backend->connection >= 0 && backend->deadline != 0)
		guest_cut_off(backend, "it stopped in the middle of a message");
	check(backend->connection < 0, "a front end that has gone is kept");
}

/* Send bytes with descriptors of `which` files, by a new connection if the port has ended the last one. */
static void deliver(const void *bytes, size_t length, const uint8_t *which, unsigned nb_fds)
{
	char control[CMSG_SPACE(SEND_MOST * sizeof(int))];
	struct iovec piece = {(void *)bytes, length};
	struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
	int waits;

	if (length == 0)
		return;
	if (guest.backend->connection < 0) {
		close(connection);
		call_up();
	}
	if (nb_fds > 0) {
		memset(control, 0, sizeof(control));
		header.msg_control = control;
		header.msg_controllen = CMSG_SPACE(nb_fds * sizeof(int));
		*CMSG_FIRSTHDR(&header) = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(nb_fds * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		for (unsigned i = 0; i < nb_fds; i++)
			memcpy(CMSG_DATA(CMSG_FIRSTHDR(&header)) + i * sizeof(int), &files[which[i]], sizeof(int));
	}
	check(sendmsg(connection, &header, MSG_NOSIGNAL) == (ssize_t)length, "the port does not read");
	while (guest.backend->connection >= 0 && ioctl(guest.backend->connection, FIONREAD, &waits) == 0 && waits > 0)
		guest_read_message(guest.backend);
	if (guest.backend->connection >= 0)
		read_answers();
}

/* ------- the switch ------- */

static void worker_poll(void)
{
	for (unsigned pair = 0; pair < PAIRS; pair++) {
		struct virtqueue *from = atomic_load(&guest.live[GUEST_VRINGS_EACH * pair + GUEST_SENDS]);
		struct virtqueue *to = atomic_load(&guest.live[GUEST_VRINGS_EACH * pair + GUEST_RECEIVES]);

		guest_worker_since = rte_rdtsc();
		if (from != NULL && to != NULL && to->fault == VRING_FAULT_NONE)
			vring_hop(from, to);
		else if (from != NULL)
			vring_discard(from, &from->counters->drop_no_chain);
		if (from != NULL)
			vring_notify(from, to);
		/* As before a worker sleeps, and when it wakes. */
		if (from != NULL)
			vring_arm(from);
		if (from != NULL && from->fault == VRING_FAULT_NONE)
			vring_disarm(from);
	}
	guest_worker_since = 0;
}

/* As what watches over all ports does. */
static void time_passes(void)
{
	struct guest_backend *backend = guest.backend;

	later += LATER_MS;
	guest_announced(backend);
	if (backend->barred_until != 0)
		guest_end_bar(backend);
	guest_discard(backend, guest_now() + later);
	if (backend->deadline != 0)
		guest_cut_off(backend, "it stopped in the middle of a message");
}

static void check_rings(void)
{
	const struct guest_backend *backend = guest.backend;
	const struct guest_table *table = atomic_load(&backend->memory.table);

	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		const struct guest_ring *ring = &backend->rings[i];

		if (atomic_load(&guest.live[i]) == NULL)
			continue;
		check(i < GUEST_VRINGS_EACH * PAIRS && table != NULL, "a ring is served that there is not");
		check(ring->started && guest_ring_enabled(backend, i), "a ring is served that is stopped");
	}
	check(!guest_paused(&guest), "receivers are waited for that do not come");
	check(guest_pairs(&guest) <= PAIRS, "more queues than there are");
}

/* How many descriptors are open. */
static unsigned count_open(void)
{
	struct pollfd descriptors[256];
	unsigned count = 0;

	for (unsigned i = 0; i < RTE_DIM(descriptors); i++)
		descriptors[i] = (struct pollfd){.fd = i};
	check(poll(descriptors, RTE_DIM(descriptors), 0) >= 0, "descriptors cannot be counted");
	for (unsigned i = 0; i < RTE_DIM(descriptors); i++)
		count += !(descriptors[i].revents & POLLNVAL);
	return count;
}

/* Nothing is left of a front end that has gone. */
static void check_forgotten(long mappings, unsigned descriptors)
{
	struct guest_backend *backend = guest.backend;
	const struct guest_facts facts = guest_facts(&guest);

	check(count_open() == descriptors, "a descriptor is left open, or one too many is closed");
	check(mapped == mappings && atomic_load(&backend->memory.table) == NULL, "memory is left mapped");
	check(facts.since == 0 && facts.features == 0 && facts.memory == 0, "what it said still holds");
	for (unsigned i = 0; i < GUEST_VRINGS; i++)
		check(atomic_load(&guest.live[i]) == NULL && guest.fault[i] == VRING_FAULT_NONE &&
			      !backend->rings[i].started && backend->rings[i].size == 0,
		      "a ring is left");
	/* What it has taken of a worker's time is not its successor's, of another input. */
	backend->account = (struct account){0};
	backend->barred_until = backend->bar = 0;
}

/* ------- the input ------- */

struct input {
	const uint8_t *at;
	size_t left;
};

static unsigned take(struct input *input, unsigned bytes)
{
	unsigned value = 0;

	for (unsigned i = 0; i < bytes && input->left > 0; i++, input->left--)
		value |= (unsigned)*input->at++ << 8 * i;
	return value;
}

static size_t take_bytes(struct input *input, void *into, size_t most)
{
	const size_t count = RTE_MIN(most, input->left);

	memcpy(into, input->at, count);
	input->at += count;
	input->left -= count;
	return count;
}

/* Bits of the byte that a message begins with, beside its kind. */
enum { WRONG_SIZE = 1 << 3, IN_PIECES = 1 << 4, NO_HEADER = 1 << 5, FILES_AGAIN = 1 << 6 };

/* Its request, flags and size; how many descriptors and which; its payload; and perhaps where it is cut. */
static void send_message(struct input *input, unsigned how)
{
	struct {
		uint32_t request, flags, size;
		uint8_t payload[PAYLOAD_MOST];
	} message;
	unsigned nb_fds;
	const uint8_t *bytes = (const uint8_t *)&message;
	size_t length, cut;
	uint8_t which[SEND_MOST];

	message.request = take(input, 1);
	message.flags = take(input, 1);
	nb_fds = take(input, 1) % (SEND_MOST + 1);
	for (unsigned i = 0; i < nb_fds; i++)
		which[i] = take(input, 1) % FILES;
	message.size = take(input, 2);
	length = take_bytes(input, message.payload, RTE_MIN(message.size, (uint32_t)PAYLOAD_MOST));
	if (how & WRONG_SIZE)
		message.size = take(input, 4);
	length += GUEST_MESSAGE_HEADER;
	if (how & NO_HEADER) {
		bytes += GUEST_MESSAGE_HEADER;
		length -= GUEST_MESSAGE_HEADER;
	}
	cut = how & IN_PIECES ? RTE_MIN((size_t)take(input, 2), length) : length;
	deliver(bytes, cut, which, nb_fds);
	deliver(bytes + cut, length - cut, which, how & FILES_AGAIN ? nb_fds : 0);
}

static void write_memory(struct input *input)
{
	const unsigned which = take(input, 1) % MEMORIES;
	const unsigned at = take(input, 2) % sizes[which];
	uint8_t bytes[UINT8_MAX];
	const size_t count = take_bytes(input, bytes, take(input, 1));

	/* One that was cut grows again. */
	if (count > 0 && at + count <= sizes[which] && pwrite(files[which], bytes, count, at) < 0)
		check(false, "memory cannot be written");
}

static void open_files(void)
{
	int ends[2];

	for (unsigned i = 0; i < MEMORIES; i++) {
		files[i] = memfd_create("memory", MFD_CLOEXEC);
		check(files[i] >= 0 && ftruncate(files[i], sizes[i]) == 0, "no memory");
	}
	files[KICK] = eventfd(0, EFD_CLOEXEC);
	files[CALL] = eventfd(0, EFD_CLOEXEC);
	check(pipe(ends) == 0, "no pipe");
	close(ends[1]);
	files[PIPE] = ends[0];
	files[DEVICE] = open("/dev/null", O_RDWR | O_CLOEXEC);
	check(files[DEVICE] >= 0);
}

static void close_files(void)
{
	for (unsigned i = 0; i < FILES; i++)
		if (i != OWN_END)
			close(files[i]);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check(start_dpdk(16) == 0);
	check(grace_open() == 0);
	log_open("fuzz", LOG_LEVEL_ERROR);
	return 0;
}

/* Not in LLVMFuzzerInitialize(), after which libFuzzer sets signal handlers of its own. */
static void open_port(void)
{
	struct guest_options options = {.name = "g",
					.path = "/nowhere",
					.client = true,
					.offloads = true,
					.memory = MEMORY_MOST,
					.queues = PAIRS};
	char why[320];

	for (unsigned i = 0; i < PAIRS; i++)
		options.counters[i] = &counters[i];
	check(guest_survive_cuts() == 0 && guest_open(&guest, &options, why, sizeof(why)) == 0, "no port");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	unsigned descriptors;
	long mappings;

	if (guest.backend == NULL)
		open_port();
	later = 0;
	mappings = mapped;
	descriptors = count_open();
	open_files();
	call_up();
	for (unsigned i = 0; i < EVENTS_MOST && input.left > 0; i++) {
		const unsigned event = take(&input, 1), which = take(&input, event % 8 == 4);

		switch (event % 8) {
		case 0:
			write_memory(&input);
			break;
		case 1:
			worker_poll();
			break;
		case 2:
			time_passes();
			break;
		case 3:
			hang_up();
			call_up();
			break;
		case 4:
			if (ftruncate(files[which % MEMORIES], take(&input, 2) % (sizes[which % MEMORIES] + 1)) != 0)
				check(false, "memory cannot be cut");
			break;
		default:
			send_message(&input, event);
		}
		check_rings();
	}
	hang_up();
	close_files();
	check_forgotten(mappings, descriptors);
	return 0;
}
