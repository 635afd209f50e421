/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_ethdev.h>

#include "device_packet.h"

/* What this thread is opening. */
static _Thread_local struct {
	struct packet_ring *rings;
	unsigned most, count;
	int fd; /* of the ring that is to be mapped next */
	struct tpacket_req layout;
} opening;

void packet_note_rings(struct packet_ring *rings, unsigned most)
{
	opening.rings = rings;
	opening.most = most;
	opening.count = 0;
	opening.fd = -1;
}

unsigned packet_noted(void)
{
	return opening.count;
}

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	uint32_t fanout;

	if (opening.rings != NULL && level == SOL_PACKET && name == PACKET_RX_RING && size == sizeof(opening.layout)) {
		memcpy(&opening.layout, value, sizeof(opening.layout));
		opening.fd = fd;
	}
	if (opening.rings != NULL && level == SOL_PACKET && name == PACKET_FANOUT && size == sizeof(fanout)) {
		memcpy(&fanout, value, sizeof(fanout));
		fanout &= ~((uint32_t)PACKET_FANOUT_FLAG_DEFRAG << 16);
		value = &fanout;
	}
	return (int)syscall(SYS_setsockopt, fd, level, name, value, size);
}

/* The receive ring comes first in what is mapped. */
__attribute__((visibility("default"))) void *mmap64(void *address, size_t length, int protection, int flags, int fd,
						    off64_t offset)
{
	void *mapped = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);

	if (opening.rings != NULL && fd >= 0 && fd == opening.fd && mapped != MAP_FAILED &&
	    opening.count < opening.most) {
		opening.rings[opening.count++] = (struct packet_ring){
			.frames = mapped,
			.frame_size = opening.layout.tp_frame_size,
			.nb_frames = opening.layout.tp_frame_nr,
			.fd = fd,
		};
		opening.fd = -1;
	}
	return mapped;
}

uint64_t packet_lost(struct packet_ring *ring)
{
	struct tpacket_stats lately; /* since it was last read */
	socklen_t size = sizeof(lately);

	if (getsockopt(ring->fd, SOL_PACKET, PACKET_STATISTICS, &lately, &size) == 0)
		ring->lost += lately.tp_drops;
	return ring->lost;
}

/* Put the tag in where the kernel cut it off: in front of the type.  Behind the slot's header there is room for it. */
static void put_tag_in(struct tpacket2_hdr *header)
{
	const __be16 tag[2] = {htons(header->tp_vlan_tpid), htons(header->tp_vlan_tci)};
	uint8_t *frame = (uint8_t *)header + header->tp_mac;

	memmove(frame - sizeof(tag), frame, 2 * ETH_ALEN);
	memcpy(frame - sizeof(tag) + 2 * ETH_ALEN, tag, sizeof(tag));
	header->tp_mac -= sizeof(tag);
	header->tp_snaplen += sizeof(tag);
	header->tp_status &= ~(uint32_t)TP_STATUS_VLAN_VALID;
}

uint16_t packet_mend(const struct packet_ring *ring, uint16_t limit)
{
	const uint32_t other = TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID;
	uint32_t place = ring->next;
	uint16_t ready;

	for (ready = 0; ready < limit; ready++) {
		struct tpacket2_hdr *header = (void *)(ring->frames + (size_t)place * ring->frame_size);
		const uint32_t status = __atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE);

		if (!(status & TP_STATUS_USER))
			break;
		if ((status & other) == other && header->tp_vlan_tpid != ETH_P_8021Q &&
		    header->tp_mac >= sizeof(*header) + sizeof(uint32_t) && header->tp_snaplen >= ETH_HLEN &&
		    header->tp_mac + header->tp_snaplen <= ring->frame_size)
			put_tag_in(header);
		if (++place == ring->nb_frames)
			place = 0;
	}
	return ready;
}

uint16_t packet_receive(struct packet_ring *ring, uint16_t port, uint16_t queue, struct rte_mbuf **mbufs,
			uint16_t limit)
{
	const uint16_t ready = packet_mend(ring, limit);
	const uint16_t received = ready > 0 ? rte_eth_rx_burst(port, queue, mbufs, ready) : 0;

	ring->next = (ring->next + received) % ring->nb_frames;
	return received;
}
