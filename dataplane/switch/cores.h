/* SPDX-License-Identifier: Apache-2.0
 *
 * Cores that are not a worker's alone: a word about each, since everybody on them is slow.  Nothing is refused: tests
 * and small machines live with it.
 */
#ifndef TAILRACE_SWITCH_CORES_H
#define TAILRACE_SWITCH_CORES_H

/*
 * Warn of cores that stand in the list more than once, or that another switch's worker polls on.  From here until this
 * process ends others are warned of these.
 */
void cores_claim(const int *cores, unsigned nb_cores);

#endif
