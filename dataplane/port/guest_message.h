/* SPDX-License-Identifier: Apache-2.0
 *
 * The format of the vhost-user protocol's messages (vhost-user specification, "Header" and "Payload").
 */
#ifndef TAILRACE_PORT_GUEST_MESSAGE_H
#define TAILRACE_PORT_GUEST_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "port/guest_memory.h"

enum {
	GUEST_MESSAGE_HEADER = 12,
	GUEST_MESSAGE_FDS = 8,	   /* that come with one message */
	GUEST_MESSAGE_REGIONS = 8, /* in one SET_MEM_TABLE */
};

/* A bit that virtio's headers do not have (vhost-user specification, "Feature negotiation"). */
enum { GUEST_F_PROTOCOL_FEATURES = 30 };

enum { GUEST_FLAG_VERSION = 1, GUEST_FLAG_VERSION_MASK = 3, GUEST_FLAG_REPLY = 1 << 2, GUEST_FLAG_NEED_REPLY = 1 << 3 };

struct guest_message {
	uint32_t request;
	uint32_t flags;
	uint32_t size; /* bytes of payload */
	union {
		uint64_t number;
		struct {
			uint32_t index, number;
		} ring;
		struct {
			uint32_t index, flags;
			uint64_t desc, used, avail, log;
		} address;
		struct {
			uint64_t size, offset;
		} log;
		struct {
			uint32_t count, padding;
			struct guest_region_message regions[GUEST_MESSAGE_REGIONS];
		} table;
		struct {
			uint64_t padding;
			struct guest_region_message region;
		} slot;
	} __attribute__((packed));

	/* Not sent as bytes. */
	unsigned nb_fds;
	int fds[GUEST_MESSAGE_FDS];
};

enum { GUEST_MESSAGE_PAYLOAD = offsetof(struct guest_message, nb_fds) - GUEST_MESSAGE_HEADER };

#endif
