/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of descriptors that a front end has sent and the switch does not keep, and of its connection, in which such
 * may still lie.  close() waits for what was made of the descriptor: for the time that a socket is told to linger, or
 * for an answer of a file system that runs in user space, which may be the guest's own.  So a thread of the port's own
 * closes them, and who speaks the protocol goes on.  It is there only while there is something to close.
 */
#ifndef TAILRACE_PORT_GUEST_CLOSER_H
#define TAILRACE_PORT_GUEST_CLOSER_H

#include <stdbool.h>

struct guest_closer;

enum {
	GUEST_CLOSER_MOST = 64, /* descriptors of which close() has not returned: with more, no message is taken */
	/* With more, no connection is: what is closed to make room for it must not count against its first message. */
	GUEST_CLOSER_FEW = 32,
	GUEST_CLOSER_ROOM = 512 /* what one message, the connection and the listener can add is less than this */
};

/* Returns NULL when there is no memory. */
struct guest_closer *guest_closer_open(void);

/* Close it, at some time. */
void guest_closer_give(struct guest_closer *closer, int fd);

/* Are more than so many still to be closed? */
bool guest_closer_over(struct guest_closer *closer, unsigned most);

/* Nothing more will be given; what was is still closed. */
void guest_closer_close(struct guest_closer *closer);

#endif
