/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include <netinet/in.h>

#include <rte_branch_prediction.h>

#include "nat_blocks.h"
#include "steer/hash.h"

/* ------- hosts ------- */

static uint32_t *host_chain(const struct nat_table *table, uint32_t address, uint32_t tags)
{
	const struct nat_end end = {.address = address, .tags = tags};

	return &table->by_host[nat_hash(table, &end) & table->host_mask];
}

uint32_t nat_host_find(const struct nat_table *table, uint32_t address, uint32_t tags)
{
	uint32_t at = *host_chain(table, address, tags);

	while (at != 0 && (table->hosts[at].address != address || table->hosts[at].tags != tags))
		at = table->hosts[at].next;
	return at;
}

/* ------- blocks ------- */

static uint64_t next_random(struct nat_table *table)
{
	table->random += HASH_3;
	return hash_mix(table->random ^ table->secret[1], table->secret[0] | 1);
}

uint32_t nat_block_pool(const struct nat_table *table, uint32_t block)
{
	return (block - 1) / table->pool->blocks_each;
}

static uint32_t pool_address(const struct nat_table *table, uint32_t number)
{
	const struct nat_prefixes *pool = &table->settings->pool;

	for (unsigned i = pool->nb; i-- > 0;)
		if (number >= pool->list[i].first)
			return pool->list[i].address + (number - pool->list[i].first);
	return 0;
}

static uint32_t first_port(const struct nat_table *table, uint32_t block)
{
	return NAT_FIRST_PORT + (block - 1) % table->pool->blocks_each * table->settings->block;
}

/*
 * Seconds since 1970; asked for before the lock is taken, which is held for few steps, however many blocks there are:
 * who waits for it may be kept by a thread that was stopped with it.
 */
static uint64_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec;
}

/* The lock is held. */
static void note(const struct nat_table *table, uint32_t block, const struct nat_host *host, enum nat_event_kind kind,
		 uint64_t time)
{
	struct nat_pool *pool = table->pool;
	const uint64_t number = pool->nb_events + 1;

	/* Who copies meanwhile sees that this place is the next one's before it sees a part of that (nat_pool_event()).
	 */
	atomic_thread_fence(memory_order_release);
	pool->events[number % pool->most_events] = (struct nat_event){
		.number = number,
		.time = time,
		.inside = host->address,
		.tags = host->tags,
		.outside = pool_address(table, nat_block_pool(table, block)),
		.first = (uint16_t)first_port(table, block),
		.kind = (uint8_t)kind,
	};
	atomic_store_explicit(&pool->nb_events, number, memory_order_release);
}

/* Before this one another may be written already, in the place of the oldest. */
uint64_t nat_pool_oldest(const struct nat_pool *pool)
{
	const uint64_t last = atomic_load_explicit(&pool->nb_events, memory_order_acquire);

	return last + 2 > pool->most_events ? last + 2 - pool->most_events : 1;
}

bool nat_pool_event(const struct nat_pool *pool, uint64_t number, struct nat_event *event)
{
	if (number == 0 || number > atomic_load_explicit(&pool->nb_events, memory_order_acquire))
		return false;
	*event = *(const volatile struct nat_event *)&pool->events[number % pool->most_events];
	atomic_thread_fence(memory_order_acquire);
	return number >= nat_pool_oldest(pool);
}

const char *nat_event_word(const struct nat_event *event)
{
	static const char *const words[] = {
#define X(name) #name,
		NAT_EVENTS_ALL(X)
#undef X
	};

	return words[event->kind];
}

static void leave_list(struct nat_table *table, struct nat_block *block)
{
	table->blocks[block->previous].next = block->next;
	table->blocks[block->next].previous = block->previous;
}

/* The newest of those that wait stands before who holds the list, the oldest behind it. */
static void wait_in_list(struct nat_table *table, uint32_t number, uint32_t tick)
{
	struct nat_block *block = &table->blocks[number];
	const uint32_t last = table->blocks[table->waiting].previous;

	block->since = tick;
	block->previous = last;
	block->next = table->waiting;
	table->blocks[last].next = number;
	table->blocks[table->waiting].previous = number;
}

