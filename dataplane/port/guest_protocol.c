/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <linux/vhost.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>

#include "port/guest_protocol.h"
#include "port/guest_publish.h"

/* The vhost-user specification, "Protocol features". */
enum {
	PROTOCOL_MQ = 0,
	PROTOCOL_LOG_SHMFD = 1,
	PROTOCOL_RARP = 2,
	PROTOCOL_REPLY_ACK = 3,
	PROTOCOL_NET_MTU = 4,
	PROTOCOL_RESET_DEVICE = 13,
	PROTOCOL_CONFIGURE_MEM_SLOTS = 15,
	PROTOCOL_STATUS = 16,
};

/*
 * INFLIGHT_SHMFD is not offered: it is for back ends that complete out of order.  Ours completes in order, so that a
 * ring says by itself where it stands (guest_ring.c), and QEMU does not offer it to network devices anyway.
 */
static const uint64_t protocol_features = 1ULL << PROTOCOL_MQ | 1ULL << PROTOCOL_LOG_SHMFD | 1ULL << PROTOCOL_RARP |
					  1ULL << PROTOCOL_REPLY_ACK | 1ULL << PROTOCOL_NET_MTU |
					  1ULL << PROTOCOL_RESET_DEVICE | 1ULL << PROTOCOL_CONFIGURE_MEM_SLOTS |
					  1ULL << PROTOCOL_STATUS;

enum {
	RING_INDEX_MASK = 0xff, /* of SET_VRING_KICK, CALL and ERR */
	RING_NO_FD = 1 << 8,
	RING_LOGGED = 1 << 0, /* of SET_VRING_ADDR */
	RING_MOST = 32768,    /* descriptors */
	MTU_LEAST = 68,
	MTU_MOST = 65535,
};

uint64_t guest_message_features(unsigned pairs, bool offloads)
{
	/* No IOMMU_PLATFORM: guest-physical addresses are what is translated. */
	uint64_t features = 1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_F_ANY_LAYOUT | 1ULL << VIRTIO_NET_F_MRG_RXBUF |
			    1ULL << VIRTIO_RING_F_INDIRECT_DESC | 1ULL << VIRTIO_RING_F_EVENT_IDX |
			    1ULL << VIRTIO_F_IN_ORDER | 1ULL << VIRTIO_F_RING_PACKED | 1ULL << VIRTIO_NET_F_CTRL_VQ |
			    1ULL << VIRTIO_NET_F_CTRL_RX | 1ULL << VIRTIO_NET_F_GUEST_ANNOUNCE |
			    1ULL << VIRTIO_NET_F_MTU | 1ULL << VHOST_F_LOG_ALL | 1ULL << GUEST_F_PROTOCOL_FEATURES;

	if (pairs > 1)
		features |= 1ULL << VIRTIO_NET_F_MQ;
	if (offloads)
		features |= 1ULL << VIRTIO_NET_F_CSUM | 1ULL << VIRTIO_NET_F_GUEST_CSUM |
			    1ULL << VIRTIO_NET_F_GUEST_TSO4 | 1ULL << VIRTIO_NET_F_GUEST_TSO6 |
			    1ULL << VIRTIO_NET_F_GUEST_ECN | 1ULL << VIRTIO_NET_F_HOST_TSO4 |
			    1ULL << VIRTIO_NET_F_HOST_TSO6 | 1ULL << VIRTIO_NET_F_HOST_ECN;
	return features;
}

static enum guest_answer reply(struct guest_message *message, uint64_t number)
{
	message->number = number;
	message->size = sizeof(message->number);
	return GUEST_ANSWER_REPLY;
}

/* ------- the device ------- */

static enum guest_answer get_features(struct guest_backend *backend, struct guest_message *message)
{
	return reply(message, backend->offered);
}

static enum guest_answer set_features(struct guest_backend *backend, struct guest_message *message)
{
	if (message->number & ~backend->offered)
		return GUEST_ANSWER_REFUSED;
	backend->features = message->number;
	return GUEST_ANSWER_DONE;
}

static enum guest_answer get_protocol_features(struct guest_backend *backend, struct guest_message *message)
{
	return reply(message, protocol_features);
}

