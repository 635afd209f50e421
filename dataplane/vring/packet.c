/* SPDX-License-Identifier: Apache-2.0 */
#include "vring/packet.h"
#include "vring/burst.h"
#include "vring/frame.h"
#include "vring/packet_bytes.h"

void burst_start(struct burst *burst)
{
	burst->count = 0;
	burst->taken = 0;
	burst->bytes = 0;
	burst->nb_pieces = 0;
	burst->unshown = NULL;
}

void burst_show(struct burst *burst)
{
	while (burst->unshown != NULL) {
		struct virtqueue *vring = burst->unshown;

		burst->unshown = vring->next_unshown;
		vring_publish(vring);
	}
}

static void add_plain(struct burst *burst, const uint8_t *at, uint32_t length)
{
	struct packet *packet = &burst->packets[burst->count++];
	const uint32_t head = RTE_MIN(length, (uint32_t)PACKET_HEAD);

	packet->head = packet->bytes + PACKET_ROOM;
	packet->head_length = head;
	packet->length = packet->received = length;
	packet->mbuf = NULL;
	packet->delivered = false;
	packet->offload = (struct virtio_net_hdr){0};
	packet->pieces = &burst->pieces[burst->nb_pieces];
	packet->pieces[1] = (struct vring_piece){(uint8_t *)(uintptr_t)at + head, length - head};
	packet->nb_pieces = length > head ? 2 : 1;
	burst->nb_pieces += 2;
	burst->bytes += length;
	copy_frame(packet->head, at, head);
}

/* Check what the sender has left to do, by the head or, of a long segment, by as much more as its headers may take. */
static bool check_offload(struct packet *packet, uint8_t offloads)
{
	uint8_t room[OFFLOAD_HEADERS];
	const uint32_t reads = RTE_MIN(RTE_MIN(offload_reads(&packet->offload), (uint32_t)OFFLOAD_HEADERS),
				       packet->length),
		       length = RTE_MAX(reads, (uint32_t)packet->head_length);

	return offload_check(&packet->offload, offloads, packet_bytes(packet, 0, length, room), length, packet->length);
}

/* Is there a checksum to be completed whose field is not in the head, whole? */
static bool checksum_is_behind(const struct packet *packet)
{
	const struct virtio_net_hdr *offload = &packet->offload;

	return offload_wanted(offload) && offload->gso_type == VIRTIO_NET_HDR_GSO_NONE &&
	       (uint32_t)offload->csum_start + offload->csum_offset + sizeof(packet->checksum) > packet->head_length;
}

/* Make that field a piece of its own, and private: the sender's memory is not ours to write to. */
static void part_checksum(struct packet *packet)
{
	const uint32_t field = (uint32_t)packet->offload.csum_start + packet->offload.csum_offset;
	struct vring_piece whole[PACKET_PIECES], parts[sizeof(packet->checksum)];
	struct frame_cursor cursor = {whole, 0};
	unsigned count;

	memcpy(whole, packet->pieces, packet->nb_pieces * sizeof(whole[0]));
	whole[0] = (struct vring_piece){packet->head, packet->head_length};
	packet_copy(packet, field, sizeof(packet->checksum), packet->checksum);
	count = frame_slice(&cursor, field, packet->pieces);
	frame_slice(&cursor, sizeof(packet->checksum), parts);
	packet->pieces[count++] = (struct vring_piece){packet->checksum, sizeof(packet->checksum)};
	count += frame_slice(&cursor, packet->length - field - sizeof(packet->checksum), packet->pieces + count);
	packet->nb_pieces = count;
	packet->head_length = packet->pieces[0].length;
}

bool packet_of_frame(struct packet *packet, const struct virtqueue *from, struct vring_frame *frame)
{
	uint32_t head, offset;
	unsigned count = 0;

	packet->offload = (struct virtio_net_hdr){0};
	if (from->offloads != 0)
		vring_peek((uint8_t *)&packet->offload, frame, sizeof(packet->offload));
	vring_frame_skip(frame, from->header);
	head = RTE_MIN(frame->length, (uint32_t)PACKET_HEAD);
	packet->head = packet->bytes + PACKET_ROOM;
	packet->head_length = head;
	packet->length = packet->received = frame->length;
	packet->mbuf = NULL;
	packet->delivered = false;
	vring_peek(packet->head, frame, head);
	offset = head;
	for (unsigned i = 0; i < frame->nb_pieces; i++) {
		const struct vring_piece *piece = &frame->pieces[i];

		if (offset >= piece->length) {
			offset -= piece->length;
			continue;
		}
		packet->pieces[++count] = (struct vring_piece){piece->at + offset, piece->length - offset};
		offset = 0;
	}
	packet->nb_pieces = 1 + count;
	if (unlikely(!check_offload(packet, from->offloads))) {
		from->counters->drop_offload_malformed++;
		return false;
	}
	if (unlikely(checksum_is_behind(packet)))
		part_checksum(packet);
	return true;
}

