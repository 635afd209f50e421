/* SPDX-License-Identifier: Apache-2.0
 *
 * The signature of a test frame: its last 18 bytes before the FCS, so that it fits the payload of a 64-byte
 * UDP/IPv4 frame, which has exactly 18.
 *
 *	 0  stream     u16	which stream of the run
 *	 2  sequence   u48	counts the frames of the stream
 *	 8  time       u48	the sender's TSC when it handed the frame to its port
 *	14  check      u32	CRC32C of the 14 bytes above, started from the run's key, without a final inversion
 *
 * All in network byte order.  The key is new for each run, so that neither ordinary payload nor a frame of an
 * earlier run passes the check.  At 10 Mpps the sequence wraps after 325 days; at 3 GHz the time wraps after 26
 * hours, and a delay is their difference modulo 2^48, which only a delay of 26 hours could make ambiguous.
 */
#ifndef TAILRACE_COMMON_SIGNATURE_H
#define TAILRACE_COMMON_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <nmmintrin.h>

enum { SIGNATURE_SIZE = 18 };

#define SIGNATURE_MASK ((UINT64_C(1) << 48) - 1) /* of a sequence or a time */

struct signature {
	uint16_t stream;
	uint64_t sequence;
	uint64_t time;
};

/* `head` and `time` are words as they lie in memory: stream and sequence, and 6 bytes of time. */
static inline uint32_t signature_check(uint32_t key, uint64_t head, uint64_t time)
{
	uint32_t check = (uint32_t)_mm_crc32_u64(key, head);

	check = _mm_crc32_u32(check, (uint32_t)time);
	return _mm_crc32_u16(check, (uint16_t)(time >> 32));
}

/* Write a signature to the 18 bytes at `at`; sequence and time are taken modulo 2^48. */
static inline void signature_write(void *at, uint32_t key, uint16_t stream, uint64_t sequence, uint64_t time)
{
	uint8_t *bytes = at;
	uint64_t head = __builtin_bswap64((uint64_t)stream << 48 | (sequence & SIGNATURE_MASK));
	uint64_t when = __builtin_bswap64(time << 16);
	uint32_t check = __builtin_bswap32(signature_check(key, head, when));
	uint64_t tail = when | (uint64_t)check << 48;
	uint16_t rest = (uint16_t)(check >> 16);

	memcpy(bytes, &head, 8);
	memcpy(bytes + 8, &tail, 8);
	memcpy(bytes + 16, &rest, 2);
}

/* Read the 18 bytes at `at`.  Returns false, with the signature undefined, if the check fails. */
static inline bool signature_read(const void *at, uint32_t key, struct signature *signature)
{
	const uint8_t *bytes = at;
	uint64_t head, tail;
	uint32_t check;

	memcpy(&head, bytes, 8);
	memcpy(&tail, bytes + 8, 8);
	memcpy(&check, bytes + 14, 4);
	signature->stream = (uint16_t)(__builtin_bswap64(head) >> 48);
	signature->sequence = __builtin_bswap64(head) & SIGNATURE_MASK;
	signature->time = __builtin_bswap64(tail) >> 16;
	return __builtin_bswap32(check) == signature_check(key, head, tail);
}

#endif
