/* SPDX-License-Identifier: Apache-2.0
 *
 * Which threads there are: those that the program starts with, more and fewer of them while it runs, and none.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "common/eal.h"
#include "common/log.h"
#include "inboxes.h"
#include "lanes.h"

enum {
	LOOK = 50,	    /* us between two looks whether a thread has done what it is to do */
	PATIENCE_MS = 5000, /* for a thread that somebody keeps off its CPU */
};

static uint64_t us_since(uint64_t began, uint64_t now)
{
	return now > began ? (now - began) * 1000000 / rte_get_tsc_hz() : 0;
}

static bool is_running(unsigned number)
{
	return rte_eal_get_lcore_state(eal_worker_lcore(number)) == RUNNING;
}

static int report_thread_id(void *thread_id)
{
	*(pid_t *)thread_id = gettid();
	return 0;
}

int forward_confine_priority(unsigned nb_threads)
{
	const struct sched_param none = {0};
	pid_t pollers[FUNCTION_QUEUES] = {0};
	struct dirent *entry;
	int rc = 0;
	DIR *threads;

	if (sched_getscheduler(0) == SCHED_OTHER)
		return 0;
	for (unsigned i = 0; i < nb_threads; i++) {
		rte_eal_remote_launch(report_thread_id, &pollers[i], eal_worker_lcore(i));
		rte_eal_wait_lcore(eal_worker_lcore(i));
	}
	threads = opendir("/proc/self/task");
	if (threads == NULL) {
		log_error("/proc is not there; mount it, or start without a real-time priority");
		return -errno;
	}
	while ((entry = readdir(threads)) != NULL) {
		pid_t thread = (pid_t)atoi(entry->d_name); /* 0 for . and .. */
		bool polls = thread == 0;

		for (unsigned i = 0; i < nb_threads; i++)
			polls |= thread == pollers[i];
		if (!polls && sched_setscheduler(thread, SCHED_OTHER, &none) != 0) {
			rc = -errno;
			log_error("could not take the real-time priority from thread %d: %s", thread, strerror(errno));
		}
	}
	closedir(threads);
	return rc;
}

static int open_eventfd(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		log_error("eventfd: %s", strerror(errno));
	return fd;
}

int forward_open(struct forward *forward, const int *cpus, unsigned nb_cpus)
{
	const char *names[FUNCTION_QUEUES];
	char texts[FUNCTION_QUEUES][48];
	struct gap_log gaps[FUNCTION_QUEUES];
	int rc;

	pthread_mutex_init(&forward->changing, NULL);
	forward->wake_fd = open_eventfd();
	if (forward->wake_fd < 0)
		return -EMFILE;
	for (unsigned i = 0; i < forward->nb_queues; i++) {
		snprintf(texts[i], sizeof(texts[i]), i == 0 ? "%s" : "%s thread %u", forward->function->name, i + 1);
		names[i] = texts[i];
	}
	rc = gaps_open(gaps, names, forward->nb_queues, rte_get_tsc_hz());
	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < forward->nb_queues; i++) {
		struct forward_thread *thread = &forward->threads[i];

		*thread = (struct forward_thread){
			.forward = forward, .number = i, .cpu = cpus[i % nb_cpus], .runs = -1};
		thread->gaps = gaps[i];
		thread->wake_fd = open_eventfd();
		if (thread->wake_fd < 0)
			return -EMFILE;
		forward->lanes[i].owner = forward->lanes[i].wanted = FORWARD_NOBODY;
	}
	forward->nb_threads = nb_cpus;
	lanes_share_out(forward->lanes, forward->nb_queues, nb_cpus);
	return 0;
}

static void start_thread(struct forward_thread *thread)
{
	atomic_store(&thread->ends, false);
	atomic_store(&thread->first, 0);
	atomic_store(&thread->runs, -1); /* and so it pins itself, whoever has moved it meanwhile */
	rte_eal_remote_launch(forward_run, thread, eal_worker_lcore(thread->number));
}

void forward_start(struct forward *forward)
{
	for (unsigned i = 0; i < forward->nb_threads; i++)
		start_thread(&forward->threads[i]);
}

bool forward_runs(struct forward *forward)
{
	return is_running(0) && !atomic_load(&forward->failed);
}

/* ------- more and fewer ------- */

static void announce(struct forward *forward)
{
	atomic_fetch_add(&forward->changes, 1);
	for (unsigned i = 0; i < forward->nb_queues; i++)
		forward_wake(&forward->threads[i]);
}

/* Whether queues and the first threads are where they are to be. */
static bool in_place(const struct forward *forward, unsigned nb_threads)
{
	for (unsigned i = 0; i < nb_threads; i++)
		if (atomic_load(&forward->threads[i].runs) != atomic_load(&forward->threads[i].cpu))
			return false;
	return lanes_settled(forward->lanes, forward->nb_queues);
}

static bool wait_in_place(const struct forward *forward, unsigned nb_threads)
{
	for (unsigned waited = 0; !in_place(forward, nb_threads); waited += LOOK) {
		if (waited > PATIENCE_MS * 1000 || atomic_load(&forward->quit))
			return false;
		usleep(LOOK);
	}
	return true;
}

/* End the threads from `first` on, which have no queues.  DPDK's own wait spins: at a thread's real-time priority, and
 * on its core, it would keep it from ever ending. */
static void end_threads(struct forward *forward, unsigned first)
{
	for (unsigned i = first; i < forward->nb_queues; i++)
		atomic_store(&forward->threads[i].ends, true);
	announce(forward);
	for (unsigned i = first; i < forward->nb_queues; i++) {
		while (is_running(i))
			usleep(LOOK);
		rte_eal_wait_lcore(eal_worker_lcore(i));
	}
}

