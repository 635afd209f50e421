/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_pause.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "forward.h"

enum {
	EVENTS = 3, /* two ports and the wake-up */
	WORKER = 0,
	/* ns, on a shared core: between two tries at a full port, two looks at frames kept, or two looks at ports that
	 * have no receive interrupts */
	SHORT_SLEEP = 50 * 1000,
};

/* Hand over as much of what is held from a port as the other one takes; returns how many frames that is. */
static uint16_t send_held(struct forward *forward, uint16_t in)
{
	struct forward_held *held = &forward->held[in];
	uint16_t nb_sent = rte_eth_tx_burst(forward->ports[!in].port, 0, held->frames + held->first, held->nb_frames);

	held->first += nb_sent;
	held->nb_frames -= nb_sent;
	function_count(&forward->counters[in].sent, nb_sent);
	return nb_sent;
}

/* Forward what one burst from each port brings; returns how many frames moved, in or out. */
static inline uint32_t forward_once(struct forward *forward)
{
	const struct function *function = forward->function;
	const struct function_keeping *keeping = function->keeping;
	uint32_t nb_moved = 0;

	for (uint16_t in = 0; in < 2; in++) {
		struct forward_held *held = &forward->held[in];
		uint16_t nb_frames = 0;

		/* A full receiver is waited for, and what comes meanwhile stays in its sender's ring: so back pressure
		 * reaches the chain's beginning, and only the switch, which knows the port's name, drops. */
		if (unlikely(held->nb_frames > 0)) {
			nb_moved += send_held(forward, in);
			continue;
		}
		if (likely(keeping == NULL || !keeping->full(in)))
			nb_frames = device_receive(&forward->ports[in], 0, held->frames, FORWARD_BURST);
		if (nb_frames == 0 && likely(keeping == NULL))
			continue;
		nb_moved += nb_frames;
		function_count(&forward->counters[in].received, nb_frames);
		held->first = 0;
		held->nb_frames = function->process(held->frames, nb_frames, in);
		if (unlikely(held->nb_frames < nb_frames && keeping == NULL))
			function_count(&forward->counters[in].drop_function, nb_frames - held->nb_frames);
		if (likely(held->nb_frames > 0))
			nb_moved += send_held(forward, in);
	}
	return nb_moved;
}

/* Whether there are frames that no interrupt notifies of when they can go on. */
static inline bool holds(const struct forward *forward)
{
	const struct function_keeping *keeping = forward->function->keeping;

	return forward->held[0].nb_frames > 0 || forward->held[1].nb_frames > 0 ||
	       (unlikely(keeping != NULL) && keeping->pending());
}

/* At the end, what nobody has taken is dropped and counted. */
static void drop_held(struct forward *forward)
{
	for (int in = 0; in < 2; in++) {
		struct forward_held *held = &forward->held[in];

		function_count(&forward->counters[in].drop_full, held->nb_frames);
		rte_pktmbuf_free_bulk(held->frames + held->first, held->nb_frames);
		held->nb_frames = 0;
	}
}

static bool quitting(struct forward *forward)
{
	return atomic_load_explicit(&forward->quit, memory_order_acquire);
}

/* Returns when it ended, which is when the next one begins. */
static inline uint64_t end_of_round(struct forward *forward, uint64_t began, uint32_t nb_moved)
{
	uint64_t now = rte_rdtsc();

	grace_worker_round(WORKER);
	gaps_check(&forward->gaps, began, now, nb_moved);
	return now;
}

/* Returns when the rest ended, as above. */
static uint64_t end_of_rest(struct forward *forward, uint64_t began)
{
	uint64_t now = rte_rdtsc();

	gaps_rested(&forward->gaps, began, now);
	return now;
}

static void run_polling(struct forward *forward)
{
	uint64_t before = rte_rdtsc();

	while (!quitting(forward)) {
		uint32_t nb_moved = forward_once(forward);

		if (nb_moved == 0)
			rte_pause();
		before = end_of_round(forward, before, nb_moved);
	}
}

