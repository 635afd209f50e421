/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <rte_branch_prediction.h>
#include <rte_cycles.h>
#include <rte_malloc.h>

#include "balancer_set.h"
#include "balancer_settings.h"
#include "common/grace.h"
#include "common/log.h"
#include "steer/hash.h"

static_assert(BALANCER_INDEX >= 2 * (BALANCER_SERVICES + BALANCER_ENDS), "an index has room, and ends");

/* ------- making a table ------- */

static void add_endpoint(struct balancer_table *table, const struct ip_address *address, uint16_t port,
			 uint8_t protocol, uint16_t value)
{
	uint64_t at = balancer_endpoint_hash(address->bytes, address->family, port, protocol);

	while (table->endpoints[at & BALANCER_MASK] != 0)
		at++;
	table->endpoints[at & BALANCER_MASK] = value;
}

static void add_address(struct balancer_table *table, const struct ip_address *address, enum balancer_kind kind,
			bool direct)
{
	uint64_t at = balancer_address_hash(address->bytes, address->family);
	const unsigned known = balancer_table_whose(table, address->bytes, address->family);

	if (known != 0) {
		table->list[known].direct |= direct;
		return;
	}
	while (table->addresses[at & BALANCER_MASK] != 0)
		at++;
	table->addresses[at & BALANCER_MASK] = (uint16_t)++table->nb_addresses;
	table->list[table->nb_addresses].address = *address;
	table->list[table->nb_addresses].kind = kind;
	table->list[table->nb_addresses].direct = direct;
}

/* The ends that new flows of a service may get, and what tells these from others. */
static unsigned sharers_of(const struct balancer_set *set, uint16_t service, struct maglev_end *sharers,
			   uint64_t *digest)
{
	unsigned nb = 0;

	*digest = 1;
	for (unsigned i = 0; i < set->nb_used; i++) {
		const struct balancer_end *end = &set->ends[set->used[i]];

		if (end->service != service || end->drain || !balancer_end_is_up(end))
			continue;
		sharers[nb++] = (struct maglev_end){
			.hash = balancer_endpoint_hash(end->address.bytes, end->address.family, end->port, 0),
			.weight = end->weight,
			.number = set->used[i],
		};
		*digest = hash_mix(*digest ^ HASH_3, (uint64_t)set->used[i] << 32 | end->weight) | 1;
	}
	return nb;
}

/* With the same places as before where the same ends share them. */
static bool share_out(const struct balancer_set *set, struct balancer_table *table, const struct balancer_table *before,
		      uint16_t service)
{
	struct maglev_end sharers[MAGLEV_ENDS];
	const unsigned nb = sharers_of(set, service, sharers, &table->digests[service]);

	if (before != NULL && before->places[service] != NULL && before->digests[service] == table->digests[service]) {
		table->places[service] = before->places[service];
		return true;
	}
	table->places[service] = malloc(MAGLEV_PLACES * sizeof(uint16_t));
	if (table->places[service] == NULL)
		return false;
	maglev_fill(table->places[service], sharers, nb);
	return true;
}

/* Free a table, but for the places that another one has too. */
static void free_table(struct balancer_table *table, const struct balancer_table *other)
{
	if (table == NULL)
		return;
	for (unsigned i = 0; i < BALANCER_SERVICE_NUMBERS; i++)
		if (other == NULL || other->places[i] != table->places[i])
			free(table->places[i]);
	free(table);
}

static void index_set(const struct balancer_set *set, struct balancer_table *table)
{
	for (unsigned i = 0; i < 2; i++)
		if (table->own.station.addresses[i].family != HEADERS_OTHER)
			add_address(table, &table->own.station.addresses[i], BALANCER_OWN, false);
	for (uint16_t i = 1; i < BALANCER_SERVICE_NUMBERS; i++) {
		const struct balancer_service *service = &set->services[i];

		if (!service->used)
			continue;
		add_address(table, &service->address, BALANCER_VIRTUAL, service->direct);
		add_endpoint(table, &service->address, service->port, service->protocol, i);
	}
	for (unsigned i = 0; i < set->nb_used; i++) {
		const struct balancer_end *end = &set->ends[set->used[i]];
		const struct balancer_service *service = &set->services[end->service];

		if (service->direct)
			continue;
		add_address(table, &end->address, BALANCER_END, false);
		add_endpoint(table, &end->address, end->port, service->protocol, set->used[i] | BALANCER_ENDPOINT_END);
	}
}