static enum guest_answer set_protocol_features(struct guest_backend *backend, struct guest_message *message)
{
	if (message->number & ~protocol_features)
		return GUEST_ANSWER_REFUSED;
	backend->protocol_features = message->number;
	return GUEST_ANSWER_DONE;
}

static enum guest_answer set_owner(struct guest_backend *backend, struct guest_message *message)
{
	return GUEST_ANSWER_DONE;
}

/* RESET_OWNER is what older front ends say when they mean RESET_DEVICE. */
static enum guest_answer reset(struct guest_backend *backend, struct guest_message *message)
{
	for (unsigned ring = 0; ring < GUEST_VRINGS; ring++)
		guest_ring_stop(backend, ring);
	backend->status = 0;
	return GUEST_ANSWER_DONE;
}

static enum guest_answer get_queue_num(struct guest_backend *backend, struct guest_message *message)
{
	return reply(message, backend->guest->pairs);
}

/* The front end gives the guest its MTU; we carry what fits its buffers. */
static enum guest_answer set_mtu(struct guest_backend *backend, struct guest_message *message)
{
	return message->number >= MTU_LEAST && message->number <= MTU_MOST ? GUEST_ANSWER_DONE : GUEST_ANSWER_REFUSED;
}

/* The guest has moved here and cannot say so itself; its address is the first six bytes. */
static enum guest_answer send_rarp(struct guest_backend *backend, struct guest_message *message)
{
	struct rte_ether_addr mac;

	if (!(backend->protocol_features & 1ULL << PROTOCOL_RARP))
		return GUEST_ANSWER_REFUSED;
	memcpy(&mac, &message->number, sizeof(mac));
	guest_announce(backend, &mac);
	return GUEST_ANSWER_DONE;
}

static enum guest_answer get_status(struct guest_backend *backend, struct guest_message *message)
{
	return reply(message, backend->status);
}

static enum guest_answer set_status(struct guest_backend *backend, struct guest_message *message)
{
	if (message->number > UINT8_MAX)
		return GUEST_ANSWER_REFUSED;
	if (message->number == 0)
		return reset(backend, message);
	backend->status = message->number;
	return GUEST_ANSWER_DONE;
}

/* ------- memory ------- */

/* The answer to a message that shares memory, from what became of it: 0 or a negative errno. */
static enum guest_answer shared(struct guest_backend *backend, int rc)
{
	if (rc == -E2BIG)
		guest_complain(backend,
			       "refused memory: it shares more than the %" PRIu64
			       " MiB that the port allows, which its `memory` "
			       "says (unless it does, half of the machine's)",
			       backend->memory.most >> 20);
	return rc == 0 ? GUEST_ANSWER_DONE : GUEST_ANSWER_REFUSED;
}

static enum guest_answer set_mem_table(struct guest_backend *backend, struct guest_message *message)
{
	struct guest_region_message regions[GUEST_MESSAGE_REGIONS];
	const unsigned count = message->table.count;

	if (count > GUEST_MESSAGE_REGIONS || message->nb_fds != count ||
	    message->size != 2 * sizeof(uint32_t) + count * sizeof(regions[0]))
		return GUEST_ANSWER_REFUSED;
	memcpy(regions, message->table.regions, sizeof(regions));
	return shared(backend, guest_memory_set(&backend->memory, regions, message->fds, count));
}

static enum guest_answer get_max_mem_slots(struct guest_backend *backend, struct guest_message *message)
{
	return reply(message, GUEST_REGIONS);
}

static enum guest_answer add_mem_region(struct guest_backend *backend, struct guest_message *message)
{
	struct guest_region_message region = message->slot.region;

	return shared(backend, guest_memory_add(&backend->memory, &region, message->fds[0]));
}

static enum guest_answer remove_mem_region(struct guest_backend *backend, struct guest_message *message)
{
	struct guest_region_message region = message->slot.region;

	return guest_memory_remove(&backend->memory, &region) == 0 ? GUEST_ANSWER_DONE : GUEST_ANSWER_REFUSED;
}

static enum guest_answer set_log_base(struct guest_backend *backend, struct guest_message *message)
{
	if (guest_memory_log(&backend->memory, message->log.size, message->log.offset, message->fds[0]) != 0)
		return GUEST_ANSWER_REFUSED;
	return reply(message, 0);
}

