/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeping receive queues where they are polled in time: measures what each costs, once a second, and moves one when its
 * worker is saturated and another idle enough (placement.h), saying so in the log.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_BALANCE_H
#define TAILRACE_SWITCH_BALANCE_H

struct switch_state;

enum { BALANCE_EXPECT_MS = 500 };

/* Begin to look once a second, and whenever a guest begins to use more or fewer queues.  Returns 0 or a negative errno.
 */
int balance_open(struct switch_state *state);
void balance_close(struct switch_state *state);

/* Guests are expected back: let those who send to them wait no longer than BALANCE_EXPECT_MS from now on. */
void balance_expect(struct switch_state *state);

/* Look soon at what became of ports, as when a guest comes or goes: a change may have brought some. */
void balance_recount(struct switch_state *state);

#endif
