/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "common/grace.h"
#include "switch/sleep.h"

enum { EVENTS = 8 };

struct sleeper {
	int wake;	  /* eventfd: the control side has something */
	int set;	  /* epoll: `wake` and what the sources wait on; -1: not made yet */
	bool timed;	  /* a source is not in the set, or may hold frames back */
	uint64_t made_at; /* the count of changes that the set was made at */
	_Atomic uint64_t changes;
};

int sleeper_open(struct worker *worker)
{
	struct sleeper *sleeper = calloc(1, sizeof(*sleeper));

	if (sleeper == NULL)
		return -ENOMEM;
	sleeper->set = -1;
	sleeper->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sleeper->wake < 0) {
		free(sleeper);
		return -errno;
	}
	worker->sleeper = sleeper;
	return 0;
}

void sleeper_close(struct worker *worker)
{
	struct sleeper *sleeper = worker->sleeper;

	if (sleeper == NULL)
		return;
	close(sleeper->wake);
	if (sleeper->set >= 0)
		close(sleeper->set);
	free(sleeper);
	worker->sleeper = NULL;
}

void sleeper_wake(struct worker *worker)
{
	atomic_fetch_add(&worker->sleeper->changes, 1);
	if (eventfd_write(worker->sleeper->wake, 1) != 0)
		return; /* it is full, and so readable */
}

/* Nobody is there, and who comes is a change. */
static bool absent(const struct source *source)
{
	return source->from->kind == PORT_GUEST ? port_sender(source->from, source->queue) == NULL
						: !device_receives(&source->from->device);
}

/* What becomes readable when the source has something, or -1. */
static int wait_fd(const struct source *source)
{
	return source->from->kind == PORT_GUEST ? guest_kick_fd(&source->from->guest, source->queue)
						: device_wait_fd(&source->from->device, source->queue);
}

/* Can a descriptor that stays silent be believed? */
static bool believed(const struct source *source)
{
	return source->from->kind == PORT_GUEST || wait_fd(source) < 0 ||
	       device_interrupts(&source->from->device, source->queue);
}

static bool watch(struct sleeper *sleeper, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};

	return epoll_ctl(sleeper->set, EPOLL_CTL_ADD, fd, &event) == 0;
}

/*
 * Make the set.  Kicks are reported by their edge, so nobody has to read them: a guest that fills its descriptor loses
 * its own kicks.
 */
static bool make_set(struct sleeper *sleeper, const struct program *program)
{
	if (sleeper->set >= 0)
		close(sleeper->set);
	sleeper->set = epoll_create1(EPOLL_CLOEXEC);
	sleeper->timed = false;
	if (sleeper->set < 0 || !watch(sleeper, sleeper->wake, EPOLLIN))
		return false;
	for (unsigned i = 0; i < program->nb_sources; i++) {
		const struct source *source = &program->sources[i];
		int fd = wait_fd(source);

		if (absent(source))
			continue;
		/*
		 * For a rate frames wait where they are.  A guest's ring notifies of them (vring_arm()); a
		 * device does not.
		 */
		if ((source->from->kind == PORT_DEVICE && source->watch != NULL) || fd < 0 ||
		    (!watch(sleeper, fd, EPOLLIN | EPOLLET) && errno != EEXIST))
			sleeper->timed = true;
	}
	return true;
}

/* Has the source nothing, and will it say when it has? */
static bool arm(const struct source *source)
{
	struct virtqueue *vring;

	if (source->from->kind != PORT_GUEST) {
		device_arm(&source->from->device, source->queue);
		/*
		 * It says when frames come, not that some are left, which a full receiver has kept it from giving.  One
		 * with a rate is looked at again soon in any case.
		 */
		return source->watch != NULL || source->from->queues[source->queue].blocked_since == 0;
	}
	vring = port_sender(source->from, source->queue);
	return vring == NULL || vring_arm(vring);
}

void worker_disarm(struct program *program)
{
	for (unsigned i = 0; i < program->nb_sources; i++) {
		const struct source *source = &program->sources[i];
		struct virtqueue *vring = source->from->kind == PORT_GUEST ? port_sender(source->from, source->queue)
									   : NULL;

		if (source->from->kind == PORT_DEVICE)
			device_disarm(&source->from->device, source->queue);
		if (vring != NULL && vring->fault == VRING_FAULT_NONE)
			vring_disarm(vring);
	}
}

/* What devices had received before they were asked to say so.  Returns whether there was something. */
static bool look_again(struct worker *worker, struct program *program, const struct round *round)
{
	unsigned moved = 0;

	for (unsigned i = 0; i < program->nb_sources; i++)
		if (program->sources[i].from->kind == PORT_DEVICE && program->sources[i].from->device.arms)
			moved += source_poll(&program->sources[i], round);
	worker->counters->packets += moved;
	return moved > 0;
}

static void wait_for_events(struct worker *worker, bool timed)
{
	static const struct timespec shortly = {.tv_nsec = SLEEP_TIMED_US * 1000},
				     counted = {.tv_nsec = SLEEP_COUNTED_MS * 1000000};
	struct sleeper *sleeper = worker->sleeper;
	struct epoll_event events[EVENTS];
	uint64_t before = rte_rdtsc(), count;
	int ready;

	ready = epoll_pwait2(sleeper->set, events, EVENTS, timed ? &shortly : &counted, NULL);
	for (int i = 0; i < ready; i++)
		if (events[i].data.fd == sleeper->wake)
			eventfd_read(sleeper->wake, &count);
	worker->counters->sleeps++;
	worker->counters->wakeups += ready > 0;
	worker->counters->asleep_cycles += rte_rdtsc() - before;
}

bool worker_sleep(struct worker *worker, struct program *program, const struct round *round)
{
	struct sleeper *sleeper = worker->sleeper;
	const uint64_t changes = atomic_load(&sleeper->changes);
	unsigned armed = 0;
	bool timed;

	/* The program was loaded before the count: it may be an older one. */
	if (program != atomic_load(&worker->program))
		return true;
	if (sleeper->set < 0 || sleeper->made_at != changes) {
		if (!make_set(sleeper, program))
			return false;
		sleeper->made_at = changes;
	}
	while (armed < program->nb_sources && arm(&program->sources[armed]))
		armed++;
	if (armed < program->nb_sources || look_again(worker, program, round) || atomic_load(&worker->stop)) {
		worker_disarm(program);
		return false;
	}
	/* What still has to be flushed gives no sign either: a device that is full, a ring that another worker has. */
	timed = sleeper->timed;
	for (unsigned i = 0; i < program->nb_sources; i++)
		timed |= source_owes(&program->sources[i]) || !believed(&program->sources[i]);
	atomic_store(&worker->asleep, true);
	grace_worker_rest(worker->number);
	wait_for_events(worker, timed);
	grace_worker_resume(worker->number);
	atomic_store(&worker->asleep, false);
	worker_disarm(atomic_load(&worker->program));
	return true;
}
