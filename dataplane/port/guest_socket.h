/* SPDX-License-Identifier: Apache-2.0
 *
 * The sockets of all guest ports, and the one thread that reads them.  It never waits for a front end: a message that
 * comes in pieces is put together as they arrive, an answer that a front end does not take ends the connection, and
 * after each message the next socket has its turn.
 */
#ifndef TAILRACE_PORT_GUEST_SOCKET_H
#define TAILRACE_PORT_GUEST_SOCKET_H

#include "port/guest_backend.h"

/*
 * Make the listening socket's file.  Returns the socket, or a negative errno after writing why.
 */
int guest_socket_listen(const struct guest_options *options, char *why, unsigned why_size);

/* Have the thread, which is started with the first port, serve the port.  Returns 0 or a negative errno. */
int guest_socket_adopt(struct guest_backend *backend);

/*
 * Of the thread: no longer look at this socket of the port's, end it, and have it closed, with what lies in it unread.
 */
void guest_socket_end(struct guest_backend *backend, int fd);

/* Have the thread let go of the port: disconnected, its rings withdrawn, its memory unmapped. */
void guest_socket_abandon(struct guest_backend *backend);

#endif
