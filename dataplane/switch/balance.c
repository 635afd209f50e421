/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "common/log.h"
#include "switch/apply.h"
#include "switch/balance.h"
#include "switch/bridges.h"
#include "switch/events.h"
#include "switch/generation.h"
#include "switch/observe.h"
#include "switch/placement.h"
#include "switch/store.h"
#include "switch/switch.h"

struct balance {
	int timer;
	int changed;		      /* eventfd: rings of a guest came, went or were stopped, or ports did */
	int put_off;		      /* timerfd: the time for the recount that came too soon */
	int expected;		      /* timerfd: guests that have not come back by now are not expected any more */
	uint64_t looked_at;	      /* TSC */
	uint64_t busy[GRACE_WORKERS]; /* as counted at the last look */
	double recount_from;	      /* seconds on the monotonic clock: not before */
	_Atomic uint64_t woken_at;    /* TSC: for a guest that came or went */
	_Atomic bool owes_waking;     /* it was too soon then, and the recount does it */
};

/*
 * A guest may say as often as it likes that it uses other queues.  Of the control thread's time recounts run for at
 * most one part in so many, what they wait for a device that is opened not counted, and they wake the workers at most
 * once in so long.
 */
enum { RECOUNT_SHARE = 10, RECOUNT_MS = 10 };

/* Whose queues are given out, for guest_on_change(), which has room for none. */
static struct switch_state *balanced;

