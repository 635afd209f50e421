/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/log.h"
#include "handover.h"
#include "report.h"

enum { ROWS = 20, ROWS_MOST = 10000, WAIT_MOST = 1000 /* ms */ };

/* Of all queues together. */
static json_t *port_counters(const struct forward *forward, unsigned port)
{
	const struct forward_counters *first = &forward->lanes[0].counters[port];
	const struct function_counter counters[] = {
		{"received", &first->received},		  {"sent", &first->sent},
		{"drop_function", &first->drop_function}, {"drop_full", &first->drop_full},
		{"drop_busy", &first->drop_busy},
	};
	json_t *described = function_counters(counters, RTE_DIM(counters), sizeof(forward->lanes[0]),
					      forward->nb_queues);

	json_object_set_new(described, "port", json_string(forward->ports[port].target));
	return described;
}

/* Who has each queue, and what came by it. */
static json_t *queues_of(const struct forward *forward)
{
	json_t *rows = json_array();

	for (unsigned i = 0; i < forward->nb_queues; i++) {
		const struct lane *lane = &forward->lanes[i];
		const int thread = lane->owner;
		const int cpu = thread == FORWARD_NOBODY ? -1 : (int)forward->threads[thread].runs;

		json_array_append_new(
			rows,
			json_pack("{s:i, s:i, s:i, s:I, s:I, s:I}", "queue", (int)i, "thread", thread, "cpu", cpu,
				  "received_0", (json_int_t)lane->counters[0].received, "received_1",
				  (json_int_t)lane->counters[1].received, "handed_on",
				  (json_int_t)lane->counters[0].handed_on + (json_int_t)lane->counters[1].handed_on));
	}
	return json_pack("{s:I, s:o}", "total", (json_int_t)forward->nb_queues, "rows", rows);
}

static json_t *counters_of(const struct forward *forward)
{
	const struct function_keeping *keeping = forward->function->keeping;
	const struct function_counter sleeps = {"sleeps", &forward->threads[0].sleeps};
	json_t *ports = json_array(), *counters;

	for (unsigned i = 0; i < 2; i++)
		json_array_append_new(ports, port_counters(forward, i));
	counters = function_counters(&sleeps, 1, sizeof(forward->threads[0]), forward->nb_queues);
	json_object_set_new(counters, "function", json_string(forward->function->name));
	json_object_set_new(counters, "ports", ports);
	if (keeping != NULL)
		keeping->describe(counters);
	return counters;
}

static json_t *method_show(void *context, json_t *params, struct control_error *error)
{
	const struct report *report = context;
	const struct function *function = report->forward->function;
	json_t *tables;
	json_int_t most = ROWS;

	if (control_unpack(params, error, "{s?:I}", "most", &most) != 0)
		return NULL;
	if (most < 0 || most > ROWS_MOST)
		return control_fail(error, CONTROL_INVALID_PARAMS, "most: expected 0 to %d rows", ROWS_MOST);
	tables = json_object();
	if (report->forward->nb_queues > 1)
		json_object_set_new(tables, "queues", queues_of(report->forward));
	if (function->keeping != NULL && function->keeping->tables != NULL)
		function->keeping->tables(tables, (unsigned)most);
	return json_pack("{s:s, s:o, s:o}", "function", function->name, "counters", counters_of(report->forward),
			 "tables", tables);
}

static json_t *method_configure(void *context, json_t *params, struct control_error *error)
{
	const struct report *report = context;
	const struct function_keeping *keeping = report->forward->function->keeping;

	if (keeping == NULL || keeping->configure == NULL)
		return control_fail(error, CONTROL_FAILED, "a %s is told nothing while it runs",
				    report->forward->function->name);
	return keeping->configure(params, error) == 0 ? json_object() : NULL;
}

