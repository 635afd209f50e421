/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashing of a few words: one multiplication to 128 bits for each two, as wyhash does.  Every bit of the words reaches
 * every bit of the result.  The constants are fixed, so that a flow has the same hash after a restart; where a guest
 * must not be able to choose what collides, the caller adds a secret.
 */
#ifndef TAILRACE_STEER_HASH_H
#define TAILRACE_STEER_HASH_H

#include <stdint.h>

#define HASH_0 0xa0761d6478bd642fULL
#define HASH_1 0xe7037ed1a0b428dbULL
#define HASH_2 0x8ebc6af09c88c6e3ULL
#define HASH_3 0x589965cc75374cc3ULL
#define HASH_4 0x1d8e4e27c47d124fULL
#define HASH_5 0xeb44accab455d165ULL

static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
