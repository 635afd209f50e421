/* SPDX-License-Identifier: Apache-2.0
 *
 * Raises interrupts at a steady period, one at a time, and accounts for each: it has arrived, and how long that took,
 * or it is lost.  At a moment when the one before has not arrived, or when the clock was set, none is raised, and that
 * is counted.
 *
 * One thread does it, of which another asks how far it is.
 */
#ifndef TAILRACE_INTERRUPTS_RAISE_H
#define TAILRACE_INTERRUPTS_RAISE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/histogram.h"
#include "interrupts/clocks.h"
#include "interrupts/doorbell.h"
#include "interrupts/grid.h"
#include "interrupts/nic.h"
#include "interrupts/slowest.h"
#include "tester/clock.h"

struct interrupts {
	struct interrupt_page *page;
	int call;
	struct nic *nic; /* that the receiver has, or NULL */
	struct clock_rate rate;
	uint64_t question; /* the last one */
	uint64_t number;   /* of the last interrupt */
};

/* All of them: raised = arrived + lost + wrong. */
struct interrupts_counts {
	uint64_t raised;
	uint64_t lost;	/* has not arrived within a second */
	uint64_t wrong; /* the receiver's time is before it was raised, or has not come yet */
	uint64_t held;	/* was not raised, because the one before had not arrived, or was not waked from */
	uint64_t reset; /* was not raised, because the clock was set */
	uint64_t over;	/* has arrived, but later than the budget allows */
};

/* How interrupts come to the receiver. */
enum interrupts_path {
	INTERRUPTS_CALL,  /* by an eventfd, which is a device's interrupt in a machine */
	INTERRUPTS_VRING, /* by the receive queue of its network device */
	INTERRUPTS_TIMER, /* its own timer raises them, at the grid's period (wakeups.h) */
	INTERRUPTS_IPI,	  /* a thread on another CPU of its system does, at the same */
	INTERRUPTS_PATHS,
};

enum interrupts_fault {
	INTERRUPTS_WELL,
	INTERRUPTS_NO_ANSWER, /* the receiver does not answer */
	INTERRUPTS_CLOCKS,    /* its clock has another rate than ours, or was set */
};

struct interrupts_run {
	/* What is asked for. */
	uint64_t count, budget_ns;
	struct grid grid; /* when they are due */
	enum interrupts_path path;

	/* What is found. */
	_Atomic uint64_t ticks; /* done: raised, held or reset */
	struct interrupts_counts counts;
	struct histogram latency; /* ns from raised to arrived */
	struct histogram late;	  /* ns from the moment that was meant to raised */
	struct slowest slowest;
	struct clocks before, after;
	_Atomic bool joined; /* `before` is there */
	uint64_t ipis;	     /* on INTERRUPTS_IPI: what its system has counted, by its word */
	uint64_t recording;  /* cycles that writing an interrupt down took the receiver on average, by its word */
	enum interrupts_fault fault;
};

/* Until all are raised, or `stop` is set. */
void interrupts_raise(struct interrupts *interrupts, struct interrupts_run *run, const atomic_bool *stop);

#endif
