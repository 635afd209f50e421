/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking callers from a listening socket, also when no file descriptor is left: a caller that cannot be taken would
 * stay at the head of the queue, and poll() would report it for ever.
 */
#ifndef TAILRACE_COMMON_ACCEPT_H
#define TAILRACE_COMMON_ACCEPT_H

/* A descriptor kept to be given up when there is no other.  Returns it, or -errno. */
int accept_spare(void);

/*
 * The next caller's socket, which does not block and is not inherited.  Returns it or -errno; after -EMFILE and -ENFILE
 * the caller has been turned away by means of the spare one.
 */
int accept_next(int listener, int *spare);

#endif
