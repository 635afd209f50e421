/* SPDX-License-Identifier: Apache-2.0
 *
 * The sockets of all guest ports, and the one thread that reads them.  It never waits for a front end: a message that
 * comes in pieces is put together as they arrive, an answer that a front end does not take ends the connection, and
 * after each message the next socket has its turn.
 */
#ifndef TAILRACE_PORT_GUEST_SOCKET_H
#define TAILRACE_PORT_GUEST_SOCKET_H

#include "port/guest_backend.h"

/* Have the thread, which is started with the first port, serve the port.  Returns 0 or a negative errno. */
int guest_socket_adopt(struct guest_backend *backend);

/* Have the thread let go of the port: disconnected, its rings withdrawn, its memory unmapped. */
void guest_socket_abandon(struct guest_backend *backend);

#endif
