/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_pause.h>

#include "common/grace.h"
#include "common/log.h"
#include "inboxes.h"
#include "lanes.h"

enum {
	EVENTS = 2 * FUNCTION_QUEUES + 2, /* ports and the wake-ups */
	/* ns, on a shared core: between two tries at a full port, two looks at frames kept, or two looks at ports that
	 * have no receive interrupts */
	SHORT_SLEEP = 50 * 1000,
	AGEING = 1000, /* ms */
	BRIEF = 10,    /* us: going to sleep and waking take that, so a rest that is no longer is work */
};

/* Hand over as much of what is held from a port as the other one takes; returns how many frames that is. */
static uint16_t send_held(struct forward *forward, uint16_t queue, uint16_t in)
{
	struct forward_held *held = &forward->lanes[queue].held[in];
	uint16_t nb_sent = rte_eth_tx_burst(forward->ports[!in].port, queue, held->frames + held->first,
					    held->nb_frames);

	held->first += nb_sent;
	held->nb_frames -= nb_sent;
	function_count(&forward->lanes[queue].counters[in].sent, nb_sent);
	return nb_sent;
}

/* Those of its frames that came in elsewhere, and a burst of which those stay that belong here.  Where that leaves
 * room, more of the former: of an inbox that fills faster than this, nothing is to be lost while there is time. */
static __rte_noinline uint16_t receive_own(struct forward *forward, uint16_t queue, uint16_t in,
					   struct rte_mbuf **mbufs, uint16_t *nb_received)
{
	const uint16_t nb_taken = inboxes_take(forward, queue, in, mbufs, INBOX_TAKEN);
	uint16_t nb = nb_taken;

	*nb_received = 0;
	if (likely(inboxes_take_more(forward, queue, in, rte_rdtsc()))) {
		*nb_received = device_receive(&forward->ports[in], queue, mbufs + nb, FORWARD_BURST - nb);
		nb += inboxes_hand_on(forward, queue, in, mbufs + nb, *nb_received);
	}
	if (nb_taken == INBOX_TAKEN)
		nb += inboxes_take(forward, queue, in, mbufs + nb, FORWARD_BURST - nb);
	return nb;
}

/* Forward what one burst from each port brings by a queue; returns how many frames moved, in or out. */
static inline uint32_t forward_queue(struct forward *forward, uint16_t queue)
{
	const struct function *function = forward->function;
	const struct function_keeping *keeping = function->keeping;
	uint32_t nb_moved = 0;

	for (uint16_t in = 0; in < 2; in++) {
		struct forward_counters *counters = &forward->lanes[queue].counters[in];
		struct forward_held *held = &forward->lanes[queue].held[in];
		uint16_t nb_frames = 0, nb_received = 0;

		/* A full receiver is waited for, and what comes meanwhile stays in its sender's ring: so back pressure
		 * reaches the chain's beginning, and only the switch, which knows the port's name, drops. */
		if (unlikely(held->nb_frames > 0)) {
			nb_moved += send_held(forward, queue, in);
			continue;
		}
		if (unlikely(forward->lanes[queue].inboxes != NULL))
			nb_frames = receive_own(forward, queue, in, held->frames, &nb_received);
		else if (likely(keeping == NULL || !keeping->full(in)))
			nb_received = nb_frames = device_receive(&forward->ports[in], queue, held->frames,
								 FORWARD_BURST);
		if (nb_frames == 0 && likely(keeping == NULL))
			continue;
		nb_moved += RTE_MAX(nb_frames, nb_received);
		function_count(&counters->received, nb_received);
		held->first = 0;
		held->nb_frames = function->process(held->frames, nb_frames, in, queue);
		if (unlikely(held->nb_frames < nb_frames && keeping == NULL))
			function_count(&counters->drop_function, nb_frames - held->nb_frames);
		if (likely(held->nb_frames > 0))
			nb_moved += send_held(forward, queue, in);
	}
	return nb_moved;
}

static inline uint32_t forward_once(struct forward_thread *thread)
{
	uint32_t nb_moved = 0;

	for (unsigned i = 0; i < thread->nb_queues; i++)
		nb_moved += forward_queue(thread->forward, thread->queues[i]);
	return nb_moved;
}

