/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/guest_listen.h"
#include "port/guest_protocol.h"
#include "port/guest_socket.h"

int guest_open(struct guest *guest, const struct guest_options *options, char *why, unsigned why_size)
{
	struct guest_backend *backend;
	int rc = -EINVAL;

	if (options->queues < 1 || options->queues > GUEST_PAIRS) {
		snprintf(why, why_size, "queues: expected 1 to %d, got %u", GUEST_PAIRS, options->queues);
		return rc;
	}
	if (options->path[0] == '\0' || strlen(options->path) >= sizeof(guest->path)) {
		snprintf(why, why_size, "socket %s: the path is longer than %zu bytes", options->path,
			 sizeof(guest->path) - 1);
		return options->path[0] == '\0' ? rc : -ENAMETOOLONG;
	}
	backend = calloc(1, sizeof(*backend));
	if (backend != NULL)
		backend->closer = guest_closer_open();
	if (backend == NULL || backend->closer == NULL) {
		snprintf(why, why_size, "out of memory");
		free(backend);
		return -ENOMEM;
	}
	pthread_mutex_init(&backend->facts_lock, NULL);
	memset(guest, 0, sizeof(*guest));
	strcpy(guest->path, options->path);
	guest->client = options->client;
	guest->pairs = options->queues;
	guest->backend = backend;
	backend->guest = guest;
	snprintf(backend->name, sizeof(backend->name), "%s", options->name);
	memcpy(backend->counters, options->counters, sizeof(backend->counters));
	backend->memory.most = options->memory != 0 ? options->memory : guest_memory_unless_said();
	backend->offered = guest_message_features(options->queues, options->offloads);
	backend->epoll_fd = backend->wake_fd = -1;
	backend->listener = backend->connection = -1;
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		atomic_store(&guest->kick[i], -1);
		backend->rings[i].kick_fd = backend->rings[i].call_fd = -1;
	}
	if (!options->client) {
		backend->listener = guest_listen(options, why, why_size);
		if (backend->listener < 0) {
			rc = backend->listener;
			goto free_backend;
		}
	}
	rc = guest_socket_adopt(backend);
	if (rc != 0) {
		snprintf(why, why_size, "socket %s cannot be served: %s", options->path, strerror(-rc));
		goto close_listener;
	}
	return 0;

close_listener:
	if (backend->listener >= 0) {
		close(backend->listener);
		unlink(options->path);
	}
free_backend:
	guest_closer_close(backend->closer);
	free(backend);
	guest->backend = NULL;
	return rc;
}

void guest_close(struct guest *guest)
{
	if (guest->backend == NULL)
		return;
	guest_socket_abandon(guest->backend);
	if (!guest->client)
		unlink(guest->path);
	free(guest->backend);
	guest->backend = NULL;
}

enum guest_state guest_state(const struct guest *guest, enum vring_fault *fault)
{
	*fault = VRING_FAULT_NONE;
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		enum vring_fault found = __atomic_load_n(&guest->fault[i], __ATOMIC_RELAXED);

		if (found != VRING_FAULT_NONE)
			*fault = found;
	}
	if (*fault != VRING_FAULT_NONE)
		return GUEST_QUARANTINED;
	return guest_pairs(guest) > 0 ? GUEST_UP : GUEST_WAITING;
}

bool guest_takes(const struct guest *guest)
{
	const unsigned pairs = guest_pairs(guest);

	for (unsigned pair = 0; pair < pairs; pair++)
		if (__atomic_load_n(&guest->fault[GUEST_VRINGS_EACH * pair + GUEST_RECEIVES], __ATOMIC_RELAXED) ==
		    VRING_FAULT_NONE)
			return true;
	return false;
}

unsigned guest_pairs(const struct guest *guest)
{
	return atomic_load(&guest->used);
}

struct guest_facts guest_facts(const struct guest *guest)
{
	struct guest_facts facts;

	pthread_mutex_lock(&guest->backend->facts_lock);
	facts = guest->backend->facts;
	pthread_mutex_unlock(&guest->backend->facts_lock);
	return facts;
}

uint64_t guest_memory_most(const struct guest *guest)
{
	return guest->backend->memory.most;
}
