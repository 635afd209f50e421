/* SPDX-License-Identifier: Apache-2.0
 *
 * The common case, many frames at a time: each frame lies in one buffer, in one descriptor, in one region.
 * Gathering first and copying afterwards lets the cache misses of a whole burst overlap; on a busy switch
 * every ring, descriptor and frame was last written by another core, and these misses are what a hop costs.
 * What is not the common case ends the run, and vring_walk() takes it from there, one frame at a time.
 */
#ifndef TAILRACE_VRING_BURST_H
#define TAILRACE_VRING_BURST_H

#include <assert.h>

#include <linux/virtio_net.h>

#include "common/copy.h"
#include "vring/gather.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are put together as they lie");

/*
 * Ask for the descriptors of the next `count` chains and for the slots where their completions will be written, so
 * that the misses run beside each other instead of one after the other.  Of a packed ring they have just been read.
 * Most drivers use descriptors one after the other: where the last chain's is as far from the first's as it is in the
 * ring, those between are taken to be, and each line is asked for once.
 */
static __rte_always_inline void vring_prefetch(const struct virtqueue *vring, const bool packed, unsigned count,
					       unsigned completions)
{
	const unsigned mask = vring->size - 1u;
	unsigned head;

	if (packed || count == 0)
		return;
	head = vring_head(vring, 0);
	if (likely(vring_head(vring, count - 1) == ((head + count - 1) & mask))) {
		for (unsigned i = 0; i < count; i += RTE_CACHE_LINE_SIZE / sizeof(struct vring_desc))
			rte_prefetch0(&vring->desc[(head + i) & mask]);
		rte_prefetch0(&vring->desc[(head + count - 1) & mask]);
	} else {
		for (unsigned i = 0; i < count; i++)
			rte_prefetch0(&vring->desc[vring_head(vring, i)]);
	}
	for (unsigned i = 0; i < completions; i += RTE_CACHE_LINE_SIZE / sizeof(struct vring_used_elem))
		__builtin_prefetch(&vring->used->ring[(vring->index + i) & mask], 1);
}

#if defined(__AVX512F__) && defined(__AVX512VL__)
/* The used elements of two chains.  Read as they were gathered: 32 bytes at a time. */
static __rte_always_inline __m128i vring_used_two(const struct vring_buffer *chains, const struct vring_buffer *frames,
						  uint32_t more)
{
	const __m256i ids = _mm256_loadu_si256((const __m256i_u *)chains);
	const __m128i only = _mm_set1_epi64x(frames != NULL ? (int64_t)(UINT64_MAX << 32 | UINT16_MAX) : UINT16_MAX);
	const __m256i lengths = frames != NULL ? _mm256_loadu_si256((const __m256i_u *)frames) : ids;
	/* The fourth word of a buffer is its id, the third its length. */
	const __m256i lanes = _mm256_setr_epi32(3, 8 + 2, 7, 8 + 6, 0, 0, 0, 0);
	const __m128i used = _mm256_castsi256_si128(_mm256_permutex2var_epi32(ids, lanes, lengths));

	_Static_assert(sizeof(struct vring_used_elem) == 8, "the id, and the length");
	return _mm_add_epi32(_mm_and_si128(used, only), _mm_set1_epi64x((int64_t)((uint64_t)more << 32)));
}
#endif

/*
 * Note a run of chains as done, the first of them `ahead` slots after the ring's position.  The length written to each
 * is its frame's and `more`; without `frames` nothing was.  Stores leave a core in their order, and those of the frames
 * wait for the receiver's lines: the fewer come behind them, the further the core gets meanwhile.  So four are one
 * store.
 */
static __rte_always_inline void vring_complete_run(struct virtqueue *vring, const bool packed, uint16_t ahead,
						   const struct vring_buffer *chains, const struct vring_buffer *frames,
						   uint32_t more, unsigned count)
{
	unsigned i = 0;

#if defined(__AVX512F__) && defined(__AVX512VL__)
	for (; !packed && i + 4 <= count; i += 4) {
		const unsigned slot = (unsigned)(vring->index + ahead + i) & (vring->size - 1u);
		const struct vring_buffer *next = frames != NULL ? frames + i + 2 : NULL;

		if (unlikely(slot + 4 > vring->size))
			break;
		_mm256_storeu_si256(
			(__m256i_u *)&vring->used->ring[slot],
			_mm256_set_m128i(vring_used_two(chains + i + 2, next, more),
					 vring_used_two(chains + i, frames != NULL ? frames + i : NULL, more)));
	}
#endif
	for (; i < count; i++)
		vring_complete(vring, packed, ahead + i, chains[i].id, frames != NULL ? frames[i].length + more : 0);
}

/*
 * Write the network header of a frame that needs no offload and lies in one receive buffer, unless it is there already.
 * A guest that forwards uses its buffers again and leaves the header as it found it; then both cores keep the header's
 * line, and it does not move between them for each frame.
 */
static __rte_always_inline void vring_write_header(uint8_t *at, uint8_t header)
{
	uint64_t first;

	memcpy(&first, at, 8);
	if (first != 0) {
		first = 0;
		memcpy(at, &first, 8);
	}
	if (header == 12) {
		const uint32_t wanted = 1u << 16; /* no checksum offset; one buffer */
		uint32_t second;

		memcpy(&second, at + 8, 4);
		if (second != wanted)
			memcpy(at + 8, &wanted, 4);
	} else {
		memset(at + 8, 0, 2);
	}
}

/*
 * A private copy of a sender's network header: it is this that is checked and used.  In registers, as below: fields
 * that are stored one by one and loaded together wait until all have reached the cache.
 */
static __rte_always_inline struct virtio_net_hdr vring_read_offload(const uint8_t *at)
{
	uint64_t first;
	uint16_t last;

	memcpy(&first, at, sizeof(first));
	memcpy(&last, at + sizeof(first), sizeof(last));
	__asm__ volatile("" : "+r"(first), "+r"(last));
	return (struct virtio_net_hdr){
		.flags = first,
		.gso_type = first >> 8,
		.hdr_len = first >> 16,
		.gso_size = first >> 32,
		.csum_start = first >> 48,
		.csum_offset = last,
	};
}

/*
 * Write a network header that says more to the first of a frame's receive buffers, of which there is one.  The lengths
 * are constants: of one that is not the compiler makes `rep movs`, whose start costs as much as the whole hop.
 */
static __rte_always_inline void vring_write_offload(uint8_t *at, uint8_t header, const struct virtio_net_hdr *offload)
{
	const uint64_t first = offload->flags | (uint64_t)offload->gso_type << 8 | (uint64_t)offload->hdr_len << 16 |
			       (uint64_t)offload->gso_size << 32 | (uint64_t)offload->csum_start << 48;
	const uint32_t last = offload->csum_offset | 1u << 16; /* one buffer */

	memcpy(at, &first, sizeof(first));
	if (header == 12)
		memcpy(at + sizeof(first), &last, sizeof(last));
	else
		memcpy(at + sizeof(first), &last, sizeof(offload->csum_offset));
}

#endif
