/* SPDX-License-Identifier: Apache-2.0
 *
 * Whoever may connect to the control socket may send anything.  The input is what two callers send: lines, halves of
 * lines, rubbish, all methods of the switch.  It goes over a real socket through the server's accepting, reading,
 * parsing and dispatching to the methods themselves, which change a whole switch: configurations are compiled and
 * swapped in, captures and traces begun and ended.  Two things are not real: there are no workers' threads, and ports
 * are not opened (a path may be any file of this machine).
 *
 * In the input stands, besides text: \1 the other caller goes on; \2 the server reads now what is half said; \3 the
 * caller hangs up, and calls again.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/control.c" /* its parts, without its loop */
#include "common/grace.h"
#include "common/shared_file.h"
#include "fuzz/fuzz.h"
#include "switch/apply.h"
#include "switch/balance.h"
#include "switch/generation.h"
#include "switch/observe.h"
#include "switch/pages.h"
#include "switch/parking.h"
#include "switch/switch.h"

enum { LONGEST = 4096, CALLERS = 2, LINES = 4, FILE_MOST = 16 << 20 };

/* A bit of everything, for a patch to change. */
static const char start[] =
	"{\"ports\":{\"a\":{\"kind\":\"guest\",\"path\":\"/run/a\"},\"b\":{\"kind\":\"guest\",\"path\":\"/run/b\"},"
	"\"d\":{\"kind\":\"device\",\"device\":\"if:eth0\"},\"l\":{\"kind\":\"guest\",\"path\":\"/run/l\"},"
	"\"r\":{\"kind\":\"guest\",\"path\":\"/run/r\"}},"
	"\"functions\":{\"f\":{\"pin\":\"flow\",\"replicas\":{\"f1\":{\"left\":\"l\",\"right\":\"r\"}}}},"
	"\"chains\":{\"c\":{\"from\":\"a\",\"through\":[\"f\"],\"to\":\"b\",\"match\":[{\"vlan\":[1,9],\"protocol\":6}]"
	"}}}";

static struct switch_state state;
static json_t *start_document;
static char folder[] = "/dev/shm/tailrace-fuzz-XXXXXX";
static char socket_path[64], page_path[64], config_path[64];

/* ------- what is not opened (the linker puts these in the place of the real ones) ------- */

int __wrap_guest_open(struct guest *guest, const struct guest_options *options, char *why, unsigned why_size);
void __wrap_guest_close(struct guest *guest);
struct guest_facts __wrap_guest_facts(const struct guest *guest);
uint64_t __wrap_guest_memory_most(const struct guest *guest);
int __wrap_device_port_open(struct device_port *port, const struct device_port_options *options, char *why,
			    unsigned why_size);
void __wrap_device_port_close(struct device_port *port);
void __wrap_device_port_describe(const struct device_port *port, json_t *into);
void *__real_shared_file_make(const char *path, size_t size, mode_t mode);
void *__wrap_shared_file_make(const char *path, size_t size, mode_t mode);

/* Some cannot be opened, so that changes fail half-way. */
static int open_port(const char *name, char *why, unsigned why_size)
{
	if (strchr(name, '!') == NULL)
		return 0;
	snprintf(why, why_size, "%s is in use", name);
	return -EADDRINUSE;
}

int __wrap_guest_open(struct guest *guest, const struct guest_options *options, char *why, unsigned why_size)
{
	memset(guest, 0, sizeof(*guest));
	guest->pairs = options->queues;
	snprintf(guest->path, sizeof(guest->path), "%s", options->path);
	return open_port(options->path, why, why_size);
}

void __wrap_guest_close(struct guest *guest)
{
}

/* Nobody is attached. */
struct guest_facts __wrap_guest_facts(const struct guest *guest)
{
	return (struct guest_facts){.since = 0};
}

uint64_t __wrap_guest_memory_most(const struct guest *guest)
{
	return 0;
}

int __wrap_device_port_open(struct device_port *port, const struct device_port_options *options, char *why,
			    unsigned why_size)
{
	memset(port, 0, sizeof(*port));
	port->queues = options->queues;
	return open_port(options->uri, why, why_size);
}

void __wrap_device_port_close(struct device_port *port)
{
}

void __wrap_device_port_describe(const struct device_port *port, json_t *into)
{
	json_object_set_new(into, "kind", json_string("device"));
}

/* Rings of captures and traces may have a GiB. */
void *__wrap_shared_file_make(const char *path, size_t size, mode_t mode)
{
	if (size <= FILE_MOST)
		return __real_shared_file_make(path, size, mode);
	errno = ENOSPC;
	return NULL;
}

/* ------- the switch ------- */

