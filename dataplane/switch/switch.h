/* SPDX-License-Identifier: Apache-2.0
 *
 * The switch: its configuration, what runs of it, and the workers.  Owned by the control thread.
 */
#ifndef TAILRACE_SWITCH_SWITCH_H
#define TAILRACE_SWITCH_SWITCH_H

#include "common/control.h"
#include "common/page.h"
#include "switch/config.h"
#include "switch/model.h"
#include "switch/observation.h"
#include "switch/parts.h"
#include "switch/placement.h"
#include "switch/workers.h"

struct switch_state {
	struct control *control;
	struct page *page;
	const char *page_path; /* other files lie beside it */
	struct config config;
	struct model *model;	       /* of the configuration that holds */
	struct generation *generation; /* what runs of it */
	struct parts parts;	       /* of generations */
	struct observation observation;
	unsigned traces; /* so far, for their names */
	struct workers workers;
	struct placement_worker loads[GRACE_WORKERS]; /* of the workers, when last measured */
	struct balance *balance;		      /* balance.h */
	bool resumes;				      /* what is being applied ran before this switch was started */
};

struct switch_options {
	const char *page;
	struct workers_options workers;
};

/* The methods of the control socket; docs/control.md lists them with their parameters. */
extern const struct control_method switch_methods[];
extern const size_t switch_nb_methods;

/* Make the page and the workers, and start them with nothing; see config_restore().  Returns 0, or -1 after logging. */
int switch_open(struct switch_state *state, const struct switch_options *options);

/* End workers, ports and chains. */
void switch_close(struct switch_state *state);

#endif
