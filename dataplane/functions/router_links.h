/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel's interfaces that a router knows: its ports' TAPs, and VLANs of these.  Part of router_kernel.h, by the
 * same thread.
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_LINKS_H
#define TAILRACE_FUNCTIONS_ROUTER_LINKS_H

#include "router_kernel.h"

/* The link that has this index; ROUTER_LINKS: none. */
unsigned router_link_of(const struct router_kernel *kernel, unsigned interface);

/* Take a message that an interface is there, is otherwise than before, or is gone. */
void router_link_take(struct router_kernel *kernel, const struct nlmsghdr *message);

/* What a message says; 0 if that is no number of 32 bits. */
uint32_t router_number(const struct nlattr *attribute);

#endif