/* The free blocks at an address are in a list, of which that knows the first.  The lock is held. */
static void become_free(struct nat_table *table, uint32_t pool_number, uint32_t number)
{
	uint32_t *first = &table->pool->free_blocks[pool_number];

	table->blocks[number] = (struct nat_block){.next = *first};
	if (*first != 0)
		table->blocks[*first].previous = number;
	*first = number;
}

static void leave_free(struct nat_table *table, uint32_t pool_number, uint32_t number)
{
	const struct nat_block *block = &table->blocks[number];

	if (block->previous != 0)
		table->blocks[block->previous].next = block->next;
	else
		table->pool->free_blocks[pool_number] = block->next;
	if (block->next != 0)
		table->blocks[block->next].previous = block->previous;
}

/* Have a host own a block that is in no list any more; the lock is held. */
static void own_block(struct nat_table *table, uint32_t host_number, uint32_t number, enum nat_event_kind kind,
		      uint64_t time)
{
	struct nat_host *host = &table->hosts[host_number];

	table->pool->left--;
	table->pool->taken++;
	table->blocks[number] = (struct nat_block){.host = host_number};
	host->blocks[host->nb_blocks++] = number;
	atomic_store_explicit(&table->pool->owners[number], table->number + 1, memory_order_relaxed);
	note(table, number, host, kind, time);
}

/* The first free block at an address is a host's now; the lock is held.  Returns its number; 0: there is none. */
static uint32_t take_first(struct nat_table *table, uint32_t host_number, uint32_t pool_number, uint64_t time)
{
	const uint32_t number = table->pool->free_blocks[pool_number];

	if (number == 0)
		return 0;
	leave_free(table, pool_number, number);
	own_block(table, host_number, number, NAT_EVENT_assigned, time);
	wait_in_list(table, number, 0);
	return number;
}

/* Another block at its host's address, which waits; 0: there is none. */
static uint32_t take_block(struct nat_table *table, uint32_t host_number)
{
	const struct nat_host *host = &table->hosts[host_number];
	uint32_t number;
	uint64_t time;

	if (host->nb_blocks == table->settings->blocks)
		return 0;
	time = seconds();
	rte_spinlock_lock(&table->pool->lock);
	number = take_first(table, host_number, host->pool_number, time);
	rte_spinlock_unlock(&table->pool->lock);
	return number;
}

static void free_host(struct nat_table *table, uint32_t number)
{
	struct nat_host *host = &table->hosts[number];
	uint32_t *at = host_chain(table, host->address, host->tags);

	while (*at != number)
		at = &table->hosts[*at].next;
	*at = host->next;
	host->next = table->free_host;
	table->free_host = number;
}

static void give_block_back(struct nat_table *table, uint32_t number)
{
	struct nat_block *block = &table->blocks[number];
	struct nat_host *host = &table->hosts[block->host];
	const uint32_t host_number = block->host, pool_number = host->pool_number;
	const uint64_t time = seconds();
	unsigned at = 0;

	leave_list(table, block);
	while (host->blocks[at] != number)
		at++;
	host->blocks[at] = host->blocks[--host->nb_blocks];
	rte_spinlock_lock(&table->pool->lock);
	note(table, number, host, NAT_EVENT_released, time);
	become_free(table, pool_number, number);
	table->pool->left++;
	table->pool->taken--;
	atomic_store_explicit(&table->pool->owners[number], 0, memory_order_relaxed);
	rte_spinlock_unlock(&table->pool->lock);
	if (host->nb_blocks == 0)
		free_host(table, host_number);
}

bool nat_table_sweep_waits(const struct nat_table *table, uint32_t tick)
{
	const uint32_t oldest = table->blocks[table->waiting].next;

	return oldest != table->waiting && tick - table->blocks[oldest].since > table->hold;
}

void nat_table_sweep(struct nat_table *table, uint32_t tick)
{
	if (unlikely(nat_table_sweep_waits(table, tick)))
		give_block_back(table, table->blocks[table->waiting].next);
}

