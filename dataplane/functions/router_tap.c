/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "router_learn.h"
#include "router_tap.h"

enum {
	TURN = 32, /* frames of a queue or TAP, before the next one has its turn */
	LONGEST = 16 << 10,
	SEGMENTS = 16,
};

static void wake(int fd)
{
	const uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one)); /* the counter cannot be full */
}

/* There is something for the thread: either it sees that before it sleeps, or this one sees that it sleeps. */
static void wake_thread(struct router_tap *tap)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&tap->sleeps, memory_order_relaxed) && atomic_exchange(&tap->sleeps, false))
		wake(tap->wake_fd);
}

bool router_tap_give(struct router_tap *tap, struct rte_mbuf *mbuf, enum router_class class)
{
	if (rte_ring_enqueue(tap->to_kernel[class], mbuf) != 0)
		return false;
	wake_thread(tap);
	return true;
}

bool router_tap_prompt(struct router_tap *tap, uint32_t neighbour)
{
	if (!router_prompt_want(&tap->prompt, neighbour))
		return false;
	wake_thread(tap);
	return true;
}

/* ------- to the kernel ------- */

static void give_kernel(struct router_tap *tap, struct rte_mbuf *mbuf)
{
	unsigned port = mbuf->port, count = 0;
	struct iovec pieces[SEGMENTS];

	for (struct rte_mbuf *each = mbuf; each != NULL && count < SEGMENTS; each = each->next)
		pieces[count++] = (struct iovec){rte_pktmbuf_mtod(each, void *), each->data_len};
	if (writev(tap->fds[port], pieces, (int)count) < 0)
		tap->refused[port]++; /* it is down, or memory is short */
	else
		tap->given[port]++;
	rte_pktmbuf_free(mbuf);
}

static uint64_t milliseconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* Returns whether there was anything. */
static bool give_turn(struct router_tap *tap)
{
	const uint64_t now = milliseconds();
	struct rte_mbuf *mbufs[TURN];
	bool any = false;

	for (int class = 0; class < ROUTER_CLASSES; class ++) {
		unsigned count = rte_ring_sc_dequeue_burst(tap->to_kernel[class], (void **)mbufs, TURN, NULL);

		for (unsigned i = 0; i < count; i++)
			if (router_asked_may(&tap->asked, mbufs[i], now)) {
				give_kernel(tap, mbufs[i]);
			} else {
				tap->unasked[mbufs[i]->port]++;
				rte_pktmbuf_free(mbufs[i]);
			}
		any |= count > 0;
	}
	return any;
}

/* ------- from the kernel ------- */

/* Make a frame of bytes, in as many buffers as it takes; NULL: there are not enough. */
static struct rte_mbuf *frame_of(struct rte_mempool *pool, const uint8_t *bytes, uint32_t length)
{
	struct rte_mbuf *head = NULL;

	for (uint32_t done = 0; done < length;) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
		uint16_t part;

		if (mbuf == NULL) {
			rte_pktmbuf_free(head);
			return NULL;
		}
		part = (uint16_t)RTE_MIN(length - done, (uint32_t)rte_pktmbuf_tailroom(mbuf));
		memcpy(rte_pktmbuf_append(mbuf, part), bytes + done, part);
		done += part;
		if (head == NULL)
			head = mbuf;
		else
			rte_pktmbuf_chain(head, mbuf); /* it has fewer than that takes */
	}
	return head;
}

/* Returns whether there was anything. */
static bool take_turn(struct router_tap *tap, unsigned port)
{
	static uint8_t bytes[LONGEST];
	struct rte_ring *ring = tap->from_kernel[port];
	unsigned count = 0, looked = 0;

	while (looked < TURN && rte_ring_free_count(ring) > 0) {
		ssize_t length = read(tap->fds[port], bytes, sizeof(bytes));
		struct rte_mbuf *mbuf;

		if (length <= 0)
			break;
		looked++;
		if (unlikely(router_prompt_is(&tap->prompt, bytes, (uint32_t)length)))
			continue;
		mbuf = frame_of(tap->pool, bytes, (uint32_t)length);
		if (mbuf == NULL)
			break;
		rte_ring_sp_enqueue(ring, mbuf);
		count++;
	}
	tap->taken[port] += count;
	if (count > 0)
		wake(tap->forward_fd);
	return looked > 0;
}

/* ------- the thread ------- */

static bool waiting(const struct router_tap *tap)
{
	for (int class = 0; class < ROUTER_CLASSES; class ++)
		if (!rte_ring_empty(tap->to_kernel[class]))
			return true;
	return !rte_ring_empty(tap->prompt.wanted);
}

/* Sleep until something comes.  A TAP whose frames find no room is looked at again when the forwarding thread had time
 * to make some. */
static void sleep_until_news(struct router_tap *tap, int timeout)
{
	enum { WAKE, NEWS, TAPS, ALL = TAPS + ROUTER_PORTS };
	struct pollfd fds[ALL] = {
		[WAKE] = {.fd = tap->wake_fd, .events = POLLIN},
		[NEWS] = {.fd = router_kernel_fd(&tap->kernel), .events = POLLIN},
	};
	uint64_t wakes;

	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		bool room = rte_ring_free_count(tap->from_kernel[port]) > 0;

		fds[TAPS + port] = (struct pollfd){.fd = room ? tap->fds[port] : -1, .events = POLLIN};
		if (!room)
			timeout = 1;
	}
	atomic_store(&tap->sleeps, true);
	atomic_thread_fence(memory_order_seq_cst);
	if (!waiting(tap) && !atomic_load(&tap->quit))
		poll(fds, ALL, timeout);
	atomic_store(&tap->sleeps, false);
	(void)!read(tap->wake_fd, &wakes, sizeof(wakes));
}

