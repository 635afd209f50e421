/* SPDX-License-Identifier: Apache-2.0
 *
 * What each message of the vhost-user protocol does (vhost-user specification, "Front-end message types"), and which
 * rings must be taken from the workers for it.
 */
#ifndef TAILRACE_PORT_GUEST_PROTOCOL_H
#define TAILRACE_PORT_GUEST_PROTOCOL_H

#include "port/guest_backend.h"

enum guest_answer {
	GUEST_ANSWER_DONE,
	GUEST_ANSWER_REPLY, /* `message` holds the reply's payload and its size */
	GUEST_ANSWER_REFUSED,
};

/*
 * Act on a whole message.  Descriptors that it keeps are taken out of the message; the others are the caller's to
 * close.
 */
enum guest_answer guest_message_handle(struct guest_backend *backend, struct guest_message *message);

/* What a port with these options offers. */
uint64_t guest_message_features(unsigned pairs, bool offloads);

#endif
