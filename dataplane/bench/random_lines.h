/* SPDX-License-Identifier: Apache-2.0
 *
 * What memory costs by itself, beside what looks things up in it: cycles for a cache line at random of tables of
 * several sizes, in large pages and in small ones, of which a burst asks ahead, as the functions do.
 */
#ifndef TAILRACE_BENCH_RANDOM_LINES_H
#define TAILRACE_BENCH_RANDOM_LINES_H

/* Measure and print. */
void random_lines_report(void);

#endif
