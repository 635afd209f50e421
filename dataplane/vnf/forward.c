/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_pause.h>

#include "common/eal.h"
#include "common/log.h"
#include "forward.h"

enum {
	BURST = 32,
	/* Tries at a full ring before a frame is dropped: some 100 us, after which the receiver is not merely busy. */
	SEND_TRIES = 4096,
	EVENTS = 3, /* two ports and the wake-up */
};

/* One writer, so a plain sum; atomic for those who read it meanwhile. */
static inline void count(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}

static void send_all(struct forward *forward, uint16_t in, struct rte_mbuf **burst, uint16_t nb_frames)
{
	uint16_t out = forward->ports[!in].port;
	uint16_t nb_sent = rte_eth_tx_burst(out, 0, burst, nb_frames);

	for (int tries = 0; unlikely(nb_sent < nb_frames) && tries < SEND_TRIES; tries++) {
		rte_pause();
		nb_sent += rte_eth_tx_burst(out, 0, burst + nb_sent, nb_frames - nb_sent);
	}
	count(&forward->counters[in].sent, nb_sent);
	if (unlikely(nb_sent < nb_frames)) {
		count(&forward->counters[in].drop_full, nb_frames - nb_sent);
		rte_pktmbuf_free_bulk(burst + nb_sent, nb_frames - nb_sent);
	}
}

/* Forward what one burst from each port brings; returns how many frames came. */
static inline uint32_t forward_once(struct forward *forward)
{
	uint32_t nb_received = 0;

	for (uint16_t in = 0; in < 2; in++) {
		struct rte_mbuf *burst[BURST];
		uint16_t nb_frames = rte_eth_rx_burst(forward->ports[in].port, 0, burst, BURST), nb_kept;

		if (nb_frames == 0)
			continue;
		nb_received += nb_frames;
		count(&forward->counters[in].received, nb_frames);
		nb_kept = forward->function->process(burst, nb_frames, in);
		if (unlikely(nb_kept < nb_frames))
			count(&forward->counters[in].drop_function, nb_frames - nb_kept);
		send_all(forward, in, burst, nb_kept);
	}
	return nb_received;
}

static bool quitting(struct forward *forward)
{
	return atomic_load_explicit(&forward->quit, memory_order_acquire);
}

static void run_polling(struct forward *forward)
{
	while (!quitting(forward))
		if (forward_once(forward) == 0)
			rte_pause();
}

/* Add both ports' interrupts and the wake-up to this thread's epoll. */
static int watch(struct forward *forward)
{
	static struct rte_epoll_event wake_event = {.epdata.event = EPOLLIN};
	int rc;

	for (int i = 0; i < 2; i++) {
		rc = rte_eth_dev_rx_intr_ctl_q(forward->ports[i].port, 0, RTE_EPOLL_PER_THREAD, RTE_INTR_EVENT_ADD,
					       NULL);
		if (rc != 0) {
			log_error("port %s has no receive interrupts (%s); use --mode poll", forward->ports[i].target,
				  strerror(-rc));
			return rc;
		}
	}
	rc = rte_epoll_ctl(RTE_EPOLL_PER_THREAD, EPOLL_CTL_ADD, forward->wake_fd, &wake_event);
	if (rc != 0)
		log_error("could not watch for the end: %s", strerror(errno));
	return rc;
}

static void arm(struct forward *forward)
{
	for (int i = 0; i < 2; i++)
		rte_eth_dev_rx_intr_enable(forward->ports[i].port, 0);
}

static void disarm(struct forward *forward)
{
	for (int i = 0; i < 2; i++)
		rte_eth_dev_rx_intr_disable(forward->ports[i].port, 0);
}

static int run_interrupts(struct forward *forward)
{
	int rc = watch(forward);

	if (rc != 0)
		return rc;
	while (!quitting(forward)) {
		struct rte_epoll_event events[EVENTS];

		if (forward_once(forward) > 0)
			continue;
		arm(forward);
		/* A frame that came before the arming gave no interrupt. */
		if (forward_once(forward) == 0) {
			count(&forward->sleeps, 1);
			rte_epoll_wait(RTE_EPOLL_PER_THREAD, events, EVENTS, -1);
		}
		disarm(forward);
	}
	return 0;
}

static int tell_thread_id(void *thread_id)
{
	*(pid_t *)thread_id = gettid();
	return 0;
}

int forward_confine_priority(void)
{
	const struct sched_param none = {0};
	struct dirent *entry;
	pid_t poller = 0;
	int rc = 0;
	DIR *threads;

	if (sched_getscheduler(0) == SCHED_OTHER)
		return 0;
	rte_eal_remote_launch(tell_thread_id, &poller, eal_worker());
	rte_eal_wait_lcore(eal_worker());
	threads = opendir("/proc/self/task");
	if (threads == NULL) {
		log_error("/proc is not there; mount it, or start without a real-time priority");
		return -errno;
	}
	while ((entry = readdir(threads)) != NULL) {
		pid_t thread = (pid_t)atoi(entry->d_name); /* 0 for . and .. */

		if (thread != 0 && thread != poller && sched_setscheduler(thread, SCHED_OTHER, &none) != 0) {
			rc = -errno;
			log_error("could not take the real-time priority from thread %d: %s", thread, strerror(errno));
		}
	}
	closedir(threads);
	return rc;
}

int forward_open(struct forward *forward)
{
	forward->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (forward->wake_fd < 0) {
		log_error("eventfd: %s", strerror(errno));
		return -errno;
	}
	return 0;
}

int forward_run(void *context)
{
	struct forward *forward = context;

	if (forward->interrupts)
		return run_interrupts(forward);
	run_polling(forward);
	return 0;
}

void forward_quit(struct forward *forward)
{
	uint64_t one = 1;

	atomic_store_explicit(&forward->quit, true, memory_order_release);
	(void)!write(forward->wake_fd, &one, sizeof(one)); /* the counter cannot be full */
}