/* The last frame has something left to do.  It is dropped, and counted, if that is malformed. */
static void add_offload(const struct virtqueue *from, struct burst *burst, const struct virtio_net_hdr *offload)
{
	struct packet *packet = &burst->packets[burst->count - 1];

	packet->offload = *offload;
	if (likely(check_offload(packet, from->offloads)))
		return;
	from->counters->drop_offload_malformed++;
	burst->count--;
	burst->nb_pieces -= 2;
	burst->bytes -= packet->length;
}

/*
 * Take the frames of a run.  Returns how many, up to the first that is too many, or whose checksum lies where it takes
 * more than that: behind the head.
 */
static unsigned read_run(const struct virtqueue *from, struct burst *burst, const struct vring_buffer *sources,
			 unsigned run)
{
	for (unsigned i = 0; i < run; i++) {
		const uint32_t length = sources[i].length - from->header;
		struct virtio_net_hdr offload;
		bool wanted = false;

		if (burst->bytes >= BURST_BYTES)
			return i;
		if (from->offloads != 0) {
			offload = vring_read_offload(sources[i].at);
			wanted = (offload.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) ||
				 offload.gso_type != VIRTIO_NET_HDR_GSO_NONE;
			if (wanted && (uint32_t)offload.csum_start + offload.csum_offset + sizeof(uint16_t) >
					      RTE_MIN(length, (uint32_t)PACKET_HEAD))
				return i;
		}
		burst->chains[burst->taken++] = (struct vring_chain){sources[i].id, 1};
		add_plain(burst, sources[i].at + from->header, length);
		if (wanted)
			add_offload(from, burst, &offload);
	}
	return run;
}

/* Take one frame of any shape.  Returns false when the burst ends before it. */
static bool read_one(struct virtqueue *from, struct burst *burst, uint16_t *ahead)
{
	struct packet *packet = &burst->packets[burst->count];
	struct vring_frame frame;
	struct vring_chain chain;
	enum vring_step step;

	/* A plain frame takes two pieces, and each of those that follow may be one. */
	if (burst->nb_pieces + PACKET_PIECES + 2 * (VRING_BURST - 1 - burst->count) > BURST_PIECES)
		return false;
	step = vring_take_frame(from, *ahead, &chain, &frame);
	if (step == VRING_STEP_FAULT)
		return false;
	*ahead += chain.slots;
	burst->chains[burst->taken++] = chain;
	packet->pieces = &burst->pieces[burst->nb_pieces];
	if (step == VRING_STEP_MOVED && packet_of_frame(packet, from, &frame)) {
		burst->bytes += packet->length;
		burst->nb_pieces += packet->nb_pieces;
		burst->count++;
	}
	return true;
}

unsigned vring_read(struct virtqueue *from, struct burst *burst, unsigned limit)
{
	const bool packed = from->packed;
	const uint16_t ready = RTE_MIN(vring_available(from, limit), limit);
	const uint32_t pages = vring_pages_made;
	struct vring_run gathered;
	uint16_t ahead = 0;

	gathered.end = 0;
	burst_start(burst);
	vring_prefetch(from, packed, ready, from->in_order ? 1 : ready);
	while (ahead < ready && burst->bytes < BURST_BYTES && vring_work_of_pages(pages) < VRING_WORK) {
		const struct vring_buffer *sources;
		unsigned run = vring_run(from, packed, false, &gathered, ahead, ready - ahead, &sources);

		ahead += read_run(from, burst, sources, run);
		if (ahead >= ready || burst->bytes >= BURST_BYTES || !read_one(from, burst, &ahead))
			break;
	}
	vring_notify(from, NULL);
	return burst->taken;
}

void vring_read_done(struct virtqueue *from, struct burst *burst)
{
	uint64_t bytes = 0;
	uint16_t ahead = 0;

	for (unsigned i = 0; i < burst->count; i++)
		bytes += burst->packets[i].delivered ? burst->packets[i].received : 0;
	for (unsigned i = 0; i < burst->taken; i++) {
		vring_complete_sent(from, from->packed, ahead, burst->chains[i].id);
		ahead += burst->chains[i].slots;
	}
	from->counters->received_packets += burst->taken;
	from->counters->received_bytes += bytes;
	from->pending = ahead;
	vring_publish(from);
	burst_show(burst);
}

