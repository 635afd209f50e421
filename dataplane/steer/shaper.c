/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>

#include <rte_common.h>

#include "common/copy.h"
#include "common/mapping.h"
#include "steer/rate.h"
#include "steer/shaper.h"
#include "vring/segments.h"

enum {
	/* The shortest frames take more than half of their room for what stands in front of them. */
	MEMORY = 2 * SHAPER_MOST_BYTES,
	ALIGN = 16,
	CUT_PART = 4, /* of the queue that a segment may take whole */
};

/* In front of each frame, which never goes round the end of the memory. */
struct entry {
	uint32_t size; /* of all of it; 0: the next one is at the beginning */
	uint32_t length;
	struct virtio_net_hdr offload; /* what is left to do */
};

enum { ENTRY = RTE_ALIGN_MUL_CEIL(sizeof(struct entry), ALIGN) };

_Static_assert(ALIGN >= sizeof(uint32_t), "there is always room for a size of 0");

bool shaper_open(struct shaper *shaper)
{
	*shaper = (struct shaper){0};
	shaper->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shaper->memory == MAP_FAILED)
		shaper->memory = NULL;
	return shaper->memory != NULL;
}

void shaper_close(struct shaper *shaper)
{
	if (shaper->memory != NULL)
		mapping_end(shaper->memory, MEMORY, MAPPING_PAGE);
	shaper->memory = NULL;
}

static uint32_t worth(uint64_t rate, uint64_t latency_us, uint64_t part, uint64_t whole, uint32_t least, uint32_t most)
{
	const unsigned __int128 all = (unsigned __int128)rate * latency_us / 1000000 * part / whole;

	return all < least ? least : all > most ? most : (uint32_t)all;
}

struct shaper_limits shaper_limits_of(uint64_t bits, uint64_t packets, uint64_t latency_us, uint64_t part,
				      uint64_t whole)
{
	return (struct shaper_limits){
		.bytes = bits == 0 ? SHAPER_MOST_BYTES
				   : worth(bits / 8, latency_us, part, whole, SHAPER_LEAST_BYTES, SHAPER_MOST_BYTES),
		.packets = packets == 0 ? UINT32_MAX
					: worth(packets, latency_us, part, whole, SHAPER_LEAST_PACKETS, UINT32_MAX),
	};
}

bool shaper_cuts(const struct shaper *shaper, const struct packet *packet)
{
	return packet->offload.gso_type != VIRTIO_NET_HDR_GSO_NONE &&
	       packet->length > shaper->limits.bytes / CUT_PART &&
	       offload_segments(&packet->offload, packet->length) <= OFFLOAD_SEGMENTS;
}

/* Where an entry of this size goes; NULL: nowhere.  An empty queue begins at the beginning, whose pages are there. */
static struct entry *place(struct shaper *shaper, uint32_t size)
{
	if (shaper->packets == 0)
		shaper->head = shaper->tail = 0;
	else if (shaper->tail <= shaper->head)
		return shaper->head - shaper->tail >= size ? (struct entry *)(shaper->memory + shaper->tail) : NULL;
	if (MEMORY - shaper->tail < size) {
		if (shaper->head < size)
			return NULL;
		if (shaper->tail < MEMORY)
			((struct entry *)(shaper->memory + shaper->tail))->size = 0;
		shaper->tail = 0;
	}
	return (struct entry *)(shaper->memory + shaper->tail);
}

static bool append(struct shaper *shaper, const struct vring_piece *pieces, unsigned count, uint32_t length,
		   const struct virtio_net_hdr *offload)
{
	const uint32_t size = RTE_ALIGN_MUL_CEIL(ENTRY + length, ALIGN);
	struct entry *entry = place(shaper, size);
	uint8_t *at;

	if (entry == NULL)
		return false;
	*entry = (struct entry){.size = size, .length = length, .offload = *offload};
	at = (uint8_t *)entry + ENTRY;
	for (unsigned i = 0; i < count; i++) {
		copy_frame(at, pieces[i].at, pieces[i].length);
		at += pieces[i].length;
	}
	shaper->tail += size;
	shaper->packets++;
	shaper->bytes += length + RATE_FCS;
	return true;
}

