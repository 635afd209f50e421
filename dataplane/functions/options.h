/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of tailrace-vnf.
 */
#ifndef TAILRACE_FUNCTIONS_OPTIONS_H
#define TAILRACE_FUNCTIONS_OPTIONS_H

#include "common/eal.h"
#include "function.h"

struct options {
	const struct function *function;
	const char *ports[2];
	const char *commands;
	const char *control; /* NULL: no socket */
	bool interrupts;
	int cpus[FUNCTION_QUEUES]; /* of the threads; -1: the last that this process may use */
	unsigned nb_cpus;
	unsigned nb_queues;
	struct eal_options eal;
};

/* Read it, and have the function take its settings; ends the program if it is wrong, or asks for help. */
struct options options_parse(int argc, char **argv);

#endif
