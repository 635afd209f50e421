/* SPDX-License-Identifier: Apache-2.0
 *
 * The page and the interrupt as file descriptors, over a Unix socket: as QEMU's ivshmem-doorbell device takes them, so
 * that they become a region and an MSI-X vector of a machine's, and as a process takes them.
 *
 * Source: docs/specs/ivshmem-spec.txt of QEMU, "Client-Server protocol", version 0.
 */
#ifndef TAILRACE_INTERRUPTS_DOORBELL_H
#define TAILRACE_INTERRUPTS_DOORBELL_H

struct doorbell {
	int page; /* memory */
	int call; /* an eventfd: to write to it raises the interrupt */
};

/* Make both.  Returns 0 or -errno. */
int doorbell_make(struct doorbell *doorbell);

/* Listen for clients at `path`, which who may enter its folder can connect to.  Returns the socket or -errno. */
int doorbell_listen(const char *path);

/* Give both to a client, whose interrupt it is.  Returns 0 or -errno; never waits. */
int doorbell_give(const struct doorbell *doorbell, int client);

/* Take both from who listens at `path`.  Returns the connection, which lasts as long as they do, or -errno. */
int doorbell_take(const char *path, struct doorbell *doorbell);

#endif