/* Add both ports' interrupts and the wake-up to this thread's epoll.  -ENOTSUP: a port has none. */
static int watch(struct forward *forward)
{
	static struct rte_epoll_event wake_event = {.epdata.event = EPOLLIN};
	int rc;

	for (int i = 0; i < 2; i++) {
		rc = rte_eth_dev_rx_intr_ctl_q(forward->ports[i].port, 0, RTE_EPOLL_PER_THREAD, RTE_INTR_EVENT_ADD,
					       NULL);
		if (rc != 0) {
			log_info("port %s has no receive interrupts (%s)", forward->ports[i].target, strerror(-rc));
			return -ENOTSUP;
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

static void sleep_shortly(void)
{
	static const struct timespec time = {.tv_nsec = SHORT_SLEEP};

	grace_worker_rest(WORKER);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
	grace_worker_resume(WORKER);
}

/* Sleep until a port or somebody else notifies. */
static void sleep_until_woken(const struct forward *forward)
{
	struct rte_epoll_event events[EVENTS];
	uint64_t wakes;

	grace_worker_rest(WORKER);
	rte_epoll_wait(RTE_EPOLL_PER_THREAD, events, EVENTS, -1);
	grace_worker_resume(WORKER);
	(void)!read(forward->wake_fd, &wakes, sizeof(wakes)); /* or it would wake the thread for ever */
}

/* For ports without receive interrupts: look, and give the core away for a while when nothing has come. */
static void run_by_time(struct forward *forward)
{
	uint64_t before = rte_rdtsc();

	log_info("looks for frames every %d us", SHORT_SLEEP / 1000);
	while (!quitting(forward)) {
		uint32_t nb_moved = forward_once(forward);

		before = end_of_round(forward, before, nb_moved);
		if (nb_moved > 0)
			continue;
		function_count(&forward->sleeps, 1);
		sleep_shortly();
		before = end_of_rest(forward, before);
	}
}

static void run_interrupts(struct forward *forward)
{
	uint64_t before = rte_rdtsc();

	while (!quitting(forward)) {
		uint32_t nb_moved = forward_once(forward);

		before = end_of_round(forward, before, nb_moved);
		if (nb_moved > 0)
			continue;
		/* No interrupt notifies of room in a full port, and who is to make room may be waiting for this core.
		 */
		if (unlikely(holds(forward))) {
			sleep_shortly();
			before = end_of_rest(forward, before);
			continue;
		}
		arm(forward);
		/* A frame that came before the arming gave no interrupt. */
		if (forward_once(forward) == 0) {
			function_count(&forward->sleeps, 1);
			sleep_until_woken(forward);
			before = end_of_rest(forward, before);
		}
		disarm(forward);
	}
}

static int report_thread_id(void *thread_id)
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
	rte_eal_remote_launch(report_thread_id, &poller, eal_worker());
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
	const char *const name[] = {forward->function->name};

	forward->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (forward->wake_fd < 0) {
		log_error("eventfd: %s", strerror(errno));
		return -errno;
	}
	return gaps_open(&forward->gaps, name, 1, rte_get_tsc_hz());
}

int forward_run(void *context)
{
	struct forward *forward = context;
	int rc = 0;

	grace_worker_begin(WORKER);
	gaps_begin(&forward->gaps);
	if (forward->interrupts)
		rc = watch(forward);
	if (!forward->interrupts)
		run_polling(forward);
	else if (rc == 0)
		run_interrupts(forward);
	else if (rc == -ENOTSUP)
		run_by_time(forward);
	grace_worker_end(WORKER);
	drop_held(forward);
	return rc == -ENOTSUP ? 0 : rc;
}

void forward_quit(struct forward *forward)
{
	uint64_t one = 1;

	atomic_store_explicit(&forward->quit, true, memory_order_release);
	(void)!write(forward->wake_fd, &one, sizeof(one)); /* the counter cannot be full */
}
