/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include <rte_branch_prediction.h>
#include <rte_cycles.h>
#include <rte_malloc.h>

#include "common/log.h"
#include "function.h"
#include "nat_blocks.h"
#include "steer/hash.h"

/* ------- hashes and chains ------- */

static bool same_end(const struct nat_end *one, const struct nat_end *other)
{
	return one->address == other->address && one->port == other->port && one->protocol == other->protocol &&
	       one->tags == other->tags;
}

static struct nat_end outside_of(const struct nat_mapping *mapping)
{
	struct nat_end end = mapping->inside;

	end.address = mapping->outside;
	end.port = mapping->outside_port;
	return end;
}

static uint32_t *inside_chain(const struct nat_table *table, const struct nat_end *end)
{
	return &table->by_inside[nat_hash(table, end) & table->mapping_mask];
}

static uint32_t *outside_chain(const struct nat_table *table, const struct nat_end *end)
{
	return &table->by_outside[nat_hash(table, end) & table->mapping_mask];
}

struct nat_mapping *nat_table_inside(const struct nat_table *table, const struct nat_end *end)
{
	for (uint32_t at = *inside_chain(table, end); at != 0; at = table->mappings[at].next_inside)
		if (same_end(&table->mappings[at].inside, end))
			return &table->mappings[at];
	return NULL;
}

struct nat_mapping *nat_table_outside(const struct nat_table *table, const struct nat_end *end)
{
	return nat_table_outside_in(table, nat_hash(table, end) & table->mapping_mask, end);
}

/* ------- mappings ------- */

static void chain_up(struct nat_table *table, uint32_t number)
{
	struct nat_mapping *mapping = &table->mappings[number];
	const struct nat_end outside = outside_of(mapping);
	uint32_t *by_inside = inside_chain(table, &mapping->inside), *by_outside = outside_chain(table, &outside);

	mapping->next_inside = *by_inside;
	mapping->next_outside = *by_outside;
	*by_inside = *by_outside = number;
	table->changes++;
	atomic_store_explicit(&table->mapped, table->mapped + 1, memory_order_relaxed);
}

static struct nat_mapping *make_mapping(struct nat_table *table, const struct nat_end *end, uint32_t host)
{
	const uint32_t number = table->free_mapping;
	struct nat_mapping *mapping = &table->mappings[number], made = {.inside = *end};

	if (!nat_port_take(table, host, &made))
		return NULL;
	table->free_mapping = mapping->next_inside;
	*mapping = made;
	chain_up(table, number);
	function_count(&table->made, 1);
	return mapping;
}

/* Connections that count against the limit of a host.  What a forward leads to has none of the host's ports. */
static uint32_t begun_by(const struct nat_table *table, const struct nat_mapping *mapping, uint32_t host)
{
	if (mapping != NULL && mapping->fixed)
		return mapping->begun;
	return host != 0 ? table->hosts[host].connections : 0;
}

struct nat_mapping *nat_table_hold(struct nat_table *table, const struct nat_end *end, enum verdict *why)
{
	struct nat_mapping *mapping = nat_table_inside(table, end);
	uint32_t host = mapping != NULL ? mapping->host : nat_host_find(table, end->address, end->tags);

	*why = VERDICT_DROP_host_connections;
	if (begun_by(table, mapping, host) >= table->host_connections)
		return NULL;
	*why = VERDICT_DROP_table_full;
	if (mapping == NULL && table->free_mapping == 0)
		return NULL;
	*why = VERDICT_DROP_no_ports;
	if (mapping == NULL) {
		if (host == 0)
			host = nat_host_make(table, end->address, end->tags);
		if (host != 0)
			mapping = make_mapping(table, end, host);
	}
	if (mapping != NULL)
		mapping->references++;
	return mapping;
}

static struct nat_mapping *make_this(struct nat_table *table, const struct nat_mapping *wanted)
{
	const uint32_t number = table->free_mapping;
	struct nat_mapping *mapping = &table->mappings[number], made = *wanted;

	if (nat_table_outside(table, &(struct nat_end){.address = made.outside,
						       .port = made.outside_port,
						       .protocol = made.inside.protocol,
						       .tags = made.inside.tags}) != NULL ||
	    !nat_port_take_this(table, made.inside.address, made.inside.tags, &made))
		return NULL;
	table->free_mapping = mapping->next_inside;
	*mapping = made;
	chain_up(table, number);
	return mapping;
}

struct nat_mapping *nat_table_hold_this(struct nat_table *table, const struct nat_end *end, uint32_t outside,
					uint16_t outside_port, bool begun, enum verdict *why)
{
	const struct nat_mapping wanted = {.inside = *end, .outside = outside, .outside_port = outside_port};
	struct nat_mapping *mapping = nat_table_inside(table, end);
	const uint32_t host = mapping != NULL ? mapping->host : nat_host_find(table, end->address, end->tags);

	*why = VERDICT_DROP_host_connections;
	if (begun && begun_by(table, mapping, host) >= table->host_connections)
		return NULL;
	*why = VERDICT_DROP_table_full;
	if (mapping == NULL && table->free_mapping == 0)
		return NULL;
	*why = VERDICT_DROP_no_ports;
	if (mapping == NULL)
		mapping = make_this(table, &wanted);
	else if (mapping->outside != outside || mapping->outside_port != outside_port)
		return NULL;
	if (mapping != NULL)
		mapping->references++;
	return mapping;
}