static void remove_folder(void)
{
	unlink(socket_path);
	unlink(page_path);
	unlink(config_path);
	rmdir(folder);
}

static void apply_start(void)
{
	struct control_error error;
	struct model *model = model_make(start_document, state.workers.count, &error);

	if (model == NULL || apply(&state, model, &error) != 0) {
		fprintf(stderr, "%s\n", error.message);
		abort();
	}
	json_decref(state.config.document);
	json_decref(state.config.previous);
	state.config = (struct config){.document = json_incref(start_document), .path = config_path};
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const struct workers_options workers = {.count = 2, .idle_us = 200, .backpressure_us = 20000};

	check(start_dpdk(16) == 0);
	check(grace_open() == 0 && mkdtemp(folder) != NULL, "no folder");
	snprintf(socket_path, sizeof(socket_path), "%s/control", folder);
	snprintf(page_path, sizeof(page_path), "%s/page", folder);
	snprintf(config_path, sizeof(config_path), "%s/config", folder);
	atexit(remove_folder);
	log_open("fuzz", LOG_LEVEL_ERROR);
	state.control = control_open(socket_path, switch_methods, switch_nb_methods, &state);
	state.page = page_create(page_path, page_kinds, PAGE_KINDS, PAGE_SLOTS);
	state.page_path = page_path;
	state.parts.end = generation_end_part;
	state.parts.context = &state;
	observe_open(&state.observation);
	check(state.control != NULL && state.page != NULL && workers_open(&state.workers, &workers, state.page) == 0 &&
		      balance_open(&state) == 0,
	      "the switch does not open");
	start_document = json_loads(start, 0, NULL);
	check(start_document != NULL, "the start is no JSON");
	apply_start();
	return 0;
}

/* End what an input has begun, so that each begins with the same. */
static void begin_anew(void)
{
	struct capture_session *session;
	struct control_error error;
	json_t *params;

	while ((session = TAILQ_FIRST(&state.observation.captures)) != NULL) {
		params = json_pack("{s:i}", "capture", session->id);
		json_decref(observe_capture_stop(&state, params, &error));
		json_decref(params);
	}
	for (unsigned id = 1; id <= state.observation.last_parking; id++) {
		params = json_pack("{s:i}", "park", id);
		json_decref(parking_stop(&state, params, &error));
		json_decref(params);
	}
	state.observation.last_parking = 0;
	params = json_object();
	json_decref(observe_trace_stop(&state, params, &error));
	json_decref(params);
	apply_start();
}

/* ------- the callers ------- */

struct client {
	int fd;
	size_t used;
	unsigned lines;
	char said[LONGEST];
};

static void call_up(struct client *client)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, socket_path);
	client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	client->used = 0;
	client->lines = 0;
	check(connect(client->fd, (struct sockaddr *)&address, sizeof(address)) == 0, "the server does not listen");
	caller_accept(state.control);
}

static void serve(void)
{
	for (unsigned i = 0; i < CONTROL_CALLERS; i++)
		if (state.control->callers[i].fd >= 0)
			caller_read(state.control, &state.control->callers[i]);
}

static void deliver(struct client *client)
{
	static char answers[1 << 16];

	/* One that the server has dropped is still there to speak to. */
	if (client->used > 0 && send(client->fd, client->said, client->used, MSG_NOSIGNAL) < 0)
		check(errno == EPIPE || errno == ECONNRESET, "the server does not read");
	client->used = 0;
	client->lines = 0;
	serve();
	while (read(client->fd, answers, sizeof(answers)) > 0)
		;
}

static void hang_up(struct client *client)
{
	close(client->fd);
	serve();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct client clients[CALLERS];
	struct client *client = clients;

	if (size > LONGEST)
		return 0;
	for (unsigned i = 0; i < CALLERS; i++)
		call_up(&clients[i]);
	for (size_t i = 0; i < size; i++) {
		switch (data[i]) {
		case 1:
			client = client == clients ? clients + 1 : clients;
			break;
		case 2:
			deliver(client);
			break;
		case 3:
			deliver(client);
			hang_up(client);
			call_up(client);
			break;
		default:
			client->said[client->used++] = (char)data[i];
			/* More answers than a socket holds would have to be waited for. */
			client->lines += data[i] == '\n';
			if (client->lines == LINES)
				deliver(client);
		}
	}
	for (unsigned i = 0; i < CALLERS; i++) {
		deliver(&clients[i]);
		hang_up(&clients[i]);
	}
	for (unsigned i = 0; i < CONTROL_CALLERS; i++)
		check(state.control->callers[i].fd < 0, "a caller that has hung up is kept");
	begin_anew();
	return 0;
}
