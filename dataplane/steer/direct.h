/* SPDX-License-Identifier: Apache-2.0
 *
 * The source of a plain chain hop: the next port is known, and no header is read.
 *
 * A full receiver: the frames stay in the sender's ring (back pressure) until the receiver has been full
 * for the hop's patience; from then on they are dropped, counted at the receiver, until it takes one again.
 */
#ifndef TAILRACE_STEER_DIRECT_H
#define TAILRACE_STEER_DIRECT_H

#include "steer/source.h"

/* source_poll() for SOURCE_DIRECT. */
unsigned direct_poll(struct source *source, const struct round *round);

#endif