void nat_table_release(struct nat_table *table, struct nat_mapping *mapping, uint32_t tick)
{
	const uint32_t number = (uint32_t)(mapping - table->mappings);
	const struct nat_end outside = outside_of(mapping);
	uint32_t *at;

	if (--mapping->references > 0)
		return;
	table->changes++;
	for (at = inside_chain(table, &mapping->inside); *at != number;)
		at = &table->mappings[*at].next_inside;
	*at = mapping->next_inside;
	for (at = outside_chain(table, &outside); *at != number;)
		at = &table->mappings[*at].next_outside;
	*at = mapping->next_outside;
	nat_port_free(table, mapping, tick);
	mapping->next_inside = table->free_mapping;
	table->free_mapping = number;
	atomic_store_explicit(&table->mapped, table->mapped - 1, memory_order_relaxed);
}

/* ------- start and end ------- */

static void add_forward(struct nat_table *table, const struct nat_forward *forward)
{
	const uint32_t number = table->free_mapping;
	struct nat_mapping *mapping = &table->mappings[number];

	table->free_mapping = mapping->next_inside;
	*mapping = (struct nat_mapping){
		.inside = {.address = forward->inside, .port = forward->inside_port, .protocol = forward->protocol},
		.outside = forward->address,
		.outside_port = forward->port,
		.fixed = true,
		.references = 1,
	};
	chain_up(table, number);
}

static void *take_memory(const char *name, uint64_t count, size_t size)
{
	return rte_calloc(name, count, size, RTE_CACHE_LINE_SIZE);
}

static void link_up(struct nat_table *table)
{
	for (uint32_t number = table->most_mappings; number > 0; number--) {
		table->mappings[number].next_inside = table->free_mapping;
		table->free_mapping = number;
	}
	for (uint32_t number = table->nb_hosts; number > 0; number--) {
		table->hosts[number].next = table->free_host;
		table->free_host = number;
	}
	table->blocks[table->waiting] = (struct nat_block){.next = table->waiting, .previous = table->waiting};
}

uint32_t nat_table_host_connections(const struct nat_settings *settings, uint32_t share, unsigned nb_tables)
{
	if (nb_tables == 1)
		return settings->host_connections;
	return RTE_MIN(settings->host_connections,
		       RTE_MAX(RTE_MAX(share / 8, settings->host_connections / nb_tables), 1u));
}

int nat_table_open(struct nat_table *table, struct nat_pool *pool, unsigned number, uint32_t connections)
{
	const struct nat_settings *settings = pool->settings;
	const uint32_t mappings = connections + 1 + settings->nb_forwards, hosts = pool->nb_blocks;
	const uint32_t chains = rte_align32pow2(2 * mappings), host_chains = rte_align32pow2(hosts + 1);

	*table = (struct nat_table){
		.settings = settings,
		.pool = pool,
		.number = number,
		.blocks = pool->blocks,
		.waiting = pool->nb_blocks + 1 + number,
		.most_mappings = mappings,
		.nb_hosts = hosts,
		.host_connections = nat_table_host_connections(settings, connections, pool->nb_tables),
		.mapping_mask = chains - 1,
		.host_mask = host_chains - 1,
		.hold = (uint32_t)(rte_get_tsc_hz() * NAT_HOLD_SECONDS >> CONNECTION_TICK_SHIFT),
	};
	if (getrandom(table->secret, sizeof(table->secret), GRND_NONBLOCK) != sizeof(table->secret))
		table->secret[0] = rte_rdtsc();
	table->mappings = take_memory("nat mappings", mappings + 1, sizeof(*table->mappings));
	table->hosts = take_memory("nat hosts", hosts + 1, sizeof(*table->hosts));
	table->by_inside = take_memory("nat inside", chains, sizeof(uint32_t));
	table->by_outside = take_memory("nat outside", chains, sizeof(uint32_t));
	table->by_host = take_memory("nat by host", host_chains, sizeof(uint32_t));
	if (table->mappings == NULL || table->hosts == NULL || table->by_inside == NULL || table->by_outside == NULL ||
	    table->by_host == NULL) {
		log_error("no memory for %u mappings of %u hosts; use a larger --memory", mappings, hosts);
		return -ENOMEM;
	}
	link_up(table);
	for (unsigned i = 0; i < settings->nb_forwards; i++)
		if (nat_table_home(settings->forwards[i].inside, pool->nb_tables) == number)
			add_forward(table, &settings->forwards[i]);
	return 0;
}

void nat_table_close(struct nat_table *table)
{
	rte_free(table->mappings);
	rte_free(table->hosts);
	rte_free(table->by_inside);
	rte_free(table->by_outside);
	rte_free(table->by_host);
	*table = (struct nat_table){.mappings = NULL};
}

