/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame by which a network device of a machine raises an interrupt: the receiver waits for it in user space.
 */
#ifndef TAILRACE_INTERRUPTS_FRAME_H
#define TAILRACE_INTERRUPTS_FRAME_H

#include <stdint.h>

enum {
	INTERRUPT_FRAME_TYPE = 0x88b5, /* IEEE 802, "local experimental EtherType 1" */
	INTERRUPT_FRAME_BYTES = 60,    /* the shortest of Ethernet */
};

struct interrupt_frame {
	uint8_t to[6], from[6];
	uint16_t type;	 /* big endian */
	uint64_t number; /* of the interrupt, as the page has it */
	uint8_t rest[INTERRUPT_FRAME_BYTES - 22];
} __attribute__((packed));

_Static_assert(sizeof(struct interrupt_frame) == INTERRUPT_FRAME_BYTES, "no gaps");

#endif
