/* SPDX-License-Identifier: Apache-2.0
 *
 * Two threads, each on a core of its own, which begin at the same moment.
 */
#ifndef TAILRACE_BENCH_DUET_H
#define TAILRACE_BENCH_DUET_H

#include <stdbool.h>

struct duet {
	int cores[2]; /* of the calling thread and of the other */
	void (*first)(void);
	void (*second)(void);
};

/* Read "A,B" into `cores`; false, with a line said, unless these are two different CPU numbers. */
bool duet_parse(const char *text, int cores[2]);

/* Read a number between two limits. */
bool duet_number(const char *text, double least, double most, double *number);

/* Read for how long the two play; false, with a line said, unless it is 0.1 to 3600 s. */
bool duet_seconds(const char *text, double *seconds);

/* Run both to their ends.  Returns 0, or the program's exit status, with a line said, if one could not be pinned. */
int duet_run(const struct duet *duet);

#endif