/* ------- the pool ------- */

/* Where a forward is looked for first. */
static unsigned forward_place(uint32_t address, uint16_t port, uint8_t protocol)
{
	return (unsigned)(hash_mix(address ^ HASH_0, ((uint64_t)port << 8 | protocol) ^ HASH_2) % NAT_FORWARD_PLACES);
}

/* Its port is no host's. */
static void keep_for_forward(struct nat_pool *pool, unsigned number)
{
	const struct nat_forward *forward = &pool->settings->forwards[number];
	const struct nat_table table = {.settings = pool->settings, .pool = pool};
	const int64_t pool_number = nat_prefixes_find(&pool->settings->pool, forward->address);
	const uint32_t dynamic = forward->port - NAT_FIRST_PORT, size = pool->settings->block;
	unsigned place = forward_place(forward->address, forward->port, forward->protocol);

	while (pool->forwards[place] != 0)
		place = (place + 1) % NAT_FORWARD_PLACES;
	pool->forwards[place] = (uint8_t)(number + 1);
	if (forward->port >= NAT_FIRST_PORT && dynamic / size < pool->blocks_each) {
		const uint32_t block = (uint32_t)pool_number * pool->blocks_each + dynamic / size + 1;

		nat_port_bits(&table, block, forward->protocol)[dynamic % size / NAT_WORD] |= UINT64_C(1)
											      << dynamic % NAT_WORD;
	}
}

int nat_pool_open(struct nat_pool *pool, const struct nat_settings *settings, unsigned nb_tables)
{
	const uint32_t each = (UINT16_MAX + 1 - NAT_FIRST_PORT) / settings->block;
	const uint32_t blocks = each * settings->pool.addresses;

	*pool = (struct nat_pool){
		.settings = settings, .nb_tables = nb_tables, .nb_blocks = blocks, .left = blocks, .blocks_each = each};
	rte_spinlock_init(&pool->lock);
	pool->blocks = take_memory("nat blocks", blocks + 1 + nb_tables, sizeof(*pool->blocks));
	pool->bits = take_memory("nat ports", (uint64_t)blocks * NAT_PROTOCOLS * (settings->block / NAT_WORD),
				 sizeof(uint64_t));
	pool->owners = take_memory("nat owners", blocks + 1, sizeof(*pool->owners));
	pool->most_events = blocks + NAT_EVENTS;
	pool->events = take_memory("nat events", pool->most_events, sizeof(*pool->events));
	pool->free_blocks = take_memory("nat free", settings->pool.addresses + 1, sizeof(uint32_t));
	if (pool->blocks == NULL || pool->bits == NULL || pool->owners == NULL || pool->events == NULL ||
	    pool->free_blocks == NULL) {
		log_error("no memory for %u blocks of ports; use a larger --memory", blocks);
		return -ENOMEM;
	}
	for (uint32_t number = blocks; number > 0; number--) {
		uint32_t *first = &pool->free_blocks[(number - 1) / each];

		pool->blocks[number].next = *first;
		if (*first != 0)
			pool->blocks[*first].previous = number;
		*first = number;
	}
	for (unsigned i = 0; i < settings->nb_forwards; i++)
		keep_for_forward(pool, i);
	return 0;
}

void nat_pool_close(struct nat_pool *pool)
{
	rte_free(pool->blocks);
	rte_free(pool->bits);
	rte_free((void *)pool->owners);
	rte_free(pool->events);
	rte_free(pool->free_blocks);
	*pool = (struct nat_pool){.settings = NULL};
}

static const struct nat_forward *forward_at(const struct nat_pool *pool, uint32_t address, uint16_t port,
					    uint8_t protocol)
{
	unsigned place = forward_place(address, port, protocol);

	for (; pool->forwards[place] != 0; place = (place + 1) % NAT_FORWARD_PLACES) {
		const struct nat_forward *forward = &pool->settings->forwards[pool->forwards[place] - 1];

		if (forward->address == address && forward->port == port && forward->protocol == protocol)
			return forward;
	}
	return NULL;
}

unsigned nat_pool_home(const struct nat_pool *pool, uint32_t address, uint16_t port, uint8_t protocol,
		       unsigned otherwise)
{
	const int64_t pool_number = nat_prefixes_find(&pool->settings->pool, address);
	const uint32_t dynamic = (uint32_t)port - NAT_FIRST_PORT, at = dynamic / pool->settings->block;
	const struct nat_forward *forward;
	uint8_t owner;

	if (pool_number < 0)
		return otherwise;
	forward = forward_at(pool, address, port, protocol);
	if (forward != NULL)
		return nat_table_home(forward->inside, pool->nb_tables);
	if (port < NAT_FIRST_PORT || at >= pool->blocks_each)
		return otherwise;
	owner = atomic_load_explicit(&pool->owners[(uint32_t)pool_number * pool->blocks_each + at + 1],
				     memory_order_relaxed);
	return owner != 0 ? owner - 1u : otherwise;
}
