/* SPDX-License-Identifier: Apache-2.0
 *
 * What a NAT hands over beside its connections: the address and port outside that an inside end has, and the station
 * that it is behind.  The new instance has them as they were, with the blocks that they are in, or refuses them.
 */
#ifndef TAILRACE_FUNCTIONS_NAT_HANDOVER_H
#define TAILRACE_FUNCTIONS_NAT_HANDOVER_H

#include "handover.h"
#include "nat_pass.h"

extern struct handover nat_handover;

#endif
