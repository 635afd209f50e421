/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeping receive queues where they are polled in time: measures what each costs, once a second, and moves one when its
 * worker is saturated and another idle enough (placement.h), saying so in the log.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_BALANCE_H
#define TAILRACE_SWITCH_BALANCE_H

#include "switch/model.h"

struct switch_state;

enum { BALANCE_EXPECT_MS = 500 };

/* Begin to look once a second, and whenever a guest begins to use more or fewer queues.  Returns 0 or a negative errno.
 */
int balance_open(struct switch_state *state);
void balance_close(struct switch_state *state);

/*
 * Choose a worker for every queue of the model's running ports, for the programs that are made next: the pinned ones
 * theirs, new ones one that has time.
 */
void balance_place(struct switch_state *state, const struct model *model);

/* Guests are expected back: let those who send to them wait no longer than BALANCE_EXPECT_MS from now on. */
void balance_expect(struct switch_state *state);

/* Look soon at what became of ports, as when a guest comes or goes: a change may have brought some. */
void balance_recount(struct switch_state *state);

/* The part of its time that a worker was busy when last looked: 0 to 1. */
double balance_busy(const struct switch_state *state, unsigned worker);

#endif
