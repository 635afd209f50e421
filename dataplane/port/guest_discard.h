/* SPDX-License-Identifier: Apache-2.0
 *
 * Throwing away what a guest sends by a ring that no worker has, because it is not enabled.
 */
#ifndef TAILRACE_PORT_GUEST_DISCARD_H
#define TAILRACE_PORT_GUEST_DISCARD_H

#include "port/guest_backend.h"

/*
 * Now and then: throw away what the guest has sent by rings that it has started and not enabled, as the specification
 * wants it ("Ring states").  Returns whether there may soon be more of it.
 */
bool guest_discard(struct guest_backend *backend, uint64_t now);

#endif