static void *run(void *context)
{
	struct router_tap *tap = context;

	while (!atomic_load(&tap->quit)) {
		bool any = give_turn(tap);
		int timeout;

		for (unsigned port = 0; port < ROUTER_PORTS; port++)
			any |= take_turn(tap, port);
		pthread_mutex_lock(&router_table.lock);
		timeout = router_kernel_ask(&tap->kernel);
		any |= router_kernel_read(&tap->kernel);
		any |= router_prompt_send(&tap->prompt);
		pthread_mutex_unlock(&router_table.lock);
		if (!any)
			sleep_until_news(tap, timeout);
	}
	return NULL;
}

/* ------- start and end ------- */

/* Open a TAP interface.  Returns its descriptor and fills in its index, or returns -errno after logging. */
static int open_interface(const char *name, unsigned *interface)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), error;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	/* With several queues, so that a new instance can open it beside the old one. */
	if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0) {
		*interface = if_nametoindex(name);
		if (*interface != 0)
			return fd;
	}
	error = errno;
	log_error("interface %s: %s; make it with `ip tuntap add dev %s mode tap multi_queue user %u`", name,
		  strerror(error), name, geteuid());
	if (fd >= 0)
		close(fd);
	return -error;
}

static int open_queues(struct router_tap *tap)
{
	static const char *const names[] = {"neighbours", "itself", "others", "from0", "from1"};

	for (int i = 0; i < ROUTER_CLASSES + ROUTER_PORTS; i++) {
		/* Forwarding threads may share a CPU: none is to wait for another that was stopped on its way in. */
		const unsigned producers = i < ROUTER_CLASSES ? RING_F_MP_RTS_ENQ : RING_F_SP_ENQ;
		struct rte_ring *ring = rte_ring_create(names[i], ROUTER_QUEUE, SOCKET_ID_ANY,
							producers | RING_F_SC_DEQ | RING_F_EXACT_SZ);

		if (ring == NULL) {
			log_error("no memory for queues; use a larger --memory");
			return -ENOMEM;
		}
		if (i < ROUTER_CLASSES)
			tap->to_kernel[i] = ring;
		else
			tap->from_kernel[i - ROUTER_CLASSES] = ring;
	}
	return 0;
}

int router_tap_open(struct router_tap *tap, struct rte_mempool *pool, int forward_fd)
{
	static const char *const names[ROUTER_PORTS] = {"port0", "port1"};
	unsigned interfaces[ROUTER_PORTS];
	int rc;

	*tap = (struct router_tap){.fds = {-1, -1}, .prompt.fds = {-1, -1}, .pool = pool, .forward_fd = forward_fd};
	router_asked_open(&tap->asked);
	tap->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (tap->wake_fd < 0) {
		log_error("eventfd: %s", strerror(errno));
		return -errno;
	}
	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		tap->fds[port] = open_interface(names[port], &interfaces[port]);
		if (tap->fds[port] < 0)
			return tap->fds[port];
	}
	rc = open_queues(tap);
	if (rc == 0)
		rc = router_kernel_open(&tap->kernel, interfaces);
	if (rc == 0)
		rc = router_prompt_open(&tap->prompt, tap->kernel.interfaces);
	if (rc == 0)
		rc = router_learn(&tap->kernel); /* until then the kernel would have to forward */
	if (rc != 0)
		return rc;
	rc = pthread_create(&tap->thread, NULL, run, tap);
	if (rc != 0) {
		log_error("no thread: %s", strerror(rc));
		return -rc;
	}
	tap->runs = true;
	return 0;
}

static void free_queue(struct rte_ring *ring)
{
	struct rte_mbuf *mbuf;

	while (ring != NULL && rte_ring_dequeue(ring, (void **)&mbuf) == 0)
		rte_pktmbuf_free(mbuf);
	rte_ring_free(ring);
}

static void end_thread(struct router_tap *tap)
{
	if (!tap->runs)
		return;
	atomic_store(&tap->quit, true);
	wake(tap->wake_fd);
	pthread_join(tap->thread, NULL);
	tap->runs = false;
}

void router_tap_close(struct router_tap *tap)
{
	if (tap->pool == NULL)
		return;
	end_thread(tap);
	for (int class = 0; class < ROUTER_CLASSES; class ++)
		free_queue(tap->to_kernel[class]);
	for (unsigned port = 0; port < ROUTER_PORTS; port++) {
		free_queue(tap->from_kernel[port]);
		if (tap->fds[port] >= 0)
			close(tap->fds[port]);
	}
	router_kernel_close(&tap->kernel);
	router_prompt_close(&tap->prompt);
	close(tap->wake_fd);
	tap->pool = NULL;
}

void router_tap_describe(const struct router_tap *tap, json_t *into)
{
	json_t *list = json_array();

	for (unsigned port = 0; port < ROUTER_PORTS; port++)
		json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:I}", "to_kernel", (json_int_t)tap->given[port],
						      "from_kernel", (json_int_t)tap->taken[port], "refused",
						      (json_int_t)tap->refused[port], "unasked",
						      (json_int_t)tap->unasked[port]));
	json_object_set_new(into, "taps", list);
	json_object_set_new(into, "netlink",
			    json_pack("{s:I, s:I, s:I}", "asked", (json_int_t)tap->kernel.nb_asked, "messages",
				      (json_int_t)tap->kernel.nb_news, "lost", (json_int_t)tap->kernel.nb_lost));
}
