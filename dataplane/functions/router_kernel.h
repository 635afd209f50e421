/* SPDX-License-Identifier: Apache-2.0
 *
 * Follows the kernel's routes and neighbours of this network namespace over netlink (RFC 3549; rtnetlink(7)), and puts
 * them into the router's table.  Called by the one thread that writes there.
 *
 * Everything is asked for once, then news are heard.  It is asked for again where news were lost (ENOBUFS), or where
 * the kernel gives none: routes go with a link or an address without a word.
 */
#ifndef TAILRACE_FUNCTIONS_ROUTER_KERNEL_H
#define TAILRACE_FUNCTIONS_ROUTER_KERNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <libmnl/libmnl.h>

#include "router_table.h"

enum { ROUTER_KERNEL_BUFFER = 64 << 10 }; /* bytes that are read at once */

struct router_kernel {
	struct mnl_socket *socket;
	unsigned interfaces[ROUTER_LINKS]; /* the index of each link: of the ports their TAPs; 0: there is none */
	unsigned asking; /* which of the things that are asked for in turn; as many as there are: none */
	uint32_t sequence;
	bool again;	/* something may be other than told */
	uint64_t asked; /* ns: when it was last asked from the beginning */
	_Atomic uint64_t nb_asked, nb_news, nb_lost;
};

/* Returns 0, or -errno after logging. */
int router_kernel_open(struct router_kernel *kernel, const unsigned interfaces[ROUTER_PORTS]);
void router_kernel_close(struct router_kernel *kernel);

/* Readable when there is news. */
int router_kernel_fd(const struct router_kernel *kernel);

/* Ask from the beginning, if that is due.  Returns ms after which it is to be called though nothing has come; -1: it
 * need not. */
int router_kernel_ask(struct router_kernel *kernel);

/* Take one buffer full of news.  Returns whether there may be more. */
bool router_kernel_read(struct router_kernel *kernel);

/* The same in two steps.  Read, in any thread: returns the size; 0: there is nothing; -1: news were lost. */
ssize_t router_kernel_receive(const struct router_kernel *kernel, uint8_t buffer[ROUTER_KERNEL_BUFFER]);
void router_kernel_take_received(struct router_kernel *kernel, const uint8_t *buffer, ssize_t size);

/* Take messages that follow each other, up to one that is not whole. */
void router_kernel_take(struct router_kernel *kernel, const void *messages, size_t size);

/* Whether all was told, once at least.  What has changed meanwhile is told again. */
bool router_kernel_complete(const struct router_kernel *kernel);

#endif