/* With these own addresses, and what the set has of the rest.  Returns 0, or -ENOMEM. */
static int publish(struct balancer_set *set, const struct balancer_own *with)
{
	struct balancer_table *before = atomic_load(&set->table), *table = calloc(1, sizeof(*table));

	if (table == NULL)
		return -ENOMEM;
	table->own = *with;
	index_set(set, table);
	for (uint16_t i = 1; i < BALANCER_SERVICE_NUMBERS; i++)
		if (set->services[i].used && !share_out(set, table, before, i)) {
			free_table(table, before);
			return -ENOMEM;
		}
	atomic_store_explicit(&set->table, table, memory_order_release);
	grace_wait();
	free_table(before, table);
	return 0;
}

int balancer_set_publish(struct balancer_set *set)
{
	return publish(set, &atomic_load(&set->table)->own);
}

/* ------- another set ------- */

static uint16_t known_service(const struct balancer_set *set, const struct balancer_service *wanted)
{
	for (uint16_t i = 1; i < BALANCER_SERVICE_NUMBERS; i++) {
		const struct balancer_service *service = &set->services[i];

		if (service->used && service->port == wanted->port && service->protocol == wanted->protocol &&
		    service->direct == wanted->direct &&
		    balancer_same_address(&service->address, wanted->address.bytes, wanted->address.family))
			return i;
	}
	return 0;
}

uint16_t balancer_set_end(const struct balancer_set *set, uint16_t service, uint8_t family, const uint8_t *address,
			  uint16_t port)
{
	for (unsigned i = 0; i < set->nb_used; i++) {
		const struct balancer_end *end = &set->ends[set->used[i]];

		if (end->service == service && end->port == port &&
		    balancer_same_address(&end->address, address, family))
			return set->used[i];
	}
	return 0;
}

/* Numbers for what is new, which nobody else has.  Returns false if there is none left for an end. */
static bool give_numbers(const struct balancer_set *set, struct balancer_settings *settings)
{
	uint16_t free_service = 1, free_end = 1;

	for (unsigned i = 0; i < settings->nb_services; i++) {
		settings->numbers[i] = known_service(set, &settings->services[i]);
		if (settings->numbers[i] != 0)
			continue;
		while (set->services[free_service].used)
			free_service++;
		settings->numbers[i] = free_service++;
	}
	for (unsigned i = 0; i < settings->nb_ends; i++) {
		struct balancer_settings_end *wanted = &settings->ends[i];

		wanted->end.service = settings->numbers[wanted->service];
		wanted->number = balancer_set_end(set, wanted->end.service, wanted->end.address.family,
						  wanted->end.address.bytes, wanted->end.port);
		if (wanted->number != 0)
			continue;
		for (; free_end < BALANCER_END_NUMBERS; free_end++) {
			const struct balancer_end *end = &set->ends[free_end];

			if (end->state == BALANCER_FREE ||
			    (end->state == BALANCER_REMOVED && balancer_set_counts(set, free_end).connections == 0))
				break;
		}
		if (free_end == BALANCER_END_NUMBERS)
			return false;
		wanted->number = free_end++;
	}
	return true;
}

/* Nobody has a connection of this end. */
static void begin_end(struct balancer_set *set, uint16_t number, const struct balancer_end *wanted)
{
	struct balancer_end *end = &set->ends[number];

	end->address = wanted->address;
	end->port = wanted->port;
	end->service = wanted->service;
	end->mac = 0;
	for (unsigned queue = 0; queue < set->nb_queues; queue++) {
		struct balancer_end_counts *counts = &set->counts[queue][number];

		counts->begun = counts->frames = 0;
		counts->unkept = 0;
	}
	memset(&end->health, 0, sizeof(end->health));
	atomic_store_explicit(&end->state, BALANCER_DOWN, memory_order_release);
}

static void put_services(struct balancer_set *set, const struct balancer_settings *settings)
{
	for (unsigned i = 0; i < BALANCER_SERVICE_NUMBERS; i++)
		set->services[i].used = false;
	for (unsigned i = 0; i < settings->nb_services; i++)
		set->services[settings->numbers[i]] = settings->services[i];
}

