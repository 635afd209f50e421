/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <linux/virtio_net.h>
#include <rte_arp.h>
#include <rte_common.h>

#include "port/guest_announce.h"

enum { RING = 4, HEADER = sizeof(struct virtio_net_hdr_mrg_rxbuf) };

struct guest_announcement {
	struct virtqueue ring;
	struct virtqueue *behind; /* the guest's */
	uint64_t notifications;	  /* of this thread, which are nobody's business */
	struct guest_memory memory;
	struct vring_desc desc[RING];
	/* With room for the event indexes behind their rings. */
	_Alignas(struct vring_avail) uint8_t avail[sizeof(struct vring_avail) + (RING + 1) * sizeof(uint16_t)];
	_Alignas(struct vring_used)
		uint8_t used[sizeof(struct vring_used) + RING * sizeof(struct vring_used_elem) + sizeof(uint16_t)];
	uint8_t bytes[HEADER + GUEST_ANNOUNCE_FRAME];
};

static struct vring_avail *avail(struct guest_announcement *announcement)
{
	return (struct vring_avail *)(void *)announcement->avail;
}

static struct vring_used *used(const struct guest_announcement *announcement)
{
	return (struct vring_used *)(uintptr_t)announcement->used;
}

void guest_announce_frame(const struct rte_ether_addr *mac, uint8_t frame[GUEST_ANNOUNCE_FRAME])
{
	struct rte_ether_hdr head = {.src_addr = *mac, .ether_type = RTE_BE16(RTE_ETHER_TYPE_RARP)};
	const struct rte_arp_hdr body = {
		.arp_hardware = RTE_BE16(RTE_ARP_HRD_ETHER),
		.arp_protocol = RTE_BE16(RTE_ETHER_TYPE_IPV4),
		.arp_hlen = RTE_ETHER_ADDR_LEN,
		.arp_plen = sizeof(uint32_t),
		.arp_opcode = RTE_BE16(RTE_ARP_OP_REVREQUEST),
		.arp_data = {.arp_sha = *mac, .arp_tha = *mac},
	};

	memset(&head.dst_addr, 0xff, sizeof(head.dst_addr));
	memset(frame, 0, GUEST_ANNOUNCE_FRAME);
	memcpy(frame, &head, sizeof(head));
	memcpy(frame + sizeof(head), &body, sizeof(body));
}

struct guest_announcement *guest_announce_before(struct virtqueue *ring, const struct rte_ether_addr *mac, int wake_fd)
{
	struct guest_announcement *made = aligned_alloc(RTE_CACHE_LINE_SIZE,
							RTE_CACHE_LINE_ROUNDUP(sizeof(struct guest_announcement)));

	if (made == NULL)
		return NULL;
	memset(made, 0, sizeof(*made));
	made->behind = ring;
	made->memory.nb_regions = 1;
	made->memory.regions[0] = (struct guest_region){.size = sizeof(made->bytes), .host = made->bytes};
	guest_announce_frame(mac, made->bytes + HEADER);
	made->desc[0].len = sizeof(made->bytes);
	avail(made)->idx = 1;
	made->ring = (struct virtqueue){
		.desc = made->desc,
		.avail = avail(made),
		.used = used(made),
		.memory = &made->memory,
		.counters = ring->counters,
		.notifications = &made->notifications,
		.call_fd = wake_fd,
		.size = RING,
		.header = HEADER,
		.asleep = true,
		.report = ring->report,
	};
	vring_start(&made->ring);
	return made;
}

struct virtqueue *guest_announce_ring(struct guest_announcement *announcement)
{
	return &announcement->ring;
}

bool guest_announce_taken(const struct guest_announcement *announcement)
{
	return __atomic_load_n(&used(announcement)->idx, __ATOMIC_ACQUIRE) == 1;
}

struct virtqueue *guest_announce_end(struct guest_announcement *announcement)
{
	struct virtqueue *ring = announcement->behind;

	free(announcement);
	return ring;
}
