/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages that are there are mapped before a worker touches them, which would cost it a fault each.  A guest that was up
 * before the switch, or has used its memory for a while, has many.  A thread maps them, a few at a time, and is there
 * only while there is something to map; holes stay holes, and what is in swap stays there.
 *
 * For the thread that speaks the protocol, which waits for none of it.
 */
#ifndef TAILRACE_PORT_GUEST_POPULATE_H
#define TAILRACE_PORT_GUEST_POPULATE_H

#include <stddef.h>

/* Of this mapping, which guest_pages_register() has, with pages of so many bytes. */
void guest_populate(void *base, size_t length, size_t page);

/* Unmap it, populated or not; if some pages of it are being mapped just now, right after that. */
void guest_populate_unmap(void *base, size_t length, size_t page);

#endif
