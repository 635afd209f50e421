/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks of ports that inside hosts have, and the ports in these: the lower half of nat_table.h.
 */
#ifndef TAILRACE_FUNCTIONS_NAT_BLOCKS_H
#define TAILRACE_FUNCTIONS_NAT_BLOCKS_H

#include "nat_table.h"

enum { NAT_PROTOCOLS = 3, NAT_WORD = 64 /* ports in a word of bits */ };

/* The number of an inside host; 0: it has no block. */
uint32_t nat_host_find(const struct nat_table *table, uint32_t address, uint32_t tags);

/* A host that has none yet: with a block at an address that has some left; 0: none has. */
uint32_t nat_host_make(struct nat_table *table, uint32_t address, uint32_t tags);

/* The number in the pool of the address that a block is at. */
uint32_t nat_block_pool(const struct nat_table *table, uint32_t block);

/* Which of a block's ports are taken. */
uint64_t *nat_port_bits(const struct nat_table *table, uint32_t block, uint8_t protocol);

/* A port of one of the host's blocks, or of another one that it takes.  Returns whether there is one. */
bool nat_port_take(struct nat_table *table, uint32_t host, struct nat_mapping *mapping);

/* That very address and port of the pool, in the mapping, for an inside host, as another instance has given them.
 * Returns whether it can have them. */
bool nat_port_take_this(struct nat_table *table, uint32_t address, uint32_t tags, struct nat_mapping *mapping);

void nat_port_free(struct nat_table *table, const struct nat_mapping *mapping, uint32_t tick);

#endif