/* Where the queue ends now, to go back to. */
struct end {
	uint32_t tail, packets, bytes;
};

static bool append_segments(struct shaper *shaper, const struct packet *packet)
{
	static const struct virtio_net_hdr nothing;
	const struct end before = {shaper->tail, shaper->packets, shaper->bytes};
	struct segments cut;
	unsigned count;

	segments_begin(&cut, packet);
	while ((count = segments_next(&cut)) > 0) {
		if (append(shaper, cut.pieces, count, cut.length, &nothing))
			continue;
		shaper->tail = before.tail;
		shaper->packets = before.packets;
		shaper->bytes = before.bytes;
		return false;
	}
	return true;
}

/* A frame that is longer than all of the queue waits alone. */
static bool has_room(const struct shaper *shaper, uint32_t packets, uint32_t bytes)
{
	const struct shaper_limits *limits = &shaper->limits;

	return (shaper->packets == 0 && limits->bytes > 0) ||
	       ((uint64_t)shaper->packets + packets <= limits->packets &&
		(uint64_t)shaper->bytes + bytes + packets * RATE_FCS <= limits->bytes);
}

bool shaper_put(struct shaper *shaper, struct packet *packet)
{
	packet->pieces[0] = (struct vring_piece){packet->head, packet->head_length};
	if (shaper_cuts(shaper, packet)) {
		const uint32_t segments = offload_segments(&packet->offload, packet->length);

		return has_room(shaper, segments, packet->length + (segments - 1) * packet->offload.hdr_len) &&
		       append_segments(shaper, packet);
	}
	return has_room(shaper, 1, packet->length) &&
	       append(shaper, packet->pieces, packet->nb_pieces, packet->length, &packet->offload);
}

/* The oldest entry, or the one behind an entry. */
static struct entry *entry_at(const struct shaper *shaper, uint32_t at)
{
	struct entry *entry = (struct entry *)(shaper->memory + at);

	return at < MEMORY && entry->size > 0 ? entry : (struct entry *)shaper->memory;
}

static uint32_t behind(const struct shaper *shaper, const struct entry *entry)
{
	return (uint32_t)((const uint8_t *)entry - shaper->memory) + entry->size;
}

void shaper_read(const struct shaper *shaper, struct burst *burst)
{
	const unsigned count = RTE_MIN(shaper->packets, (uint32_t)VRING_BURST);
	uint32_t at = shaper->head;

	burst_start(burst);
	while (burst->count < count && burst->bytes < BURST_BYTES) {
		struct packet *packet = &burst->packets[burst->count++];
		const struct entry *entry = entry_at(shaper, at);
		uint8_t *frame = (uint8_t *)entry + ENTRY;
		const uint32_t head = RTE_MIN(entry->length, (uint32_t)UINT16_MAX);

		packet->head = frame;
		packet->head_length = (uint16_t)head;
		packet->length = packet->received = entry->length;
		packet->mbuf = NULL;
		packet->delivered = false;
		packet->offload = entry->offload;
		packet->pieces = &burst->pieces[burst->nb_pieces];
		packet->pieces[1] = (struct vring_piece){frame + head, entry->length - head};
		packet->nb_pieces = entry->length > head ? 2 : 1;
		burst->nb_pieces += 2;
		burst->bytes += entry->length;
		at = behind(shaper, entry);
	}
	burst->taken = burst->count;
}

void shaper_remove(struct shaper *shaper, unsigned count)
{
	while (count-- > 0) {
		const struct entry *entry = entry_at(shaper, shaper->head);

		shaper->bytes -= entry->length + RATE_FCS;
		shaper->packets--;
		shaper->head = behind(shaper, entry);
	}
}

unsigned shaper_clear(struct shaper *shaper)
{
	const unsigned count = shaper->packets;

	shaper->packets = shaper->bytes = 0;
	shaper->full_since = 0;
	return count;
}
