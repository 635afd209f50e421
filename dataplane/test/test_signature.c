/* SPDX-License-Identifier: Apache-2.0
 *
 * The signature: its bytes, what it holds, and that nothing else passes for one.
 */
#include <stdlib.h>

#include "cmocka_all.h"
#include "common/signature.h"

/* CRC32C bit by bit (RFC 3720, B.4, without the inversions), independent of the instruction. */
static uint32_t crc32c(uint32_t crc, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return crc;
}

static void layout_is_as_documented(void **state)
{
	const uint8_t head[14] = {0x12, 0x34, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6};
	uint8_t bytes[SIGNATURE_SIZE + 2] = {[SIGNATURE_SIZE] = 0x55, [SIGNATURE_SIZE + 1] = 0x55};
	uint32_t check = crc32c(0xdeadbeef, head, sizeof(head));

	signature_write(bytes, 0xdeadbeef, 0x1234, 0xa1a2a3a4a5a6, 0xb1b2b3b4b5b6);
	assert_memory_equal(bytes, head, sizeof(head));
	assert_int_equal((uint32_t)bytes[14] << 24 | bytes[15] << 16 | bytes[16] << 8 | bytes[17], check);
	assert_int_equal(bytes[SIGNATURE_SIZE], 0x55);
	assert_int_equal(bytes[SIGNATURE_SIZE + 1], 0x55);
}

static void what_is_written_is_read(void **state)
{
	const uint64_t values[] = {0, 1, 0xffff, SIGNATURE_MASK - 1, SIGNATURE_MASK};
	uint8_t bytes[SIGNATURE_SIZE + 7];
	struct signature signature;

	for (size_t offset = 0; offset < 8; offset++)
		for (size_t i = 0; i < 5; i++)
			for (size_t j = 0; j < 5; j++) {
				signature_write(bytes + offset, 7, (uint16_t)values[i], values[i], values[j]);
				assert_true(signature_read(bytes + offset, 7, &signature));
				assert_int_equal(signature.stream, (uint16_t)values[i]);
				assert_int_equal(signature.sequence, values[i]);
				assert_int_equal(signature.time, values[j]);
			}
}

static void sequence_and_time_wrap_at_48_bits(void **state)
{
	uint8_t bytes[SIGNATURE_SIZE];
	struct signature signature;

	signature_write(bytes, 7, 1, SIGNATURE_MASK + 3, UINT64_MAX);
	assert_true(signature_read(bytes, 7, &signature));
	assert_int_equal(signature.stream, 1);
	assert_int_equal(signature.sequence, 2);
	assert_int_equal(signature.time, SIGNATURE_MASK);
}

static void any_changed_bit_fails_the_check(void **state)
{
	uint8_t bytes[SIGNATURE_SIZE];
	struct signature signature;

	signature_write(bytes, 99, 3, 123456789, 987654321);
	for (int bit = 0; bit < SIGNATURE_SIZE * 8; bit++) {
		bytes[bit / 8] ^= 1 << bit % 8;
		assert_false(signature_read(bytes, 99, &signature));
		bytes[bit / 8] ^= 1 << bit % 8;
	}
	assert_true(signature_read(bytes, 99, &signature));
}

static void another_runs_key_fails_the_check(void **state)
{
	uint8_t bytes[SIGNATURE_SIZE];
	struct signature signature;

	signature_write(bytes, 99, 3, 4, 5);
	for (uint32_t key = 0; key < 100000; key++)
		assert_int_equal(signature_read(bytes, key, &signature), key == 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout_is_as_documented),	     cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(sequence_and_time_wrap_at_48_bits), cmocka_unit_test(any_changed_bit_fails_the_check),
		cmocka_unit_test(another_runs_key_fails_the_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
