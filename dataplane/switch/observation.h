/* SPDX-License-Identifier: Apache-2.0
 *
 * What is watched beyond the moving of frames, and where: the rates, shares and mirrors of the configuration, its hop
 * trace, the captures that readers have asked for, frames that are followed.  From all that come the watches of sources
 * and egresses (steer/watch.h).
 *
 * Watches are made while the programs are, and stay the same object for as long as they would say the same, so that
 * what they belong to can stay too.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_OBSERVATION_H
#define TAILRACE_SWITCH_OBSERVATION_H

#include "switch/capture.h"
#include "switch/following.h"
#include "switch/ports.h"
#include "switch/trace.h"

struct observation {
	/* Fixed. */
	struct page *page;
	const char *page_path; /* other files lie beside it */
	unsigned nb_workers;

	struct trace *trace, *other_trace; /* other: while programs are made, the one before */
	bool changing_trace;
	unsigned traces; /* counts them */
	struct follow *follow;
	uint64_t follow_asked_at; /* TSC */
	struct capture_sessions captures;
	unsigned nb_captures, last_capture;
	struct names mirrors; /* struct running_mirror */

	struct watches *watches;
};

struct running_mirror {
	char name[PORT_NAME];
	struct hop_counters *counters;
};

/* Returns 0, or -1 without memory. */
int observation_open(struct observation *observation, struct page *page, const char *page_path, unsigned nb_workers);
void observation_close(struct observation *observation);

/* ------- while programs are made, in this order ------- */

/* Begin.  Ports are found in `ports` (struct switch_port) by name.  Returns 0, or -1 after filling in the error. */
int observation_begin(struct observation *observation, const struct model *model, const struct names *ports,
		      struct control_error *error);

/* One way that frames may go. */
struct way {
	struct switch_port *from, *to;
	unsigned queue;			 /* of `from` */
	bool stays;			 /* frames above the rate of `to` can stay where they are */
	struct hop_counters *hop;	 /* as in the egress */
	const struct chain_model *chain; /* NULL: none */
	unsigned number;		 /* of the hop in its chain */
	bool back;
	bool first, last; /* in this direction */
};

/* The watch of an egress; NULL if it needs none, or there is no memory, which observation_failed() reports. */
struct egress_watch *observation_egress(struct observation *observation, const struct way *way);

/* The watch of a source, one of whose egresses is watched or not.  NULL if it needs none. */
struct watch *observation_source(struct observation *observation, struct switch_port *port, unsigned queue,
				 bool egress_watched);

/* Must a source with one egress look at its frames for the sake of these?  Each may be NULL. */
bool observation_looks(const struct watch *watch, const struct egress_watch *egress);

/* Was there no memory for a watch? */
bool observation_failed(const struct observation *observation);

/* Workers have let go of all other programs; or never run those just made. */
void observation_keep(struct observation *observation, const struct model *model);
void observation_drop(struct observation *observation);

#endif
