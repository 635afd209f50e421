/* SPDX-License-Identifier: Apache-2.0
 *
 * Two simulated guests, one that sends and one that receives, and what a test says about their frames.
 * Include cmocka's headers first.
 */
#ifndef TAILRACE_TEST_RING_PAIR_H
#define TAILRACE_TEST_RING_PAIR_H

#include <stdio.h>

#include "test/simulated_guest.h"

enum { HEADER = 12 };
#define FRAMES	(GUEST_BASE + 0x4000)
#define BUFFERS (GUEST_BASE + 0x4000)

struct pair {
	struct simulated_guest from, to;
};

/* Which layouts the rings have; see choose_layouts(). */
static bool from_packed, to_packed;

static inline int start(void **state)
{
	struct pair *pair = aligned_alloc(_Alignof(struct pair), sizeof(*pair));

	guest_start(&pair->from, from_packed, true);
	guest_start(&pair->to, to_packed, true);
	*state = pair;
	return 0;
}

/* A pair with rings of another size, of which the receiving guest takes merged buffers or does not. */
static inline struct pair *sized_pair(uint16_t from, uint16_t to, bool mergeable)
{
	struct pair *pair = aligned_alloc(_Alignof(struct pair), sizeof(*pair));

	guest_prepare(&pair->from, from_packed, from);
	guest_prepare(&pair->to, to_packed, to);
	pair->to.ring.mergeable = mergeable;
	vring_start(&pair->from.ring);
	vring_start(&pair->to.ring);
	return pair;
}

static inline int end(void **state)
{
	struct pair *pair = *state;

	guest_end(&pair->from);
	guest_end(&pair->to);
	free(pair);
	return 0;
}

/* Fill guest memory with a pattern that depends on the place and on a seed. */
static inline void pattern(struct simulated_guest *guest, uint64_t address, uint32_t length, uint8_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		*guest_at(guest, address + i) = (uint8_t)(seed + i * 7);
}

static inline void expect_pattern(struct simulated_guest *guest, uint64_t address, uint32_t skip, uint32_t length,
				  uint8_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		assert_int_equal(*guest_at(guest, address + i), (uint8_t)(seed + (skip + i) * 7));
}

/* Offer a frame of `length` bytes in one descriptor at `address`, network header before it. */
static inline void send_plain(struct simulated_guest *guest, uint64_t address, uint32_t length, uint8_t seed)
{
	memset(guest_at(guest, address), 0xee, HEADER);
	pattern(guest, address + HEADER, length, seed);
	guest_offer(guest, guest_desc(guest, address, HEADER + length, 0));
}

static inline void offer_buffer(struct simulated_guest *guest, uint64_t address, uint32_t length)
{
	guest_offer(guest, guest_desc(guest, address, length, VRING_DESC_F_WRITE));
}

/* The guest's completion number `number` from the start on. */
static inline void expect_used(struct simulated_guest *guest, unsigned number, uint32_t id, uint32_t length)
{
	assert_true(guest_taken(guest) > number);
	assert_int_equal(guest->used[number].id, id);
	assert_int_equal(guest->used[number].length, length);
}

static inline void expect_header(struct simulated_guest *guest, uint64_t address, uint16_t buffers)
{
	static const uint8_t zero[10];

	assert_memory_equal(guest_at(guest, address), zero, 10);
	assert_int_equal(*(uint16_t *)(void *)guest_at(guest, address + 10), buffers);
}

/* Put an indirect table of `count` entries at `table`, all of the buffer in equal parts.  Returns its descriptor. */
static inline uint16_t indirect(struct simulated_guest *guest, uint64_t table, uint64_t address, uint32_t part,
				unsigned count, uint16_t flags)
{
	for (unsigned i = 0; i < count; i++) {
		const struct vring_packed_desc packed = {address + i * part, part, 0, flags};
		const struct vring_desc split = {address + i * part, part,
						 flags | (i + 1 < count ? VRING_DESC_F_NEXT : 0), i + 1};
		const uint8_t *entry = guest->ring.packed ? (const uint8_t *)&packed : (const uint8_t *)&split;

		for (unsigned byte = 0; byte < sizeof(split); byte++)
			*guest_at(guest, table + i * sizeof(split) + byte) = entry[byte];
	}
	return guest_desc(guest, table, count * sizeof(struct vring_desc), VRING_DESC_F_INDIRECT);
}

/* A program is run once for each combination: test_NAME split|packed split|packed. */
static inline void choose_layouts(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s split|packed split|packed\n", argv[0]);
		exit(2);
	}
	from_packed = strcmp(argv[1], "packed") == 0;
	to_packed = strcmp(argv[2], "packed") == 0;
}

#endif