static void put_ends(struct balancer_set *set, const struct balancer_settings *settings)
{
	static bool stays[BALANCER_END_NUMBERS]; /* who calls has the lock */

	memset(stays, 0, sizeof(stays));
	for (unsigned i = 0; i < settings->nb_ends; i++)
		stays[settings->ends[i].number] = true;
	for (unsigned i = 0; i < set->nb_used; i++)
		if (!stays[set->used[i]])
			atomic_store_explicit(&set->ends[set->used[i]].state, BALANCER_REMOVED, memory_order_release);
	for (unsigned i = 0; i < settings->nb_ends; i++) {
		const struct balancer_settings_end *wanted = &settings->ends[i];
		struct balancer_end *end = &set->ends[wanted->number];

		if (end->state <= BALANCER_REMOVED)
			begin_end(set, wanted->number, &wanted->end);
		memcpy(end->name, wanted->end.name, sizeof(end->name));
		end->weight = wanted->end.weight;
		end->drain = wanted->end.drain;
		set->used[i] = wanted->number;
	}
	set->nb_used = settings->nb_ends;
}

/* Who asks for a next hop's MAC address, for all that have the same. */
static void name_leaders(struct balancer_set *set, const struct balancer_settings *settings)
{
	for (unsigned i = 0; i < set->nb_used; i++) {
		struct balancer_end *end = &set->ends[set->used[i]];
		const struct ip_address *hop = balancer_next_hop(set, &settings->own, end);
		unsigned first = 0;

		while (memcmp(balancer_next_hop(set, &settings->own, &set->ends[set->used[first]]), hop,
			      sizeof(*hop)) != 0)
			first++;
		end->leader = set->used[first];
	}
}

/* Who has another next hop than before asks for its MAC address at once, and sends to the one that it knows until it is
 * answered. */
static void ask_anew(struct balancer_set *set, const struct balancer_own *before, const struct balancer_own *own)
{
	for (unsigned i = 0; i < set->nb_used; i++) {
		struct balancer_end *end = &set->ends[set->used[i]];

		if (memcmp(balancer_next_hop(set, before, end), balancer_next_hop(set, own, end),
			   sizeof(struct ip_address)) == 0)
			continue;
		set->ends[end->leader].health.asked = 0;
		end->health.due = 0;
	}
}

int balancer_set_take(struct balancer_set *set, json_t *params, struct control_error *error)
{
	struct balancer_settings *settings = balancer_settings_read(params, error);
	int rc = -1;

	if (settings == NULL)
		return -1;
	if (!settings->has_secret)
		memcpy(settings->own.secret, set->random, sizeof(settings->own.secret));
	pthread_mutex_lock(&set->lock);
	if (!give_numbers(set, settings)) {
		control_fail(error, CONTROL_FAILED,
			     "too many back ends were removed whose connections have not ended; expected some to end "
			     "first");
	} else {
		put_services(set, settings);
		put_ends(set, settings);
		name_leaders(set, settings);
		ask_anew(set, &atomic_load(&set->table)->own, &settings->own);
		rc = publish(set, &settings->own);
		if (rc != 0) /* a restart finds it as it was told */
			control_fail(error, CONTROL_FAILED, "no memory for its tables");
	}
	pthread_mutex_unlock(&set->lock);
	free(settings);
	return rc != 0 ? -1 : 0;
}

/* ------- start and end ------- */

struct balancer_end_sum balancer_set_counts(const struct balancer_set *set, uint16_t number)
{
	struct balancer_end_sum sum = {.begun = 0};

	for (unsigned queue = 0; queue < set->nb_queues; queue++) {
		const struct balancer_end_counts *counts = &set->counts[queue][number];

		sum.connections += atomic_load_explicit(&counts->connections, memory_order_acquire);
		sum.begun += counts->begun;
		sum.frames += counts->frames;
	}
	return sum;
}

int balancer_set_open(struct balancer_set *set, unsigned nb_queues)
{
	static const struct balancer_own nothing;

	for (; set->nb_queues < nb_queues; set->nb_queues++) {
		set->counts[set->nb_queues] = rte_calloc("balancer counts", BALANCER_END_NUMBERS,
							 sizeof(struct balancer_end_counts), RTE_CACHE_LINE_SIZE);
		if (set->counts[set->nb_queues] == NULL)
			return -ENOMEM;
	}
	if (getrandom(set->random, sizeof(set->random), GRND_NONBLOCK) != sizeof(set->random))
		set->random[0] = rte_rdtsc();
	pthread_mutex_init(&set->lock, NULL);
	return publish(set, &nothing);
}

void balancer_set_close(struct balancer_set *set)
{
	free_table(atomic_load(&set->table), NULL);
	for (unsigned queue = 0; queue < set->nb_queues; queue++)
		rte_free(set->counts[queue]);
	memset(set, 0, sizeof(*set));
}