static uint32_t make_host(struct nat_table *table, uint32_t address, uint32_t tags, uint32_t pool_number)
{
	const uint32_t number = table->free_host;
	uint32_t *chain = host_chain(table, address, tags);

	table->free_host = table->hosts[number].next;
	table->hosts[number] = (struct nat_host){
		.address = address, .tags = tags, .pool_number = (uint16_t)pool_number, .next = *chain};
	*chain = number;
	return number;
}

/* At an address that may have blocks left; 0: it has none. */
static uint32_t make_at(struct nat_table *table, uint32_t address, uint32_t tags, uint32_t pool_number)
{
	const uint64_t time = seconds();
	uint32_t host = 0;

	rte_spinlock_lock(&table->pool->lock);
	if (table->pool->free_blocks[pool_number] != 0) {
		host = make_host(table, address, tags, pool_number);
		take_first(table, host, pool_number, time);
	}
	rte_spinlock_unlock(&table->pool->lock);
	return host;
}

uint32_t nat_host_make(struct nat_table *table, uint32_t address, uint32_t tags)
{
	const uint32_t addresses = table->settings->pool.addresses;
	const struct nat_end end = {.address = address, .tags = tags};
	const uint32_t first = nat_hash(table, &end) % addresses;
	uint32_t host = 0;

	if (table->pool->left == 0 || table->free_host == 0)
		return 0;
	for (uint32_t i = 0; i < addresses && host == 0; i++) {
		const uint32_t pool_number = (first + i) % addresses;

		/* Without the lock, which is not held for so long. */
		if (__atomic_load_n(&table->pool->free_blocks[pool_number], __ATOMIC_RELAXED) != 0)
			host = make_at(table, address, tags, pool_number);
	}
	return host;
}

/* ------- ports ------- */

static unsigned protocol_index(uint8_t protocol)
{
	return protocol == IPPROTO_TCP ? 0 : protocol == IPPROTO_UDP ? 1 : 2;
}

uint64_t *nat_port_bits(const struct nat_table *table, uint32_t block, uint8_t protocol)
{
	return &table->pool->bits[((uint64_t)(block - 1) * NAT_PROTOCOLS + protocol_index(protocol)) *
				  (table->settings->block / NAT_WORD)];
}

/* A free port among those of `mask`, from a random one on (RFC 6056); -1: there is none. */
static int free_port(struct nat_table *table, const uint64_t *bits, uint64_t mask)
{
	const uint32_t words = table->settings->block / NAT_WORD;
	const uint64_t random = next_random(table);
	const unsigned turn = random % NAT_WORD;

	for (uint32_t i = 0; i < words; i++) {
		const uint32_t word = ((random >> 32) + i) % words;
		const uint64_t left = ~bits[word] & mask;
		const uint64_t turned = left >> turn | (turn > 0 ? left << (NAT_WORD - turn) : 0);

		if (left != 0)
			return (int)(word * NAT_WORD + ((unsigned)__builtin_ctzll(turned) + turn) % NAT_WORD);
	}
	return -1;
}

/* RFC 4787, REQ-3 and REQ-4: the same port if the block has it, or else, of UDP, one that is odd or even alike. */
static int choose_port(struct nat_table *table, uint32_t block, const struct nat_end *end, bool alike)
{
	const uint64_t *bits = nat_port_bits(table, block, end->protocol);
	const uint32_t same = end->port - first_port(table, block);
	const uint64_t odd = 0xaaaaaaaaaaaaaaaa;

	if (end->port >= first_port(table, block) && same < table->settings->block &&
	    !(bits[same / NAT_WORD] >> same % NAT_WORD & 1))
		return (int)same;
	if (!alike || end->protocol != IPPROTO_UDP)
		return free_port(table, bits, UINT64_MAX);
	return free_port(table, bits, end->port & 1 ? odd : ~odd);
}