/* Whether there is something to do that no interrupt notifies of, such as frames that can go on after a time. */
static inline bool holds(const struct forward_thread *thread)
{
	const struct forward *forward = thread->forward;
	const struct function_keeping *keeping = forward->function->keeping;

	for (unsigned i = 0; i < thread->nb_queues; i++) {
		const struct forward_held *held = forward->lanes[thread->queues[i]].held;

		if (held[0].nb_frames > 0 || held[1].nb_frames > 0 ||
		    (unlikely(keeping != NULL) && keeping->pending(thread->queues[i])) ||
		    unlikely(inboxes_waited_for(forward, thread->queues[i])))
			return true;
	}
	return false;
}

/* Returns when it ended, which is when the next one begins. */
static inline uint64_t end_of_round(struct forward_thread *thread, uint64_t began, uint32_t nb_moved)
{
	uint64_t now = rte_rdtsc();

	grace_worker_round(thread->number);
	gaps_check(&thread->gaps, began, now, nb_moved);
	if (nb_moved > 0)
		gaps_busy(&thread->gaps, began, now);
	if (unlikely(nb_moved > 0 && atomic_load_explicit(&thread->first, memory_order_relaxed) == 0))
		atomic_store(&thread->first, now);
	return now;
}

/* Returns when the rest ended, as above. */
static uint64_t end_of_rest(struct forward_thread *thread, uint64_t began)
{
	uint64_t now = rte_rdtsc();

	gaps_rested(&thread->gaps, began, now);
	if (now - began < rte_get_tsc_hz() / 1000000 * BRIEF)
		gaps_busy(&thread->gaps, began, now);
	return now;
}

/* ------- interrupts ------- */

/* Where DPDK keeps what is watched: of each thread's own wake-up, and of the function's. */
static struct rte_epoll_event wakes[FUNCTION_QUEUES], function_wakes;

static void watch_wakes(const struct forward_thread *thread, int fd, struct rte_epoll_event *event)
{
	*event = (struct rte_epoll_event){.epdata.event = EPOLLIN};
	if (rte_epoll_ctl(RTE_EPOLL_PER_THREAD, EPOLL_CTL_ADD, fd, event) != 0) {
		log_error("could not watch for the end: %s", strerror(errno));
		atomic_store(&thread->forward->failed, true);
	}
}

/* Add both ports' interrupts of a queue to this thread's epoll, and the function's own wake-up. */
static void watch(struct forward_thread *thread, unsigned queue)
{
	struct forward *forward = thread->forward;

	if (queue == 0)
		watch_wakes(thread, forward->wake_fd, &function_wakes);
	for (int i = 0; i < 2; i++) {
		int rc = rte_eth_dev_rx_intr_ctl_q(forward->ports[i].port, (uint16_t)queue, RTE_EPOLL_PER_THREAD,
						   RTE_INTR_EVENT_ADD, NULL);

		if (rc != 0 && !thread->no_events) {
			log_info("port %s has no receive interrupts (%s); looks for frames every %d us",
				 forward->ports[i].target, strerror(-rc), SHORT_SLEEP / 1000);
			thread->no_events = true;
		}
	}
}

static void unwatch(struct forward_thread *thread, unsigned queue)
{
	struct forward *forward = thread->forward;

	if (queue == 0)
		rte_epoll_ctl(RTE_EPOLL_PER_THREAD, EPOLL_CTL_DEL, forward->wake_fd, &function_wakes);
	for (int i = 0; i < 2; i++)
		rte_eth_dev_rx_intr_ctl_q(forward->ports[i].port, (uint16_t)queue, RTE_EPOLL_PER_THREAD,
					  RTE_INTR_EVENT_DEL, NULL);
}

static void arm(const struct forward_thread *thread)
{
	for (unsigned i = 0; i < 2 * thread->nb_queues; i++)
		rte_eth_dev_rx_intr_enable(thread->forward->ports[i % 2].port, thread->queues[i / 2]);
}

static void disarm(const struct forward_thread *thread)
{
	for (unsigned i = 0; i < 2 * thread->nb_queues; i++)
		rte_eth_dev_rx_intr_disable(thread->forward->ports[i % 2].port, thread->queues[i / 2]);
}

static void sleep_shortly(const struct forward_thread *thread)
{
	static const struct timespec time = {.tv_nsec = SHORT_SLEEP};

	grace_worker_rest(thread->number);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
	grace_worker_resume(thread->number);
}

/* Sleep until a port or somebody else notifies, or something may have aged. */
static void sleep_until_woken(const struct forward_thread *thread)
{
	const struct function_keeping *keeping = thread->forward->function->keeping;
	const int timeout = keeping != NULL && keeping->ages ? AGEING : -1;
	struct rte_epoll_event events[EVENTS];
	uint64_t count;

	grace_worker_rest(thread->number);
	rte_epoll_wait(RTE_EPOLL_PER_THREAD, events, EVENTS, timeout);
	grace_worker_resume(thread->number);
	/* Or they would wake the thread for ever. */
	(void)!read(thread->wake_fd, &count, sizeof(count));
	if (atomic_load_explicit(&thread->forward->lanes[0].owner, memory_order_relaxed) == (int)thread->number)
		(void)!read(thread->forward->wake_fd, &count, sizeof(count));
}

