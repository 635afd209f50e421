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

struct nat_mapping *nat_table_hold(struct nat_table *table, const struct nat_end *end, enum verdict *why)
{
	struct nat_mapping *mapping = nat_table_inside(table, end);
	uint32_t host = mapping != NULL ? mapping->host : nat_host_find(table, end->address, end->tags);

	*why = VERDICT_DROP_host_connections;
	if (host != 0 && table->hosts[host].connections >= table->settings->host_connections)
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
					uint16_t outside_port, enum verdict *why)
{
	const struct nat_mapping wanted = {.inside = *end, .outside = outside, .outside_port = outside_port};
	struct nat_mapping *mapping = nat_table_inside(table, end);
	const uint32_t host = mapping != NULL ? mapping->host : nat_host_find(table, end->address, end->tags);

	*why = VERDICT_DROP_host_connections;
	if (host != 0 && table->hosts[host].connections >= table->settings->host_connections)
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

/* Of a forward: its port is no host's. */
static void add_forward(struct nat_table *table, const struct nat_forward *forward)
{
	const uint32_t number = table->free_mapping, size = table->settings->block;
	const int64_t pool_number = nat_prefixes_find(&table->settings->pool, forward->address);
	const uint32_t dynamic = forward->port - NAT_FIRST_PORT;
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
	if (forward->port >= NAT_FIRST_PORT && dynamic / size < table->blocks_each) {
		const uint32_t block = (uint32_t)pool_number * table->blocks_each + dynamic / size + 1;

		nat_port_bits(table, block, forward->protocol)[dynamic % size / NAT_WORD] |= UINT64_C(1)
											     << dynamic % NAT_WORD;
	}
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
	for (uint32_t number = table->nb_blocks; number > 0; number--) {
		uint32_t *first = &table->free_blocks[nat_block_pool(table, number)];

		table->blocks[number].next = *first;
		*first = number;
	}
}

int nat_table_open(struct nat_table *table, const struct nat_settings *settings, uint32_t connections)
{
	const uint32_t each = (UINT16_MAX + 1 - NAT_FIRST_PORT) / settings->block;
	const uint32_t blocks = each * settings->pool.addresses;
	const uint32_t mappings = connections + 1 + settings->nb_forwards;
	const uint32_t chains = rte_align32pow2(2 * mappings), host_chains = rte_align32pow2(blocks + 1);

	*table = (struct nat_table){
		.settings = settings,
		.most_mappings = mappings,
		.nb_hosts = blocks,
		.nb_blocks = blocks,
		.left = blocks,
		.blocks_each = each,
		.mapping_mask = chains - 1,
		.host_mask = host_chains - 1,
		.hold = (uint32_t)(rte_get_tsc_hz() * NAT_HOLD_SECONDS >> CONNECTION_TICK_SHIFT),
	};
	if (getrandom(table->secret, sizeof(table->secret), GRND_NONBLOCK) != sizeof(table->secret))
		table->secret[0] = rte_rdtsc();
	table->mappings = take_memory("nat mappings", mappings + 1, sizeof(*table->mappings));
	table->hosts = take_memory("nat hosts", blocks + 1, sizeof(*table->hosts));
	table->blocks = take_memory("nat blocks", blocks + 1, sizeof(*table->blocks));
	table->bits = take_memory("nat ports", (uint64_t)blocks * NAT_PROTOCOLS * (settings->block / NAT_WORD),
				  sizeof(uint64_t));
	table->by_inside = take_memory("nat inside", chains, sizeof(uint32_t));
	table->by_outside = take_memory("nat outside", chains, sizeof(uint32_t));
	table->by_host = take_memory("nat by host", host_chains, sizeof(uint32_t));
	table->free_blocks = take_memory("nat free", settings->pool.addresses + 1, sizeof(uint32_t));
	if (table->mappings == NULL || table->hosts == NULL || table->blocks == NULL || table->bits == NULL ||
	    table->by_inside == NULL || table->by_outside == NULL || table->by_host == NULL ||
	    table->free_blocks == NULL) {
		log_error("no memory for %u mappings and %u blocks of ports; use a larger --memory", mappings, blocks);
		return -ENOMEM;
	}
	link_up(table);
	for (unsigned i = 0; i < settings->nb_forwards; i++)
		add_forward(table, &settings->forwards[i]);
	return 0;
}

void nat_table_close(struct nat_table *table)
{
	rte_free(table->mappings);
	rte_free(table->hosts);
	rte_free(table->blocks);
	rte_free(table->bits);
	rte_free(table->by_inside);
	rte_free(table->by_outside);
	rte_free(table->by_host);
	rte_free(table->free_blocks);
	*table = (struct nat_table){.mappings = NULL};
}