static double seconds_by(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds(void)
{
	return seconds_by(CLOCK_MONOTONIC);
}

/* ------- what is there, as placement wants it ------- */

struct view {
	unsigned count;
	struct placement_queue *queues;
	struct placed **placed;
	struct switch_port **ports;
	unsigned *numbers; /* of the queue in its port */
};

static bool view_open(struct view *view, const struct generation *generation)
{
	const struct model *model = generation->model;
	const double now = seconds();
	unsigned room = 1;

	*view = (struct view){0};
	for (unsigned i = 0; i < model->nb_ports; i++)
		room += model->ports[i].queues;
	view->queues = calloc(room, sizeof(view->queues[0]));
	view->placed = calloc(room, sizeof(view->placed[0]));
	view->ports = calloc(room, sizeof(view->ports[0]));
	view->numbers = calloc(room, sizeof(view->numbers[0]));
	if (view->queues == NULL || view->placed == NULL || view->ports == NULL || view->numbers == NULL)
		return false;
	for (unsigned i = 0; i < model->nb_ports; i++) {
		struct switch_port *port = generation->ports[i].port;

		for (unsigned queue = 0; port != NULL && queue < port->port.nb_queues; queue++) {
			struct placed *placed = &port->placed[queue];
			struct placement_queue *entry = &view->queues[view->count];

			entry->worker = placed->worker;
			entry->is_placed = placed->is_placed;
			entry->load = placed->load;
			entry->rested = placed->moved_at > 0 ? now - placed->moved_at : PLACEMENT_REST;
			entry->pinned = model_pin(model, i, queue) != NULL;
			view->placed[view->count] = placed;
			view->ports[view->count] = port;
			view->numbers[view->count++] = queue;
		}
	}
	return true;
}

static void view_close(struct view *view)
{
	free(view->queues);
	free(view->placed);
	free(view->ports);
	free(view->numbers);
}

/* ------- measuring ------- */

/* What each queue cost its worker since the last look. */
static void measure(struct switch_state *state, struct view *view)
{
	struct balance *balance = state->balance;
	const uint64_t now = rte_rdtsc(), elapsed = now - balance->looked_at;
	double weights[GRACE_WORKERS] = {0}, *weight = calloc(view->count + 1, sizeof(weight[0]));

	balance->looked_at = now;
	for (unsigned i = 0; i < state->workers.count; i++) {
		const uint64_t busy = __atomic_load_n(&state->workers.list[i].counters->busy_cycles, __ATOMIC_RELAXED);

		state->loads[i].busy = (double)(busy - balance->busy[i]) / (double)elapsed;
		balance->busy[i] = busy;
	}
	for (unsigned i = 0; weight != NULL && i < view->count; i++) {
		const struct queue_counters *counters = view->ports[i]->port.queues[view->numbers[i]].counters;
		const uint64_t packets = __atomic_load_n(&counters->received_packets, __ATOMIC_RELAXED);
		const uint64_t bytes = __atomic_load_n(&counters->received_bytes, __ATOMIC_RELAXED);

		weight[i] = placement_weight((double)(packets - view->placed[i]->packets),
					     (double)(bytes - view->placed[i]->bytes));
		view->placed[i]->packets = packets;
		view->placed[i]->bytes = bytes;
		weights[view->placed[i]->worker] += weight[i];
	}
	for (unsigned i = 0; weight != NULL && i < view->count; i++) {
		const unsigned worker = view->placed[i]->worker;

		view->placed[i]->load = weights[worker] > 0 ? state->loads[worker].busy * weight[i] / weights[worker]
							    : 0;
		view->queues[i].load = view->placed[i]->load;
	}
	free(weight);
}

static void move(struct switch_state *state, struct view *view, const struct placement_move *move)
{
	struct placed *placed = view->placed[move->queue];
	struct control_error error;

	placed->worker = move->to;
	placed->moved_at = seconds();
	if (reconcile(state, &error) != 0) {
		placed->worker = move->from;
		log_warning("queue %s/%u stays on worker %u: %s", view->ports[move->queue]->port.name,
			    view->numbers[move->queue], move->from, error.message);
		return;
	}
	log_info("queue %s/%u moved from worker %u to worker %u: in the last second they were %.0f %% and %.0f %% "
		 "busy, the queue took %.0f %%",
		 view->ports[move->queue]->port.name, view->numbers[move->queue], move->from, move->to,
		 100 * state->loads[move->from].busy, 100 * state->loads[move->to].busy, 100 * placed->load);
}

static void sweep_flows(const struct switch_state *state)
{
	for (unsigned i = 0; i < state->model->nb_functions; i++) {
		const struct pin_group *group = state->generation->groups[i];

		if (group != NULL)
			pin_memory_sweep(group->memory, rte_rdtsc());
	}
}

static void look(void *context)
{
	struct switch_state *state = context;
	struct placement_move wanted;
	struct view view;
	uint64_t times;

	if (read(state->balance->timer, &times, sizeof(times)) != sizeof(times))
		return;
	if (state->model != NULL) {
		if (view_open(&view, state->generation)) {
			measure(state, &view);
			if (placement_move(view.queues, view.count, state->loads, state->workers.count, &wanted))
				move(state, &view, &wanted);
		}
		view_close(&view);
		bridges_forget(state);
		bridges_report(state);
		sweep_flows(state);
	}
	observe_tick(state);
	store_sync(&state->config);
}

/* ------- guests that use more or fewer queues, or come back ------- */

/*
 * In the thread that speaks vhost-user, or the one that watches over devices.  Workers that sleep make anew what they
 * wait for, so they are woken at once, but not each time.
 */
static void on_port_change(void)
{
	const uint64_t now = rte_rdtsc();

	if (now - atomic_load(&balanced->balance->woken_at) > rte_get_tsc_hz() / 1000 * RECOUNT_MS) {
		atomic_store(&balanced->balance->woken_at, now);
		workers_wake(&balanced->workers);
	} else {
		atomic_store(&balanced->balance->owes_waking, true);
	}
	eventfd_write(balanced->balance->changed, 1);
}

/* In the worker that stopped the ring. */
static void on_quarantine(void)
{
	eventfd_write(balanced->balance->changed, 1);
}

void balance_recount(struct switch_state *state)
{
	eventfd_write(state->balance->changed, 1);
}

/* Recount in `left` seconds; what should have been is at once. */
static void put_off(struct balance *balance, double left)
{
	const double in = RTE_MAX(left, 0.0);
	const struct itimerspec then = {.it_value = {(time_t)in, (long)((in - (time_t)in) * 1e9) + 1}};

	timerfd_settime(balance->put_off, 0, &then, NULL);
}

static void recount(struct switch_state *state)
{
	const double ran = seconds_by(CLOCK_THREAD_CPUTIME_ID);
	struct control_error error;
	bool differs = false, stable = true;
	double pause;

	if (atomic_exchange(&state->balance->owes_waking, false))
		workers_wake(&state->workers);
	bridges_forget(state);
	for (unsigned i = 0; i < state->model->nb_ports; i++) {
		const struct generation_port *port = &state->generation->ports[i];

		if (port->port == NULL)
			continue;
		if (port->port->expected)
			stable &= switch_port_stable(port->port);
		differs |= port->pairs != switch_port_pairs(port->port);
	}
	if (differs && reconcile(state, &error) != 0)
		log_warning("the queues that guests use now are not all used: %s", error.message);
	events_look(state);
	pause = RTE_MAX(RECOUNT_MS / 1e3, (RECOUNT_SHARE - 1) * (seconds_by(CLOCK_THREAD_CPUTIME_ID) - ran));
	state->balance->recount_from = seconds() + pause;
	if (!stable)
		put_off(state->balance, state->balance->recount_from - seconds());
}

/* Recount now, or as soon as it is time. */
static void recount_in_time(struct switch_state *state)
{
	const double left = state->balance->recount_from - seconds();

	if (left <= 0)
		recount(state);
	else
		put_off(state->balance, left);
}

static void on_recount(void *context)
{
	struct switch_state *state = context;
	uint64_t times;

	if (eventfd_read(state->balance->changed, &times) == 0 && state->model != NULL)
		recount_in_time(state);
}

static void on_put_off(void *context)
{
	struct switch_state *state = context;
	uint64_t times;

	if (read(state->balance->put_off, &times, sizeof(times)) == sizeof(times) && state->model != NULL)
		recount(state);
}

static void stop_expecting(void *context)
{
	struct switch_state *state = context;
	uint64_t times;

	if (read(state->balance->expected, &times, sizeof(times)) != sizeof(times) || state->model == NULL)
		return;
	for (unsigned i = 0; i < state->model->nb_ports; i++) {
		struct switch_port *port = state->generation->ports[i].port;

		if (port == NULL || !port->expected)
			continue;
		if (guest_pairs(&port->port.guest) == 0)
			log_info("port %s: its guest is not back yet; what is sent to it no longer waits",
				 port->port.name);
		port->expected = false;
	}
	recount(state);
}

void balance_expect(struct switch_state *state)
{
	const struct itimerspec once = {.it_value.tv_nsec = BALANCE_EXPECT_MS * 1000000L};

	timerfd_settime(state->balance->expected, 0, &once, NULL);
}

int balance_open(struct switch_state *state)
{
	const struct itimerspec each = {.it_value.tv_sec = 1, .it_interval.tv_sec = 1};
	struct balance *balance = calloc(1, sizeof(*balance));

	if (balance == NULL)
		return -ENOMEM;
	state->balance = balance;
	balance->looked_at = rte_rdtsc();
	balance->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	balance->changed = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	balance->put_off = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	balance->expected = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (balance->timer < 0 || balance->changed < 0 || balance->put_off < 0 || balance->expected < 0 ||
	    timerfd_settime(balance->timer, 0, &each, NULL) != 0 ||
	    control_on_input(state->control, balance->timer, look, state) != 0 ||
	    control_on_input(state->control, balance->changed, on_recount, state) != 0 ||
	    control_on_input(state->control, balance->put_off, on_put_off, state) != 0 ||
	    control_on_input(state->control, balance->expected, stop_expecting, state) != 0) {
		int rc = errno ? -errno : -ENOSPC;

		balance_close(state);
		return rc;
	}
	balanced = state;
	guest_on_change(on_port_change);
	vring_on_quarantine = on_quarantine;
	device_on_change(on_port_change);
	return 0;
}

void balance_close(struct switch_state *state)
{
	if (state->balance == NULL)
		return;
	guest_on_change(NULL);
	vring_on_quarantine = NULL;
	device_on_change(NULL);
	close(state->balance->timer);
	close(state->balance->changed);
	close(state->balance->put_off);
	close(state->balance->expected);
	free(state->balance);
	state->balance = NULL;
}
