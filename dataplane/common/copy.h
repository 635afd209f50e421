/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy of a frame.  With AVX-512 a frame of up to 64 bytes is one masked load and one masked store; no
 * branch depends on its exact length.  A long one goes four lines at a step.  Source and destination may have any
 * alignment; bytes past `length` are neither read nor written, since they belong to somebody else.
 */
#ifndef TAILRACE_COMMON_COPY_H
#define TAILRACE_COMMON_COPY_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512BW__) && !defined(__SANITIZE_ADDRESS__)
#include <immintrin.h>

static inline void copy_frame(uint8_t *to, const uint8_t *from, uint32_t length)
{
	for (; length > 256; to += 256, from += 256, length -= 256) {
		const __m512i first = _mm512_loadu_si512(from), second = _mm512_loadu_si512(from + 64);
		const __m512i third = _mm512_loadu_si512(from + 128), fourth = _mm512_loadu_si512(from + 192);

		_mm512_storeu_si512(to, first);
		_mm512_storeu_si512(to + 64, second);
		_mm512_storeu_si512(to + 128, third);
		_mm512_storeu_si512(to + 192, fourth);
	}
	while (length > 64) {
		_mm512_storeu_si512(to, _mm512_loadu_si512(from));
		to += 64;
		from += 64;
		length -= 64;
	}
	if (length > 0) {
		__mmask64 mask = UINT64_MAX >> (64 - length);

		_mm512_mask_storeu_epi8(to, mask, _mm512_maskz_loadu_epi8(mask, from));
	}
}
#else
#include <rte_memcpy.h>

static inline void copy_frame(uint8_t *to, const uint8_t *from, uint32_t length)
{
	rte_memcpy(to, from, length);
}
#endif

#endif
