/* SPDX-License-Identifier: Apache-2.0
 *
 * Checksums that are changed by what changes in what they are of (RFC 1624).  Inlined, because a frame of a known
 * connection costs little besides.  Pure; any thread.
 */
#ifndef TAILRACE_FUNCTIONS_CHECKSUM_H
#define TAILRACE_FUNCTIONS_CHECKSUM_H

#include <stdint.h>
#include <string.h>

/* Ones' complement sums of words as they lie; RFC 1624, equation 3: of each ~m and m'. */
static inline uint32_t checksum_replace16(uint8_t *at, uint16_t value)
{
	uint16_t before;

	memcpy(&before, at, sizeof(before));
	memcpy(at, &value, sizeof(value));
	return (uint16_t)~before + (uint32_t)value;
}

static inline uint32_t checksum_replace32(uint8_t *at, uint32_t value)
{
	uint32_t before;

	memcpy(&before, at, sizeof(before));
	memcpy(at, &value, sizeof(value));
	before = ~before;
	return (before & UINT16_MAX) + (before >> 16) + (value & UINT16_MAX) + (value >> 16);
}

/* Returns what that changes in a sum that the checksum is part of. */
static inline uint32_t checksum_adjust(uint8_t *at, uint32_t change)
{
	uint32_t sum;
	uint16_t checksum;

	memcpy(&checksum, at, sizeof(checksum));
	sum = (uint16_t)~checksum + (change >> 16) + (change & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum += sum >> 16;
	return checksum_replace16(at, (uint16_t)~sum);
}

/* RFC 768: a checksum of 0 is none, and a sum of 0 is sent as its complement. */
static inline uint32_t checksum_adjust_udp(uint8_t *at, uint32_t change)
{
	static const uint8_t none[sizeof(uint16_t)];
	uint32_t changed;

	if (memcmp(at, none, sizeof(none)) == 0)
		return 0;
	changed = checksum_adjust(at, change);
	if (memcmp(at, none, sizeof(none)) == 0)
		changed += checksum_replace16(at, UINT16_MAX);
	return changed;
}

#endif
