/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain frames are read and changed by a few words: with the same result as by all of what looks at any frame, of
 * frames whose bytes a seed changes.
 */
#include "test/cmocka_all.h"
#include "test/frame_builder.h"

#include <rte_ip.h>

#include "functions/plain.h"
#include "functions/rewrite.h"

enum { FRAMES = 300000, TCP = 6, UDP = 17 };

/* TCP or UDP; some bytes of the headers are others, mostly with a checksum that holds, and it may be cut short. */
static void make_frame(struct frame *frame, uint64_t *seed)
{
	static const uint8_t flags[] = {0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14};
	const bool tcp = random64(seed) % 2;
	const unsigned payload = random64(seed) % 32, header = tcp ? 20 : 8;
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(frame->bytes + 14);

	memset(frame->bytes, 0, sizeof(frame->bytes));
	frame_macs(frame, 1, 2);
	frame_ipv4(frame, 0x0a000001 + random64(seed) % 4, 0x0a000001 + random64(seed) % 4, tcp ? TCP : UDP,
		   header + payload, 0, 0);
	frame_add16(frame, (uint16_t)random64(seed));
	frame_add16(frame, (uint16_t)random64(seed));
	if (tcp) {
		frame->bytes[46] = 0x50;
		frame->bytes[47] = flags[random64(seed) % sizeof(flags)];
		frame->bytes[50] = (uint8_t)random64(seed);
	} else {
		frame_add16(frame, 8 + payload);
		frame_add16(frame, (uint16_t)(random64(seed) % 2 * random64(seed)));
	}
	frame->length = 34 + header + payload;
	for (unsigned changes = random64(seed) % 3; changes > 0; changes--)
		frame->bytes[12 + random64(seed) % 42] = (uint8_t)(random64(seed) % 4 == 0 ? random64(seed) : 0);
	if (random64(seed) % 8 == 0)
		frame->length = 14 + random64(seed) % (frame->length - 14);
	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip) + (random64(seed) % 16 == 0);
}

/* Another one, one in four of them in two pieces, and whether it is plain.  Behind the first piece lie other flags. */
static bool read_frame(struct frame *frame, uint64_t *seed, struct inspected *inspected, bool *whole)
{
	struct frame piece;
	struct rte_mbuf mbuf;
	struct plain words;

	make_frame(frame, seed);
	piece = *frame;
	*whole = random64(seed) % 4 != 0;
	if (!*whole)
		piece.length = random64(seed) % frame->length;
	memset(piece.bytes + piece.length, 0x51, sizeof(piece.bytes) - piece.length);
	mbuf = (struct rte_mbuf){
		.buf_addr = piece.bytes,
		.data_len = (uint16_t)piece.length,
		.pkt_len = frame->length,
		.nb_segs = *whole ? 1 : 2,
	};
	if (!plain_read(&mbuf, &words))
		return false;
	plain_fill(&words, inspected);
	return true;
}

/* Whether it is what plain_read() is for. */
static bool is_plain(const struct frame *frame, const struct inspected *inspected)
{
	static const uint8_t nobody[4];
	const struct headers *headers = &inspected->headers;

	return headers->ethertype == 0x0800 && headers->vlan == 0 && frame->bytes[14] == 0x45 &&
	       headers->fragment == FRAGMENT_NONE && (headers->protocol == TCP || headers->protocol == UDP) &&
	       memcmp(headers->source, nobody, sizeof(nobody)) != 0;
}

static void what_is_read(void **state)
{
	unsigned plain = 0, others = 0;
	uint64_t seed = 1;

	for (unsigned i = 0; i < FRAMES; i++) {
		struct inspected inspected, words;
		struct frame frame;
		bool whole;
		const bool read = read_frame(&frame, &seed, &words, &whole);
		const enum verdict verdict = inspect(frame.bytes, frame.length, frame.length, &inspected);

		if (!read) {
			assert_false(whole && verdict == VERDICT_FLOW && is_plain(&frame, &inspected));
			others++;
			continue;
		}
		plain++;
		assert_int_equal(verdict, VERDICT_FLOW);
		assert_memory_equal(&words.headers, &inspected.headers, sizeof(words.headers));
		assert_int_equal(words.event, inspected.event);
		assert_int_equal(words.query, inspected.query);
		assert_int_equal(words.first, inspected.first);
		assert_int_equal(words.transport, inspected.transport);
	}
	assert_true(plain > FRAMES / 4 && others > FRAMES / 8);
}

static void what_is_changed(void **state)
{
	unsigned plain = 0;
	uint64_t seed = 2;

	for (unsigned i = 0; i < FRAMES; i++) {
		const enum rewrite_side side = i % 2 ? REWRITE_SOURCE : REWRITE_DESTINATION;
		const uint32_t address = (uint32_t)random64(&seed);
		const uint16_t port = (uint16_t)random64(&seed);
		struct frame frame, copy;
		struct rewrite_place place;
		struct inspected words;
		bool whole;

		if (!read_frame(&frame, &seed, &words, &whole))
			continue;
		copy = frame;
		plain++;
		place = rewrite_place(copy.bytes, copy.length, &words);
		rewrite_end(&place, side, &address, port);
		rewrite_plain(frame.bytes, words.headers.protocol, side, address, port);
		assert_memory_equal(frame.bytes, copy.bytes, sizeof(frame.bytes));
		assert_int_equal(rte_raw_cksum(frame.bytes + 14, 20), 0xffff);
	}
	assert_true(plain > FRAMES / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_read),
		cmocka_unit_test(what_is_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
