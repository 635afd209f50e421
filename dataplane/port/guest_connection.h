/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection to one front end: messages in pieces, descriptors that come with them, answers, and its end.  Of the
 * thread that serves all sockets (guest_socket.h), which is never held up by any of it.
 */
#ifndef TAILRACE_PORT_GUEST_CONNECTION_H
#define TAILRACE_PORT_GUEST_CONNECTION_H

#include "port/guest_backend.h"

/* Read what is there of a message; once it is whole, act on it and answer. */
void guest_read_message(struct guest_backend *backend);

/* The front end has broken a rule. */
void guest_cut_off(struct guest_backend *backend, const char *why);

/* No longer look at this socket of the port's, end it, and have it closed, with what lies in it unread. */
void guest_close_socket(struct guest_backend *backend, int fd);

/* End the connection, if there is one: nothing of what was said holds any more. */
void guest_disconnect(struct guest_backend *backend);

#endif