/* A port of one of the host's blocks, or of another one that it takes.  Returns whether there is one. */
bool nat_port_take(struct nat_table *table, uint32_t host_number, struct nat_mapping *mapping)
{
	const struct nat_host *host = &table->hosts[host_number];
	uint32_t block = 0;
	int port = -1;

	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned i = 0; i < host->nb_blocks && port < 0; i++) {
			block = host->blocks[i];
			port = choose_port(table, block, &mapping->inside, pass == 0);
		}
	/* Forwards may have all ports of a block. */
	while (port < 0 && (block = take_block(table, host_number)) != 0) {
		port = choose_port(table, block, &mapping->inside, true);
		if (port < 0)
			port = choose_port(table, block, &mapping->inside, false);
	}
	if (port < 0)
		return false;
	if (table->blocks[block].used++ == 0)
		leave_list(table, &table->blocks[block]);
	nat_port_bits(table, block, mapping->inside.protocol)[port / NAT_WORD] |= UINT64_C(1) << port % NAT_WORD;
	mapping->block = block;
	mapping->host = host_number;
	mapping->outside = pool_address(table, host->pool_number);
	mapping->outside_port = (uint16_t)(first_port(table, block) + (uint32_t)port);
	return true;
}

/* Have a free block for a host, or a new one, of this address inside; the lock is held.  Returns the host; 0: it cannot
 * have it. */
static uint32_t take_this_block(struct nat_table *table, uint32_t address, uint32_t tags, uint32_t number,
				uint64_t time)
{
	const uint32_t pool_number = nat_block_pool(table, number);
	uint32_t host = nat_host_find(table, address, tags);

	if (table->pool->owners[number] != 0 || (host == 0 && table->free_host == 0))
		return 0;
	if (host != 0 &&
	    (table->hosts[host].pool_number != pool_number || table->hosts[host].nb_blocks == table->settings->blocks))
		return 0;
	if (host == 0)
		host = make_host(table, address, tags, pool_number);
	leave_free(table, pool_number, number);
	own_block(table, host, number, NAT_EVENT_kept, time);
	wait_in_list(table, number, 0);
	return host;
}

/* The host that has a block, which it may take now; 0: it is another one's. */
static uint32_t host_of_block(struct nat_table *table, uint32_t address, uint32_t tags, uint32_t number)
{
	const uint8_t owner = atomic_load_explicit(&table->pool->owners[number], memory_order_relaxed);
	uint64_t time;
	uint32_t host;

	if (owner != 0)
		return owner == table->number + 1 ? table->blocks[number].host : 0;
	time = seconds();
	rte_spinlock_lock(&table->pool->lock);
	host = take_this_block(table, address, tags, number, time);
	rte_spinlock_unlock(&table->pool->lock);
	return host;
}

bool nat_port_take_this(struct nat_table *table, uint32_t address, uint32_t tags, struct nat_mapping *mapping)
{
	const int64_t pool_number = nat_prefixes_find(&table->settings->pool, mapping->outside);
	const uint32_t dynamic = mapping->outside_port - NAT_FIRST_PORT, size = table->settings->block;
	const uint32_t each = table->pool->blocks_each;
	uint32_t number, host;
	uint64_t *word, bit;

	if (pool_number < 0 || mapping->outside_port < NAT_FIRST_PORT || dynamic / size >= each)
		return false;
	number = (uint32_t)pool_number * each + dynamic / size + 1;
	word = nat_port_bits(table, number, mapping->inside.protocol) + dynamic % size / NAT_WORD;
	bit = UINT64_C(1) << dynamic % NAT_WORD;
	/* Where nobody has the block, that is a forward's. */
	if (*(const volatile uint64_t *)word & bit)
		return false;
	host = host_of_block(table, address, tags, number);
	if (host == 0 || host != nat_host_find(table, address, tags))
		return false;
	if (table->blocks[number].used++ == 0)
		leave_list(table, &table->blocks[number]);
	*word |= bit;
	mapping->block = number;
	mapping->host = host;
	return true;
}

void nat_port_free(struct nat_table *table, const struct nat_mapping *mapping, uint32_t tick)
{
	const uint32_t port = mapping->outside_port - first_port(table, mapping->block);

	nat_port_bits(table, mapping->block, mapping->inside.protocol)[port / NAT_WORD] &= ~(UINT64_C(1)
											     << port % NAT_WORD);
	if (--table->blocks[mapping->block].used == 0)
		wait_in_list(table, mapping->block, tick);
}
