/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program in the kernel and its loader agree on.
 */
#ifndef TAILRACE_PRIORITY_SWITCHES_H
#define TAILRACE_PRIORITY_SWITCHES_H

enum {
	SWITCHES_NAMES = 8,
	SWITCHES_COMM = 16, /* of a task's name, with its end */
};

#endif