/* A descriptor that we have no use for: to be notified of a full log. */
static enum guest_answer ignore(struct guest_backend *backend, struct guest_message *message)
{
	return GUEST_ANSWER_DONE;
}

/* ------- rings ------- */

static enum guest_answer set_vring_num(struct guest_backend *backend, struct guest_message *message)
{
	/* Whether it must be a power of two depends on features that may follow: guest_ring_snapshot() checks it. */
	if (message->ring.number == 0 || message->ring.number > RING_MOST)
		return GUEST_ANSWER_REFUSED;
	backend->rings[message->ring.index].size = message->ring.number;
	return GUEST_ANSWER_DONE;
}

static enum guest_answer set_vring_addr(struct guest_backend *backend, struct guest_message *message)
{
	struct guest_ring *ring = &backend->rings[message->address.index];

	ring->desc = message->address.desc;
	ring->avail = message->address.avail;
	ring->used = message->address.used;
	ring->log = message->address.log;
	ring->logged = message->address.flags & RING_LOGGED;
	ring->addressed = true;
	return GUEST_ANSWER_DONE;
}

static enum guest_answer set_vring_base(struct guest_backend *backend, struct guest_message *message)
{
	/* Of a packed ring the upper half is the used index; DPDK's front end leaves it out, and the lower will do. */
	backend->rings[message->ring.index].base = message->ring.number;
	return GUEST_ANSWER_DONE;
}

/*
 * Of a packed ring the upper half should be the used index and its wrap counter, which are the same as the lower's. But
 * QEMU 7.2, among others, takes the wrap counter for a part of that index and ends, with its machine, at the next thing
 * that it throws away (virtio_queue_packed_set_last_avail_idx()); of an index 0 it only throws away wrongly.
 */
static enum guest_answer get_vring_base(struct guest_backend *backend, struct guest_message *message)
{
	message->ring.number = guest_ring_report(backend, message->ring.index);
	return GUEST_ANSWER_REPLY;
}

static enum guest_answer set_vring_enable(struct guest_backend *backend, struct guest_message *message)
{
	backend->rings[message->ring.index].enabled = message->ring.number != 0;
	backend->rings[message->ring.index].idle_since = 0;
	return GUEST_ANSWER_DONE;
}

/* Of a descriptor that is no eventfd only whoever asks is notified; without it the ring stops and says why. */
static enum guest_answer no_eventfd(const struct guest_message *message)
{
	return message->flags & GUEST_FLAG_NEED_REPLY ? GUEST_ANSWER_REFUSED : GUEST_ANSWER_DONE;
}

/*
 * Take the descriptor that comes with the message, which must be there exactly if the number says so.  One that is no
 * eventfd is not kept: it might be the front end's own end of the connection, which would then never be closed.
 */
static enum guest_answer take_eventfd(struct guest_message *message, int *fd, bool *refused)
{
	if (message->nb_fds != (message->number & RING_NO_FD ? 0 : 1))
		return GUEST_ANSWER_REFUSED;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	*refused = message->nb_fds == 1 && guest_eventfd(message->fds[0]) < 0;
	if (message->nb_fds == 1 && !*refused) {
		*fd = message->fds[0];
		message->fds[0] = -1;
	}
	return *refused ? no_eventfd(message) : GUEST_ANSWER_DONE;
}

static enum guest_answer set_vring_kick(struct guest_backend *backend, struct guest_message *message)
{
	struct guest_ring *ring = &backend->rings[message->number & RING_INDEX_MASK];
	enum guest_answer answer = take_eventfd(message, &ring->kick_fd, &ring->kick_refused);

	ring->started |= answer == GUEST_ANSWER_DONE || ring->kick_refused;
	return answer;
}

static enum guest_answer set_vring_call(struct guest_backend *backend, struct guest_message *message)
{
	struct guest_ring *ring = &backend->rings[message->number & RING_INDEX_MASK];

	return take_eventfd(message, &ring->call_fd, &ring->call_refused);
}

/* There is nothing that we would tell by it. */
static enum guest_answer set_vring_err(struct guest_backend *backend, struct guest_message *message)
{
	return message->nb_fds == 1 && guest_eventfd(message->fds[0]) < 0 ? no_eventfd(message) : GUEST_ANSWER_DONE;
}

/* ------- all ------- */