/* ------- a thread ------- */

static void move_to_cpu(struct forward_thread *thread)
{
	const int cpu = atomic_load(&thread->cpu);
	cpu_set_t set;

	if (cpu == atomic_load_explicit(&thread->runs, memory_order_relaxed))
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0)
		atomic_store(&thread->runs, cpu);
}

/* Follow what was changed.  Returns whether the thread goes on. */
static inline bool goes_on(struct forward_thread *thread)
{
	if (unlikely(lanes_changed(thread))) {
		move_to_cpu(thread);
		lanes_follow(thread, thread->forward->interrupts ? unwatch : NULL,
			     thread->forward->interrupts ? watch : NULL);
	}
	return !atomic_load_explicit(&thread->forward->quit, memory_order_acquire) &&
	       !(unlikely(thread->nb_queues == 0) && atomic_load(&thread->ends));
}

static void run_polling(struct forward_thread *thread)
{
	uint64_t before = rte_rdtsc();

	while (goes_on(thread)) {
		uint32_t nb_moved = forward_once(thread);

		if (nb_moved == 0)
			rte_pause();
		before = end_of_round(thread, before, nb_moved);
	}
}

static void run_interrupts(struct forward_thread *thread)
{
	uint64_t before = rte_rdtsc();

	while (goes_on(thread)) {
		uint32_t nb_moved = forward_once(thread);

		before = end_of_round(thread, before, nb_moved);
		if (nb_moved > 0)
			continue;
		if (unlikely(thread->no_events))
			function_count(&thread->sleeps, 1);
		/* No interrupt notifies of room in a full port, and who is to make room may be waiting for this core.
		 */
		if (unlikely(thread->no_events || holds(thread))) {
			sleep_shortly(thread);
			before = end_of_rest(thread, before);
			continue;
		}
		arm(thread);
		/* What came before gave no interrupt, nor will what this look leaves waiting.  Either it sees what
		 * somebody has put there, or that one sees that there is somebody to wake. */
		atomic_store(&thread->to_wake, true);
		atomic_thread_fence(memory_order_seq_cst);
		if (forward_once(thread) == 0 && !holds(thread)) {
			function_count(&thread->sleeps, 1);
			sleep_until_woken(thread);
			before = end_of_rest(thread, before);
		}
		atomic_store_explicit(&thread->to_wake, false, memory_order_relaxed);
		disarm(thread);
	}
}

/* What this thread's cache has of the common pool is for the others. */
static void give_back_buffers(struct forward *forward)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(forward->pool, rte_lcore_id());

	if (cache != NULL)
		rte_mempool_cache_flush(cache, forward->pool);
}

int forward_run(void *context)
{
	struct forward_thread *thread = context;
	struct forward *forward = thread->forward;

	grace_worker_begin(thread->number);
	gaps_begin(&thread->gaps);
	thread->expects = true; /* to look at what it is to have */
	if (forward->interrupts) {
		watch_wakes(thread, thread->wake_fd, &wakes[thread->number]);
		run_interrupts(thread);
		rte_epoll_ctl(RTE_EPOLL_PER_THREAD, EPOLL_CTL_DEL, thread->wake_fd, &wakes[thread->number]);
	} else {
		run_polling(thread);
	}
	grace_worker_end(thread->number);
	give_back_buffers(forward);
	return 0;
}

void forward_wake(const struct forward_thread *thread)
{
	uint64_t one = 1;

	(void)!write(thread->wake_fd, &one, sizeof(one)); /* the counter cannot be full */
}

/* Who takes a queue after this looks at what is there for it. */
void forward_wake_queue(struct forward *forward, unsigned queue)
{
	struct forward_thread *thread;
	int owner;

	if (!forward->interrupts)
		return;
	atomic_thread_fence(memory_order_seq_cst);
	owner = atomic_load_explicit(&forward->lanes[queue].owner, memory_order_relaxed);
	if (owner == FORWARD_NOBODY)
		return;
	thread = &forward->threads[owner];
	if (atomic_load_explicit(&thread->to_wake, memory_order_relaxed) && atomic_exchange(&thread->to_wake, false))
		forward_wake(thread);
}
