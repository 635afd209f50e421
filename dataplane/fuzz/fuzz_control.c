/* SPDX-License-Identifier: Apache-2.0
 *
 * Whoever may connect to the control socket may send anything.  The input is what a caller sends: lines, halves of
 * lines, rubbish.  It goes through the real server's reading, parsing and dispatching to the real methods, checking of
 * whole configurations included; what a checked configuration would open on this machine is not opened.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/control.c" /* a caller without a listener */
#include "switch/model.h"
#include "switch/switch.h"

enum { LONGEST = 4096 };

/* A bit of everything, for a patch to change. */
static const char start[] =
	"{\"ports\":{\"a\":{\"kind\":\"guest\",\"path\":\"/run/a\"},\"b\":{\"kind\":\"guest\",\"path\":\"/run/b\"},"
	"\"d\":{\"kind\":\"device\",\"device\":\"if:eth0\"},\"l\":{\"kind\":\"guest\",\"path\":\"/run/l\"},"
	"\"r\":{\"kind\":\"guest\",\"path\":\"/run/r\"}},"
	"\"functions\":{\"f\":{\"pin\":\"flow\",\"replicas\":{\"f1\":{\"left\":\"l\",\"right\":\"r\"}}}},"
	"\"chains\":{\"c\":{\"from\":\"a\",\"through\":[\"f\"],\"to\":\"b\",\"match\":[{\"vlan\":[1,9],\"protocol\":6}]"
	"}}}";

static struct switch_state state;
static struct control server;

/* config.apply and config.rollback check as config.plan does, and would then open ports. */
static const struct control_method methods[] = {
	{"version", NULL},
	{"config.get", config_get},
	{"config.plan", config_plan},
	{"config.apply", config_plan},
};

static json_t *answer_version(void *context, json_t *params, struct control_error *error)
{
	return json_object();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static struct control_method all[sizeof(methods) / sizeof(methods[0])];
	struct control_error error;

	memcpy(all, methods, sizeof(methods));
	all[0].call = answer_version;
	server = (struct control){.listener = -1, .methods = all, .nb_methods = sizeof(all) / sizeof(all[0])};
	server.context = &state;
	state.workers.count = 2;
	state.config.document = json_loads(start, 0, NULL);
	if (state.config.document == NULL)
		abort();
	/* The start is a configuration that holds, or nothing interesting is ever reached. */
	state.model = model_make(state.config.document, state.workers.count, &error);
	if (state.model == NULL) {
		fprintf(stderr, "%s\n", error.message);
		abort();
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct caller caller;
	char answers[65536];
	int ends[2];

	if (size > LONGEST || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
		return 0;
	caller = (struct caller){.fd = ends[0]};
	if (write(ends[1], data, size) != (ssize_t)size)
		abort();
	shutdown(ends[1], SHUT_WR);
	while (caller.fd >= 0) {
		caller_read(&server, &caller);
		while (read(ends[1], answers, sizeof(answers)) > 0)
			;
	}
	close(ends[1]);
	return 0;
}
