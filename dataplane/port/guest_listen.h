/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket at which a port listens for its front end.
 */
#ifndef TAILRACE_PORT_GUEST_LISTEN_H
#define TAILRACE_PORT_GUEST_LISTEN_H

#include "port/guest.h"

/* Make the listening socket's file.  Returns the socket, or a negative errno after writing why. */
int guest_listen(const struct guest_options *options, char *why, unsigned why_size);

#endif
