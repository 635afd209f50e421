/* SPDX-License-Identifier: Apache-2.0
 *
 * What fuzz targets share.
 */
#ifndef TAILRACE_FUZZ_FUZZ_H
#define TAILRACE_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/start_dpdk.h"

/* What does not hold ends the program, and libFuzzer keeps the input.  A text may follow, which says what that means.
 */
#define check(holds, ...) check_holds(holds, #holds " " __VA_ARGS__)

static inline void check_holds(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

#endif
