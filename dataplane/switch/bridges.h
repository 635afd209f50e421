/* SPDX-License-Identifier: Apache-2.0
 *
 * What bridges need while they run, beside what workers do: stations are forgotten with the port that they are behind,
 * and reported in the log when they flap.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_BRIDGES_H
#define TAILRACE_SWITCH_BRIDGES_H

struct switch_state;

/*
 * Forget what bridges have learned from ports that nobody can be given frames by: a guest that has gone, a link that is
 * lost.  Frames to those stations then go to all ports, and reach them wherever they are now.  After each change of a
 * port, and now and then, since a ring that is quarantined notifies nobody.
 */
void bridges_forget(const struct switch_state *state);

/*
 * Say in the log what has flapped since it was asked last: a line for each bridge, however much there is.  Once a
 * second, since guests may have it at will.
 */
void bridges_report(const struct switch_state *state);

#endif
