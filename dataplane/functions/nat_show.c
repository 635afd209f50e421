/* SPDX-License-Identifier: Apache-2.0
 *
 * A NAT's mappings, blocks and what became of blocks, as counters and tables (nat_table.h).
 */
#include <stdio.h>

#include <netinet/in.h>

#include "nat_table.h"
#include "steer/parse.h"

enum { END_TEXT = 32 };

static void write_end(char *text, uint32_t address, unsigned port)
{
	snprintf(text, END_TEXT, "%u.%u.%u.%u:%u", address >> 24, address >> 16 & 255, address >> 8 & 255,
		 address & 255, port);
}

static void write_address(char *text, uint32_t address)
{
	snprintf(text, END_TEXT, "%u.%u.%u.%u", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
}

static const char *protocol_name(uint8_t protocol)
{
	return protocol == IPPROTO_TCP ? "tcp" : protocol == IPPROTO_UDP ? "udp" : "icmp";
}

static uint32_t mapped_in(const struct nat_tables *nats)
{
	uint32_t mapped = 0;

	for (unsigned i = 0; i < nats->nb; i++)
		mapped += nats->tables[i]->mapped;
	return mapped;
}

void nat_tables_describe(const struct nat_tables *nats, json_t *counters)
{
	const struct nat_pool *pool = nats->tables[0]->pool;
	json_int_t made = 0;

	for (unsigned i = 0; i < nats->nb; i++)
		made += (json_int_t)nats->tables[i]->made;
	json_object_set_new(counters, "mappings",
			    json_pack("{s:I, s:I}", "known", (json_int_t)mapped_in(nats), "made", made));
	json_object_set_new(counters, "blocks",
			    json_pack("{s:I, s:I, s:I}", "taken", (json_int_t)pool->taken, "most",
				      (json_int_t)pool->nb_blocks, "events", (json_int_t)pool->nb_events));
}

static void add_mappings(const struct nat_table *table, json_t *rows, unsigned most)
{
	for (uint32_t number = 1; number <= table->most_mappings && json_array_size(rows) < most; number++) {
		const struct nat_mapping mapping = *(const volatile struct nat_mapping *)&table->mappings[number];
		char inside[END_TEXT], outside[END_TEXT];

		if (mapping.references == 0)
			continue;
		write_end(inside, mapping.inside.address, mapping.inside.port);
		write_end(outside, mapping.outside, mapping.outside_port);
		json_array_append_new(
			rows, json_pack("{s:s, s:s, s:s, s:i, s:I, s:b}", "protocol",
					protocol_name(mapping.inside.protocol), "inside", inside, "outside", outside,
					"vlan", (int)(mapping.inside.tags >> 16) & ~HEADERS_VLAN, "connections",
					(json_int_t)mapping.references - mapping.fixed, "forward", mapping.fixed));
	}
}

static json_t *show_mappings(const struct nat_tables *nats, unsigned most)
{
	json_t *rows = json_array();

	for (unsigned i = 0; i < nats->nb; i++)
		add_mappings(nats->tables[i], rows, most);
	return json_pack("{s:I, s:o}", "total", (json_int_t)mapped_in(nats), "rows", rows);
}

static json_t *show_block(const char *inside_of, uint32_t inside, uint32_t tags, uint32_t outside, uint32_t first,
			  uint32_t size)
{
	char host[END_TEXT], address[END_TEXT];

	write_address(host, inside);
	write_address(address, outside);
	return json_pack("{s:s, s:i, s:s, s:i, s:i}", inside_of, host, "vlan", (int)(tags >> 16) & ~HEADERS_VLAN,
			 "outside", address, "first", (int)first, "last", (int)(first + size - 1));
}

static json_t *show_blocks(const struct nat_tables *nats, unsigned most)
{
	const struct nat_pool *all = nats->tables[0]->pool;
	const struct nat_prefixes *pool = &all->settings->pool;
	json_t *rows = json_array();
	uint32_t number = 1;

	for (unsigned i = 0; i < pool->nb; i++)
		for (uint32_t address = 0; address <= ~pool->list[i].mask; address++)
			for (uint32_t at = 0; at < all->blocks_each; at++, number++) {
				const uint8_t owner = atomic_load_explicit(&all->owners[number], memory_order_relaxed);
				const struct nat_block block = *(const volatile struct nat_block *)&all->blocks[number];
				const struct nat_host *host;
				json_t *row;

				if (owner == 0 || block.host == 0 || json_array_size(rows) >= most)
					continue;
				host = &nats->tables[owner - 1]->hosts[block.host];
				row = show_block("host", host->address, host->tags, pool->list[i].address + address,
						 NAT_FIRST_PORT + at * all->settings->block, all->settings->block);
				json_object_set_new(row, "ports", json_integer(block.used));
				json_array_append_new(rows, row);
			}
	return json_pack("{s:I, s:o}", "total", (json_int_t)all->taken, "rows", rows);
}

/* The newest first. */
static json_t *show_events(const struct nat_pool *pool, unsigned most)
{
	const uint64_t last = atomic_load_explicit(&pool->nb_events, memory_order_acquire);
	json_t *rows = json_array();

	for (uint64_t number = last; json_array_size(rows) < most; number--) {
		struct nat_event event;
		json_t *row;

		if (!nat_pool_event(pool, number, &event))
			break;
		row = show_block("host", event.inside, event.tags, event.outside, event.first, pool->settings->block);
		json_object_set_new(row, "event", json_string(nat_event_word(&event)));
		json_object_set_new(row, "number", json_integer((json_int_t)event.number));
		json_object_set_new(row, "time", json_integer((json_int_t)event.time));
		json_array_append_new(rows, row);
	}
	return json_pack("{s:I, s:o}", "total", (json_int_t)RTE_MIN(last, (uint64_t)pool->most_events), "rows", rows);
}

void nat_tables_show(const struct nat_tables *nats, json_t *tables, unsigned most)
{
	json_object_set_new(tables, "mappings", show_mappings(nats, most));
	json_object_set_new(tables, "blocks", show_blocks(nats, most));
	json_object_set_new(tables, "block_events", show_events(nats->tables[0]->pool, most));
}