struct packet *burst_add_mbuf(struct burst *burst, struct rte_mbuf *mbuf)
{
	struct packet *packet = &burst->packets[burst->count];

	if (burst->count == VRING_BURST || burst->nb_pieces + mbuf->nb_segs > BURST_PIECES)
		return NULL;
	packet->pieces = &burst->pieces[burst->nb_pieces];
	packet_of_mbuf(packet, mbuf);
	burst->nb_pieces += packet->nb_pieces;
	burst->count++;
	return packet;
}

/* Write a packet to one receive buffer, with this network header, or one that says nothing. */
static void write_plain(struct virtqueue *to, const struct packet *packet, const struct virtio_net_hdr *offload,
			const struct vring_buffer *buffer)
{
	uint8_t *at = buffer->at + to->header;

	if (likely(offload == NULL))
		vring_write_header(buffer->at, to->header);
	else
		vring_write_offload(buffer->at, to->header, offload);
	copy_frame(at, packet->head, packet->head_length);
	at += packet->head_length;
	for (unsigned i = 1; i < packet->nb_pieces; i++) {
		copy_frame(at, packet->pieces[i].at, packet->pieces[i].length);
		at += packet->pieces[i].length;
	}
}

/* Write packets, each to one buffer.  Returns how many; the next packet or buffer, if any, is not plain. */
static unsigned write_run(struct virtqueue *to, uint16_t used, unsigned n, struct burst *burst, const uint8_t *which,
			  struct vring_run *gathered, uint64_t *bytes)
{
	const struct vring_buffer *targets;
	unsigned i;

	if (to->log.bits != NULL)
		return 0;
	n = RTE_MIN(n, (unsigned)VRING_BURST);
	if (to->packed)
		n = RTE_MIN(n, (unsigned)VRING_DONE - to->nb_done);
	n = vring_run(to, to->packed, true, gathered, used, n, &targets);
	for (i = 0; i < n; i++) {
		struct packet *packet = &burst->packets[which[i]];
		const struct virtio_net_hdr *offload = NULL;

		if (unlikely(targets[i].length < to->header + packet->length))
			break;
		if (packet->offload.flags != 0 && (offload = packet_header(to, packet)) == NULL)
			break;
		write_plain(to, packet, offload, &targets[i]);
		vring_complete(to, to->packed, used + i, targets[i].id, to->header + packet->length);
		packet->delivered = true;
		*bytes += packet->length;
	}
	return i;
}

/* To be shown by burst_show(). */
static void note_unshown(struct burst *burst, struct virtqueue *to)
{
	for (const struct virtqueue *vring = burst->unshown; vring != NULL; vring = vring->next_unshown)
		if (vring == to)
			return;
	to->next_unshown = burst->unshown;
	burst->unshown = to;
}

unsigned vring_write(struct virtqueue *to, struct burst *burst, const uint8_t *which, unsigned n)
{
	struct vring_room room = {.used = to->pending, .end = vring_available(to, to->pending + n)};
	unsigned done = 0, moved = 0;
	const uint32_t work = to->work, pages = vring_pages_made;
	struct vring_run gathered;
	uint64_t bytes = 0;

	gathered.end = 0;
	vring_notify(to, NULL);
	/* What a long segment is cut into takes more buffers than were looked for. */
	while (done < n && (room.used < room.end || vring_more_room(to, &room)) &&
	       to->work - work + vring_work_of_pages(pages) < VRING_WORK) {
		unsigned run = write_run(to, room.used, RTE_MIN(n - done, (unsigned)(room.end - room.used)), burst,
					 which + done, &gathered, &bytes);
		enum vring_step step;

		done += run;
		moved += run;
		room.used += run;
		if (done == n || room.used >= room.end)
			continue;
		vring_spend(to, burst->packets[which[done]].length);
		step = packet_enqueue(to, &room, &burst->packets[which[done]], &moved, &bytes);
		if (step == VRING_STEP_BLOCKED && vring_more_room(to, &room))
			continue;
		if (step == VRING_STEP_BLOCKED || step == VRING_STEP_FAULT)
			break;
		done++;
	}
	to->counters->sent_packets += moved;
	to->counters->sent_bytes += bytes;
	to->pending = room.used;
	if (room.used > 0)
		note_unshown(burst, to);
	return done;
}
