/* SPDX-License-Identifier: Apache-2.0
 *
 * What came of a trial, in the control socket's words.  Each returns a new reference.
 */
#ifndef TAILRACE_TESTER_DESCRIBE_H
#define TAILRACE_TESTER_DESCRIBE_H

#include "methods.h"

/* A stream of a trial that has ended: counts, latency, reordering, intervals. */
json_t *describe_stream(const struct tester *tester, const struct trial *trial, uint16_t number);

/* An interval record that is closed and not yet given back. */
json_t *describe_record(const struct tester *tester, const struct trial *trial, uint64_t number);

/* A sum, exact: a number, or text where it is more than a json_int_t holds. */
json_t *describe_sum(unsigned __int128 sum);

/* A distribution of durations in ns. */
json_t *describe_latency(const struct histogram *latency);

/* How well the clock has kept its rate since the start. */
json_t *describe_clock(const struct loop *loop);

/* Frames as [stream, sequence, sent, received], times by the TSC. */
json_t *describe_sightings(const struct sighting *frames, uint32_t count);
json_t *describe_worst(const struct trial *trial);

#endif
