/* SPDX-License-Identifier: Apache-2.0
 *
 * A balancer's services, back ends and what became of them, as counters and tables.
 */
#include <arpa/inet.h>
#include <stdio.h>

#include <netinet/in.h>

#include "balancer.h"

enum { TEXT = INET6_ADDRSTRLEN + 16 };

static const char *const states[] = {
	[BALANCER_FREE] = "free", [BALANCER_REMOVED] = "removed", [BALANCER_DOWN] = "down", [BALANCER_UP] = "up"};

static void write_end(char *text, const struct ip_address *address, uint16_t port)
{
	const bool six = address->family == HEADERS_IPV6;
	char words[INET6_ADDRSTRLEN];

	inet_ntop(six ? AF_INET6 : AF_INET, address->bytes, words, sizeof(words));
	snprintf(text, TEXT, six ? "[%s]:%u" : "%s:%u", words, port);
}

void balancer_show_counters(struct balancer *balancer, json_t *counters)
{
	const struct balancer_health *health = &balancer->health;
	json_int_t up = 0, nb_used, events;

	pthread_mutex_lock(&balancer->set.lock);
	nb_used = balancer->set.nb_used;
	events = (json_int_t)health->nb_events;
	for (unsigned i = 0; i < balancer->set.nb_used; i++)
		up += balancer_end_is_up(&balancer->set.ends[balancer->set.used[i]]);
	pthread_mutex_unlock(&balancer->set.lock);
	json_object_set_new(counters, "back_ends",
			    json_pack("{s:I, s:I, s:I}", "known", nb_used, "up", up, "events", events));
	json_object_set_new(counters, "health",
			    json_pack("{s:I, s:I, s:I}", "probes", (json_int_t)health->probes, "answers",
				      (json_int_t)health->answers, "unsent", (json_int_t)health->unsent));
}

static json_t *show_services(const struct balancer_set *set, unsigned most)
{
	json_t *rows = json_array();
	json_int_t total = 0;

	for (uint16_t i = 1; i < BALANCER_SERVICE_NUMBERS; i++) {
		const struct balancer_service *service = &set->services[i];
		json_int_t ends = 0, up = 0;
		char text[TEXT];

		if (!service->used)
			continue;
		total++;
		for (unsigned j = 0; j < set->nb_used; j++) {
			const struct balancer_end *end = &set->ends[set->used[j]];

			ends += end->service == i;
			up += end->service == i && balancer_end_is_up(end);
		}
		write_end(text, &service->address, service->port);
		if (json_array_size(rows) < most)
			json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "service",
							      service->name, "address", text, "protocol",
							      service->protocol == IPPROTO_TCP ? "tcp" : "udp", "mode",
							      service->direct ? "direct" : "rewrite", "back_ends", ends,
							      "up", up));
	}
	return json_pack("{s:I, s:o}", "total", total, "rows", rows);
}

static json_t *show_ends(const struct balancer_set *set, unsigned most)
{
	json_t *rows = json_array();

	for (unsigned i = 0; i < RTE_MIN(set->nb_used, most); i++) {
		const struct balancer_end *end = &set->ends[set->used[i]];
		const struct balancer_end_sum counts = balancer_set_counts(set, set->used[i]);
		char text[TEXT];

		write_end(text, &end->address, end->port);
		json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:I, s:I, s:I}", "service",
						      set->services[end->service].name, "back_end", end->name,
						      "address", text, "state", states[end->state], "drain", end->drain,
						      "weight", (int)end->weight, "connections",
						      (json_int_t)counts.connections, "begun", (json_int_t)counts.begun,
						      "frames", (json_int_t)counts.frames));
	}
	return json_pack("{s:I, s:o}", "total", (json_int_t)set->nb_used, "rows", rows);
}

/* The newest first. */
static json_t *show_events(const struct balancer_health *health, unsigned most)
{
	const uint64_t kept = RTE_MIN(health->nb_events, (uint64_t)BALANCER_EVENTS);
	json_t *rows = json_array();

	for (uint64_t i = 0; i < RTE_MIN(kept, (uint64_t)most); i++) {
		const uint64_t number = health->nb_events - i;
		const struct balancer_event *event = &health->events[(number - 1) % BALANCER_EVENTS];

		json_array_append_new(rows,
				      json_pack("{s:I, s:I, s:s, s:s, s:s, s:s}", "number", (json_int_t)number, "time",
						(json_int_t)event->time, "service", event->service, "back_end",
						event->end, "event", event->up ? "up" : "down", "why", event->why));
	}
	return json_pack("{s:I, s:o}", "total", (json_int_t)kept, "rows", rows);
}

void balancer_show_tables(struct balancer *balancer, json_t *tables, unsigned most)
{
	pthread_mutex_lock(&balancer->set.lock);
	json_object_set_new(tables, "services", show_services(&balancer->set, most));
	json_object_set_new(tables, "back_ends", show_ends(&balancer->set, most));
	json_object_set_new(tables, "events", show_events(&balancer->health, most));
	pthread_mutex_unlock(&balancer->set.lock);
}
