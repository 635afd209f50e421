/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames on their way from one switch to another: the longest that come, and those that the other one cannot use.
 */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "switch/parcel.h"

enum { PUSHED = 4 };

static struct control_error error;

/* A packet of its own, with nothing behind it that it could be written over. */
struct made {
	struct packet packet;
	struct vring_piece pieces[2];
	uint8_t *bytes;
};

static struct made *made_of(uint32_t length)
{
	struct made *made = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*made), 64));

	memset(made, 0, sizeof(*made));
	made->bytes = malloc(length);
	for (uint32_t i = 0; i < length; i++)
		made->bytes[i] = (uint8_t)(i * 7 + i / 256);
	memset(made->bytes + 12, 0xff, 2); /* no type that anybody looks behind */
	made->packet.head = made->bytes;
	made->packet.head_length = (uint16_t)RTE_MIN(length, (uint32_t)PACKET_HEAD);
	made->packet.length = made->packet.received = length;
	made->packet.pieces = made->pieces;
	made->packet.nb_pieces = 2;
	made->pieces[1] = (struct vring_piece){made->bytes + made->packet.head_length,
					       length - made->packet.head_length};
	return made;
}

static void free_made(struct made *made)
{
	free(made->bytes);
	free(made);
}

static void expect_same(const struct packet *packet, const struct made *made)
{
	const uint32_t head = packet->head_length;

	assert_int_equal(packet->length, made->packet.length);
	assert_memory_equal(packet->head, made->bytes, head);
	if (packet->nb_pieces > 1)
		assert_memory_equal(packet->pieces[1].at, made->bytes + head, packet->length - head);
	assert_int_equal(head + (packet->nb_pieces > 1 ? packet->pieces[1].length : 0), packet->length);
}

static void frames_up_to_the_longest_with_tags_go_over_whole(void **state)
{
	static const uint32_t lengths[] = {
		14, 60, 61, 1514, VRING_FRAME_MAX, VRING_FRAME_MAX + PUSHED, PARCEL_LONGEST - 1, PARCEL_LONGEST};
	struct made *made[RTE_DIM(lengths)];
	json_t *frames = json_array();
	struct parcel parcel;

	for (unsigned i = 0; i < RTE_DIM(lengths); i++) {
		made[i] = made_of(lengths[i]);
		assert_int_equal(json_array_append_new(frames, parcel_text(&made[i]->packet)), 0);
	}
	assert_true(parcel_read(&parcel, frames, &error));
	assert_int_equal(parcel.count, RTE_DIM(lengths));
	assert_int_equal(parcel.refused, 0);
	for (unsigned i = 0; i < RTE_DIM(lengths); i++) {
		expect_same(&parcel.packets[i], made[i]);
		free_made(made[i]);
	}
	parcel_free(&parcel);
	json_decref(frames);
}

static void a_longer_one_is_not_told(void **state)
{
	struct made *made = made_of(PARCEL_LONGEST + 1);

	assert_null(parcel_text(&made->packet));
	free_made(made);
}

/* Of a frame whose tag was cut off since its header was checked, and others that nobody could have sent. */
static void a_header_that_contradicts_its_frame_costs_that_frame_only(void **state)
{
	static const struct virtio_net_hdr odd[] = {
		{.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 10},
		{.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 5000},
		{.gso_type = VIRTIO_NET_HDR_GSO_TCPV4},
		{.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_type = VIRTIO_NET_HDR_GSO_UDP, .csum_start = 34},
	};
	struct made *good[2] = {made_of(100), made_of(200)};
	json_t *frames = json_array();
	struct parcel parcel;

	json_array_append_new(frames, parcel_text(&good[0]->packet));
	for (unsigned i = 0; i < RTE_DIM(odd); i++) {
		struct made *made = made_of(80);

		made->packet.offload = odd[i];
		json_array_append_new(frames, parcel_text(&made->packet));
		free_made(made);
	}
	json_array_append_new(frames, parcel_text(&good[1]->packet));
	assert_true(parcel_read(&parcel, frames, &error));
	assert_int_equal(parcel.count, 2);
	assert_int_equal(parcel.refused, RTE_DIM(odd));
	for (unsigned i = 0; i < 2; i++) {
		expect_same(&parcel.packets[i], good[i]);
		free_made(good[i]);
	}
	parcel_free(&parcel);
	json_decref(frames);
}

static void what_is_no_frame_at_all_is_refused(void **state)
{
	static const char *const none[] = {"", "=", "====", "A", "AAA", "****", "AAAA"};

	for (unsigned i = 0; i < RTE_DIM(none); i++) {
		json_t *frames = json_pack("[s]", none[i]);
		struct parcel parcel;

		assert_false(parcel_read(&parcel, frames, &error));
		assert_non_null(strstr(error.message, "frames[0]: expected"));
		parcel_free(&parcel);
		json_decref(frames);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_up_to_the_longest_with_tags_go_over_whole),
		cmocka_unit_test(a_longer_one_is_not_told),
		cmocka_unit_test(a_header_that_contradicts_its_frame_costs_that_frame_only),
		cmocka_unit_test(what_is_no_frame_at_all_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
