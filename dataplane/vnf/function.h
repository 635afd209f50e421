/* SPDX-License-Identifier: Apache-2.0
 *
 * A network function: what becomes of a burst of frames that came in at one of its two ports.
 * Each is one file, listed in function.c; the loop around it (forward.h) is the same for all.
 */
#ifndef TAILRACE_VNF_FUNCTION_H
#define TAILRACE_VNF_FUNCTION_H

#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>

struct function {
	const char *name;
	const char *help; /* one line */

	/*
	 * Handle frames that came in at port `in` (0 or 1).  Leave those that are to go out at the other port at
	 * the front of the burst, in order, and free the others.  Returns how many go out.
	 */
	uint16_t (*process)(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in);
};

extern const struct function *const functions[];
extern const size_t nb_functions;

extern const struct function skeleton;

/* The function of this name, or NULL. */
const struct function *function_find(const char *name);

#endif
