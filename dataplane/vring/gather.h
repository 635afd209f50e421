/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the frames of a burst lie: each in one buffer, in one descriptor, in one region.  With AVX-512 four descriptors
 * are checked and translated at once, by the same rules.
 */
#ifndef TAILRACE_VRING_GATHER_H
#define TAILRACE_VRING_GATHER_H

#include <stddef.h>
#include <string.h>

#include <rte_prefetch.h>

#include "vring/vring.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

struct vring_buffer {
	uint8_t *at;
	uint32_t length; /* bytes, network header included */
	uint16_t id;
};

/* A private copy of the first descriptor at `ahead`.  Returns false when its chain's head is malformed. */
static __rte_always_inline bool vring_first(const struct virtqueue *vring, const bool packed, uint16_t ahead,
					    struct vring_descriptor *desc, uint16_t *id)
{
	if (packed) {
		bool wrap;

		*desc = vring_descriptor(true, vring_packed_slot(vring, ahead, &wrap));
		*id = desc->link;
		return true;
	}
	*id = vring_head(vring, ahead);
	if (unlikely(*id >= vring->size))
		return false;
	*desc = vring_descriptor(false, &vring->desc[*id]);
	return true;
}

/* The flags of a plain buffer, one to be written to or one with a frame in it, and the bytes that it has at least. */
static __rte_always_inline uint16_t vring_plain_flags(const bool write)
{
	return write ? VRING_DESC_F_WRITE : 0;
}

static __rte_always_inline uint32_t vring_plain_least(const struct virtqueue *vring, const bool write)
{
	return write ? 0 : vring->header + VRING_FRAME_MIN;
}

#if defined(__AVX512F__)

/*
 * A descriptor is two words: the address, and the length with the flags.  Of each, `bits` matter, they are `base` at
 * least, and at most `room` more; what they are more, and `origin`, make the words of a struct vring_buffer.
 */
struct vring_four {
	__m512i bits, base, room, origin;
};

static __rte_always_inline __m512i vring_words(uint64_t first, uint64_t second)
{
	return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)second, (long long)first));
}

/* Is there memory that the rules below can be about? */
static __rte_always_inline bool vring_four_possible(const struct guest_memory *memory)
{
	return memory->nb_regions > 0 && memory->regions[0].size >= VRING_RUN_FRAME;
}

/*
 * The rules for buffers in the largest region, which is the guest's packet memory.  A buffer that may be as long as a
 * plain frame can be and still end in the region needs no other check of its end; the few at the very end of it, and
 * longer ones, are looked at one by one.
 */
static __rte_always_inline struct vring_four vring_four_rules(const struct virtqueue *vring, const bool packed,
							      const bool write)
{
	const struct guest_region *region = &vring->memory->regions[0];
	const uint32_t least = vring_plain_least(vring, write);
	const uint64_t flags = vring_plain_flags(write);
	const uint64_t owned = ~(uint64_t)(VRING_FLAG_AVAILABLE | VRING_FLAG_USED) << 48;

	return (struct vring_four){
		.bits = vring_words(UINT64_MAX, (packed ? owned : (uint64_t)UINT16_MAX << 32) | UINT32_MAX),
		.base = vring_words(region->guest, flags << (packed ? 48 : 32) | least),
		.room = vring_words(region->size - VRING_RUN_FRAME, VRING_RUN_FRAME - least),
		.origin = vring_words((uintptr_t)region->host, least),
	};
}

/*
 * A private copy of the four descriptors at `ahead`, and their buffers' ids where a struct vring_buffer has them.
 * Returns false when the ring begins anew among them, or a head lies outside the table.
 */
static __rte_always_inline bool vring_load_four(const struct virtqueue *vring, const bool packed, uint16_t ahead,
						__m512i *words, __m512i *ids)
{
	const uint64_t each = 0x0001000100010001, steps = 0x0003000200010000;
	const unsigned sum = vring->index + ahead;
	const unsigned slot = packed ? sum - (sum < vring->size ? 0 : vring->size) : sum & (vring->size - 1u);
	uint64_t heads;

	if (unlikely(slot + 4 > vring->size))
		return false;
	if (packed) {
		*words = _mm512_loadu_si512(&vring->packed_desc[slot]);
		__asm__ volatile("" : "+v"(*words));
		*ids = _mm512_and_si512(*words, vring_words(0, (uint64_t)UINT16_MAX << 32));
		return true;
	}
	memcpy(&heads, &vring->avail->ring[slot], sizeof(heads));
	/* From here on it is these copies that are checked and used: the guest may write to the rings meanwhile. */
	__asm__ volatile("" : "+r"(heads));
	/* The size is a power of two. */
	if (unlikely((heads & (UINT16_MAX & ~(vring->size - 1u)) * each) != 0))
		return false;
	if (likely(heads == (uint16_t)heads * each + steps)) { /* one after the other, as most drivers use them */
		*words = _mm512_loadu_si512(&vring->desc[(uint16_t)heads]);
	} else {
		const struct vring_desc *desc = vring->desc;

		*words = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i_u *)&desc[(uint16_t)heads]));
		*words = _mm512_inserti32x4(*words, _mm_loadu_si128((const __m128i_u *)&desc[(uint16_t)(heads >> 16)]),
					    1);
		*words = _mm512_inserti32x4(*words, _mm_loadu_si128((const __m128i_u *)&desc[(uint16_t)(heads >> 32)]),
					    2);
		*words = _mm512_inserti32x4(*words, _mm_loadu_si128((const __m128i_u *)&desc[heads >> 48]), 3);
	}
	__asm__ volatile("" : "+v"(*words));
	/* One head to each second word: the last 16 bits once those before are shifted out. */
	*ids = _mm512_maskz_srlv_epi64(0xaa, _mm512_set1_epi64((long long)heads),
				       _mm512_set_epi64(48, 0, 32, 0, 16, 0, 0, 0));
	*ids = _mm512_slli_epi64(_mm512_and_si512(*ids, _mm512_set1_epi64(UINT16_MAX)), 32);
	return true;
}