/* By when each of the threads from `first` on had moved frames; 0: one had none in time. */
static uint64_t wait_for_frames(const struct forward *forward, unsigned first, unsigned end, unsigned wait_ms)
{
	uint64_t last = 0;

	for (unsigned i = first, waited = 0; i < end; i++) {
		uint64_t moved;

		for (; (moved = atomic_load(&forward->threads[i].first)) == 0; waited += LOOK) {
			if (waited >= wait_ms * 1000 || atomic_load(&forward->quit))
				return 0;
			usleep(LOOK);
		}
		last = RTE_MAX(last, moved);
	}
	return last;
}

/* This thread tries: a CPU that is offline, or not in the cpuset of this process, is none that a thread can have. */
static bool may_run_on(int cpu)
{
	cpu_set_t before, wanted;
	bool may;

	CPU_ZERO(&wanted);
	CPU_SET(cpu, &wanted);
	if (sched_getaffinity(0, sizeof(before), &before) != 0)
		return false;
	may = sched_setaffinity(0, sizeof(wanted), &wanted) == 0;
	sched_setaffinity(0, sizeof(before), &before);
	return may;
}

static int check_cpus(const struct forward *forward, const int *cpus, unsigned nb_cpus, struct control_error *error)
{
	if (nb_cpus == 0 || nb_cpus > forward->nb_queues) {
		control_fail(error, CONTROL_INVALID_PARAMS, "cpus: %u; expected 1 to %u, as many as there are queues",
			     nb_cpus, forward->nb_queues);
		return -1;
	}
	for (unsigned i = 0; i < nb_cpus; i++)
		if (cpus[i] < 0 || cpus[i] >= CPU_SETSIZE || !may_run_on(cpus[i])) {
			control_fail(error, CONTROL_INVALID_PARAMS,
				     "cpus: CPU %d is offline or not allowed to this process", cpus[i]);
			return -1;
		}
	return 0;
}

static json_t *use(struct forward *forward, const int *cpus, unsigned nb_cpus, unsigned wait_ms,
		   struct control_error *error)
{
	const unsigned before = atomic_load(&forward->nb_threads), most = RTE_MAX(before, nb_cpus);
	const uint64_t began = rte_rdtsc();
	json_int_t handed_over, ended;
	int old[FUNCTION_QUEUES];
	unsigned moved;
	uint64_t first;

	for (unsigned i = 0; i < most; i++) {
		old[i] = atomic_load(&forward->threads[i].cpu);
		if (i < nb_cpus)
			atomic_store(&forward->threads[i].cpu, cpus[i]);
	}
	moved = lanes_share_out(forward->lanes, forward->nb_queues, nb_cpus);
	for (unsigned i = before; i < nb_cpus; i++)
		start_thread(&forward->threads[i]);
	announce(forward);
	if (!wait_in_place(forward, nb_cpus)) {
		for (unsigned i = 0; i < most; i++)
			atomic_store(&forward->threads[i].cpu, old[i]);
		lanes_share_out(forward->lanes, forward->nb_queues, before);
		announce(forward);
		if (wait_in_place(forward, before))
			end_threads(forward, before);
		return control_fail(error, CONTROL_FAILED,
				    "a thread did not run for %d s, so it has handed nothing over; queues go back",
				    PATIENCE_MS / 1000);
	}
	handed_over = (json_int_t)us_since(began, rte_rdtsc());
	if (nb_cpus < before)
		end_threads(forward, nb_cpus);
	ended = (json_int_t)us_since(began, rte_rdtsc());
	atomic_store(&forward->nb_threads, nb_cpus);
	first = wait_for_frames(forward, before, nb_cpus, wait_ms);
	return json_pack("{s:i, s:I, s:o, s:o}", "queues_moved", (int)moved, "handed_over_us", handed_over,
			 "first_frame_us", first > 0 ? json_integer((json_int_t)us_since(began, first)) : json_null(),
			 "ended_us", nb_cpus < before ? json_integer(ended) : json_null());
}

json_t *forward_use(struct forward *forward, const int *cpus, unsigned nb_cpus, unsigned wait_ms,
		    struct control_error *error)
{
	json_t *done = NULL;

	if (check_cpus(forward, cpus, nb_cpus, error) != 0)
		return NULL;
	pthread_mutex_lock(&forward->changing);
	if (atomic_load(&forward->quit))
		control_fail(error, CONTROL_FAILED, "the function is about to end");
	else
		done = use(forward, cpus, nb_cpus, wait_ms, error);
	pthread_mutex_unlock(&forward->changing);
	return done;
}

/* ------- the end ------- */

/* What nobody has taken is dropped and counted. */
static void drop_held(struct lane *lane)
{
	for (int in = 0; in < 2; in++) {
		struct forward_held *held = &lane->held[in];

		function_count(&lane->counters[in].drop_full, held->nb_frames);
		rte_pktmbuf_free_bulk(held->frames + held->first, held->nb_frames);
		held->nb_frames = 0;
	}
}

int forward_end(struct forward *forward)
{
	atomic_store_explicit(&forward->quit, true, memory_order_release);
	pthread_mutex_lock(&forward->changing);
	end_threads(forward, 0);
	for (unsigned i = 0; i < forward->nb_queues; i++)
		drop_held(&forward->lanes[i]);
	inboxes_close(forward);
	pthread_mutex_unlock(&forward->changing);
	return atomic_load(&forward->failed) ? -EIO : 0;
}
