/* SPDX-License-Identifier: Apache-2.0
 *
 * What a balancer hands over beside its connections: which back end has each, and that this one is up, with its MAC
 * address.  A new instance cannot find that out by itself: no frame reaches it before the connections did.  It finds
 * the back end among its own by service, address and port, whatever its number was.
 */
#ifndef TAILRACE_FUNCTIONS_BALANCER_HANDOVER_H
#define TAILRACE_FUNCTIONS_BALANCER_HANDOVER_H

#include "handover.h"

extern struct handover balancer_handover;

#endif