enum withdraws {
	NOTHING,	/* the message only asks, or what it says matters to no ring that is served */
	ONE_RING,	/* that which `ring` names */
	ONE_RING_BY_FD, /* that which `number` names */
	FIRST_SENDER,	/* that by which the guest sends on its first queue */
	ALL_RINGS,	/* whenever memory changes, too: guest_memory.h */
};

static const struct message_kind {
	enum guest_answer (*handle)(struct guest_backend *backend, struct guest_message *message);
	enum withdraws withdraws;
	unsigned size; /* bytes of payload; of SET_MEM_TABLE the least */
	unsigned fds_least, fds_most;
} kinds[] = {
	[1] = {get_features, NOTHING, 0, 0, 0},
	[2] = {set_features, ALL_RINGS, 8, 0, 0},
	[3] = {set_owner, NOTHING, 0, 0, 0},
	[4] = {reset, ALL_RINGS, 0, 0, 0},
	[5] = {set_mem_table, ALL_RINGS, 8, 0, GUEST_MESSAGE_REGIONS},
	[6] = {set_log_base, ALL_RINGS, 16, 1, 1},
	[7] = {ignore, NOTHING, 0, 1, 1}, /* SET_LOG_FD */
	[8] = {set_vring_num, ONE_RING, 8, 0, 0},
	[9] = {set_vring_addr, ONE_RING, 40, 0, 0},
	[10] = {set_vring_base, ONE_RING, 8, 0, 0},
	[11] = {get_vring_base, ONE_RING, 8, 0, 0},
	[12] = {set_vring_kick, ONE_RING_BY_FD, 8, 0, 1},
	[13] = {set_vring_call, ONE_RING_BY_FD, 8, 0, 1},
	[14] = {set_vring_err, ONE_RING_BY_FD, 8, 0, 1},
	[15] = {get_protocol_features, NOTHING, 0, 0, 0},
	[16] = {set_protocol_features, NOTHING, 8, 0, 0},
	[17] = {get_queue_num, NOTHING, 0, 0, 0},
	[18] = {set_vring_enable, ONE_RING, 8, 0, 0},
	[19] = {send_rarp, FIRST_SENDER, 8, 0, 0},
	[20] = {set_mtu, NOTHING, 8, 0, 0},
	[34] = {reset, ALL_RINGS, 0, 0, 0}, /* RESET_DEVICE */
	[36] = {get_max_mem_slots, NOTHING, 0, 0, 0},
	[37] = {add_mem_region, ALL_RINGS, 40, 1, 1},
	[38] = {remove_mem_region, ALL_RINGS, 40, 0, 1}, /* QEMU before 5.2 sends the file along */
	[39] = {set_status, ALL_RINGS, 8, 0, 0},
	[40] = {get_status, NOTHING, 0, 0, 0},
};

enum { SET_MEM_TABLE = 5 };

enum guest_answer guest_message_handle(struct guest_backend *backend, struct guest_message *message)
{
	const struct message_kind *kind =
		&kinds[message->request < sizeof(kinds) / sizeof(kinds[0]) ? message->request : 0];
	const bool table = message->request == SET_MEM_TABLE;
	enum guest_answer answer;
	uint32_t index = 0, rings = 0;

	if (kind->handle == NULL || (table ? message->size < kind->size : message->size != kind->size) ||
	    message->nb_fds < kind->fds_least || message->nb_fds > kind->fds_most)
		return GUEST_ANSWER_REFUSED;
	if (kind->withdraws == ONE_RING)
		index = message->ring.index;
	else if (kind->withdraws == ONE_RING_BY_FD)
		index = message->number & RING_INDEX_MASK;
	else if (kind->withdraws == FIRST_SENDER)
		index = GUEST_SENDS;
	if (index >= GUEST_VRINGS_EACH * backend->guest->pairs)
		return GUEST_ANSWER_REFUSED;

	if (kind->withdraws == ALL_RINGS)
		rings = GUEST_ALL_RINGS;
	else if (kind->withdraws != NOTHING)
		rings = 1U << index;
	if (rings == 0)
		return kind->handle(backend, message);
	atomic_store(&backend->guest->paused, true);
	guest_withdraw(backend, rings);
	answer = kind->handle(backend, message);
	guest_publish(backend);
	atomic_store(&backend->guest->paused, false);
	return answer;
}
