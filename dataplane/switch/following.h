/* SPDX-License-Identifier: Apache-2.0
 *
 * The control side of following frames (steer/follow.h): starting it, reading what came of it.
 */
#ifndef TAILRACE_SWITCH_FOLLOWING_H
#define TAILRACE_SWITCH_FOLLOWING_H

#include "common/control.h"
#include "steer/follow.h"

/* Follow `frames` frames at each port that match; takes the match over.  Returns NULL without memory. */
struct follow *follow_open(struct classifier *match, unsigned frames, unsigned nb_workers);

/*
 * Take the notes that have come in since the last time, at most `most`:
 * {"notes": [{"time", "sighting", "mark", "length", "text"}, ...], "lost"}, times in TSC cycles, oldest first.
 */
json_t *follow_read(struct follow *follow, unsigned most);

/* No worker uses it any more. */
void follow_close(struct follow *follow);

#endif