/* Gather the four buffers at `ahead`.  Returns false, and has done nothing, when not all of them are plain. */
static __rte_always_inline bool vring_gather_four(const struct virtqueue *vring, const bool packed, uint16_t ahead,
						  const struct vring_four *four, struct vring_buffer *buffers)
{
	__m512i words, ids, more;

	if (unlikely(!vring_load_four(vring, packed, ahead, &words, &ids)))
		return false;
	more = _mm512_sub_epi64(_mm512_and_si512(words, four->bits), four->base);
	if (unlikely(_mm512_cmpgt_epu64_mask(more, four->room) != 0))
		return false;
	more = _mm512_or_si512(_mm512_add_epi64(more, four->origin), ids);
	_Static_assert(sizeof(struct vring_buffer) == 16 && offsetof(struct vring_buffer, length) == 8 &&
			       offsetof(struct vring_buffer, id) == 12,
		       "four buffers are what is stored here");
	/* In halves: what is read of a store of 64 bytes before it is in the cache waits for that, but for its first
	 * half. */
	_mm256_storeu_si256((__m256i_u *)&buffers[0], _mm512_castsi512_si256(more));
	_mm256_storeu_si256((__m256i_u *)&buffers[2], _mm512_extracti64x4_epi64(more, 1));
	return true;
}

#endif

/* Ask for the first line of what will be read, or for those of what will be compared and written. */
static __rte_always_inline void vring_prefetch_buffer(const struct virtqueue *vring, const bool write,
						      const struct vring_buffer *buffer)
{
	if (!write) {
		rte_prefetch0(buffer->at + vring->header);
		return;
	}
	rte_prefetch0(buffer->at); /* vring_write_header() */
	__builtin_prefetch(buffer->at + vring->header, 1);
}

/*
 * Look up to `count` buffers from the guest, starting `ahead` slots after the ring's position, all of which are
 * available: frames that it sends, or, to `write` to, what it offers to receive into.  Returns how many were plain; the
 * next, if any, is for vring_walk().
 */
static __rte_always_inline unsigned vring_gather(const struct virtqueue *vring, const bool packed, const bool write,
						 uint16_t ahead, unsigned count, struct vring_buffer *buffers)
{
	const uint32_t least = vring_plain_least(vring, write), most = write ? UINT32_MAX : VRING_RUN_FRAME;
	unsigned i = 0;
#if defined(__AVX512F__)
	const struct vring_four four = vring_four_rules(vring, packed, write);
	unsigned next = vring_four_possible(vring->memory) ? 0 : count; /* where four are tried at once */
#endif

	while (i < count) {
		struct vring_descriptor desc;
		uint16_t id;
		uint8_t *at;

#if defined(__AVX512F__)
		if (i == next && i + 4 <= count) {
			next = i + 4;
			if (likely(vring_gather_four(vring, packed, ahead + i, &four, &buffers[i]))) {
				for (; i < next; i++)
					vring_prefetch_buffer(vring, write, &buffers[i]);
				continue;
			}
		}
#endif
		if (unlikely(!vring_first(vring, packed, ahead + i, &desc, &id)))
			break;
		if (unlikely(desc.flags != vring_plain_flags(write) || desc.length < least || desc.length > most))
			break;
		at = guest_memory_at(vring->memory, desc.address, desc.length);
		if (unlikely(at == NULL))
			break;
		buffers[i] = (struct vring_buffer){at, desc.length, id};
		vring_prefetch_buffer(vring, write, &buffers[i++]);
	}
	return i;
}

/* Buffers that were gathered, by their slots after the ring's position. */
struct vring_run {
	uint16_t begin, end;
	struct vring_buffer buffers[VRING_BURST];
};

/*
 * The buffers from slot `ahead` on, up to `count`; as vring_gather().  Those that were gathered before are not looked
 * up again: after a frame that takes a slower way the run goes on behind it.  Returns how many are at `*buffers`.
 */
static __rte_always_inline unsigned vring_run(const struct virtqueue *vring, const bool packed, const bool write,
					      struct vring_run *run, uint16_t ahead, unsigned count,
					      const struct vring_buffer **buffers)
{
	if (likely(ahead >= run->end)) {
		run->begin = ahead;
		run->end = ahead + vring_gather(vring, packed, write, ahead, count, run->buffers);
	}
	*buffers = &run->buffers[ahead - run->begin];
	return RTE_MIN(count, (unsigned)(run->end - ahead));
}

#endif
