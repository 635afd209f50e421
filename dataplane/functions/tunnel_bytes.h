/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing headers of a tunnel's frames, wherever they lie.
 */
#ifndef TAILRACE_FUNCTIONS_TUNNEL_BYTES_H
#define TAILRACE_FUNCTIONS_TUNNEL_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

enum { TUNNEL_TYPE = 12, TUNNEL_TAG = 4 }; /* where Ethernet's type is, and the bytes of a VLAN tag */

/* What others may change meanwhile is read once. */
static inline uint64_t word(const uint8_t *bytes)
{
	typedef uint64_t there __attribute__((aligned(1), may_alias));

	return *(const volatile there *)bytes;
}

static inline uint16_t half(const uint8_t *bytes)
{
	typedef uint16_t there __attribute__((aligned(1), may_alias));

	return *(const volatile there *)bytes;
}

static inline bool is_tag(uint16_t type)
{
	return type == RTE_BE16(RTE_ETHER_TYPE_VLAN) || type == RTE_BE16(RTE_ETHER_TYPE_QINQ);
}

static inline void put16(uint8_t *at, uint16_t value)
{
	memcpy(at, &value, sizeof(value));
}

#endif