static json_t *method_use_cpus(void *context, json_t *params, struct control_error *error)
{
	const struct report *report = context;
	int cpus[FUNCTION_QUEUES];
	json_t *wanted, *each;
	json_int_t wait = 0;
	size_t i;

	if (control_unpack(params, error, "{s:o, s?:I}", "cpus", &wanted, "wait_ms", &wait) != 0)
		return NULL;
	if (!json_is_array(wanted) || json_array_size(wanted) > FUNCTION_QUEUES)
		return control_fail(error, CONTROL_INVALID_PARAMS, "cpus: expected a list of at most %d CPUs",
				    FUNCTION_QUEUES);
	if (wait < 0 || wait > WAIT_MOST)
		return control_fail(error, CONTROL_INVALID_PARAMS, "wait_ms: expected 0 to %d", WAIT_MOST);
	json_array_foreach (wanted, i, each) {
		if (!json_is_integer(each) || json_integer_value(each) < 0 || json_integer_value(each) > INT16_MAX)
			return control_fail(error, CONTROL_INVALID_PARAMS, "cpus[%zu]: expected a CPU's number", i);
		cpus[i] = (int)json_integer_value(each);
	}
	return forward_use(report->forward, cpus, (unsigned)json_array_size(wanted), (unsigned)wait, error);
}

/* NULL with the error filled in: it follows no connections. */
static struct handover *handover_of(const struct report *report, struct control_error *error)
{
	const struct function *function = report->forward->function;

	if (function->keeping != NULL && function->keeping->handover != NULL)
		return function->keeping->handover;
	control_fail(error, CONTROL_FAILED, "a %s has no connections to hand over", function->name);
	return NULL;
}

static json_t *method_give_connections(void *context, json_t *params, struct control_error *error)
{
	struct handover *handover = handover_of(context, error);

	return handover != NULL ? handover_give(handover, params, error) : NULL;
}

static json_t *method_take_connections(void *context, json_t *params, struct control_error *error)
{
	struct handover *handover = handover_of(context, error);

	return handover != NULL ? handover_receive(handover, params, error) : NULL;
}

static const struct control_method methods[] = {
	{"show", method_show, CONTROL_PARAMS("most")},
	{"configure", method_configure, NULL},
	{"use_cpus", method_use_cpus, CONTROL_PARAMS("cpus", "wait_ms")},
	{"give_connections", method_give_connections, CONTROL_PARAMS("from", "since", "changed")},
	{"take_connections", method_take_connections, CONTROL_PARAMS("connections", "told")},
};

int report_open(struct report *report, const char *path, struct forward *forward)
{
	*report = (struct report){.forward = forward, .stop_fd = -1};
	if (path == NULL)
		return 0;
	report->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (report->stop_fd < 0) {
		log_error("eventfd: %s", strerror(errno));
		return -errno;
	}
	report->control = control_open(path, methods, sizeof(methods) / sizeof(methods[0]), report);
	return report->control == NULL ? -EIO : 0;
}

static void *serve(void *context)
{
	struct report *report = context;
	int rc = control_serve(report->control, report->stop_fd);

	if (rc != 0)
		log_error("control socket: %s", strerror(-rc));
	return NULL;
}

int report_start(struct report *report)
{
	int rc;

	if (report->control == NULL)
		return 0;
	rc = pthread_create(&report->thread, NULL, serve, report);
	if (rc != 0) {
		log_error("no thread: %s", strerror(rc));
		return -rc;
	}
	report->runs = true;
	return 0;
}

void report_close(struct report *report)
{
	const uint64_t one = 1;

	if (report->control == NULL)
		return;
	if (report->runs) {
		(void)!write(report->stop_fd, &one, sizeof(one)); /* the counter cannot be full */
		pthread_join(report->thread, NULL);
	}
	control_close(report->control);
	close(report->stop_fd);
	report->control = NULL;
}

void report_print(const struct forward *forward)
{
	json_t *counters = counters_of(forward);
	char *text = json_dumps(counters, JSON_COMPACT);

	if (text != NULL)
		puts(text);
	fflush(stdout);
	free(text);
	json_decref(counters);
}
