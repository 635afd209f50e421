/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program still owes when it moves nothing: frames that a device had no room for, and guests that have to be
 * notified of the last ones.  Nothing may be left lying, whoever sends what meanwhile.
 */
#include "test/cmocka_all.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#include "port/device_io.h"
#include "steer/steering.h"
#include "steer/watch.h"
#include "test/start_dpdk.h"
#include "test/stations.h"
#include "vring/offload.h"

enum { DEVICE_ROOM = 7, PATIENCE = 1000 };

static struct rte_ring *arrivals; /* what the device receives: one frame at a time */
static struct rte_ring *wire;	  /* what the device sends ends up here, and has little room */
static struct rte_mempool *pool;
static uint16_t device_id;

static int start_all(void **state)
{
	const struct rte_eth_conf conf = {0};
	int port;

	pool = start_dpdk_with_pool(32, 1023);
	wire = rte_ring_create("wire", DEVICE_ROOM + 1, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	arrivals = rte_ring_create("arrivals", 2, SOCKET_ID_ANY, 0);
	port = rte_eth_from_rings("flush", &arrivals, 1, &wire, 1, 0);
	if (wire == NULL || arrivals == NULL || pool == NULL || port < 0 ||
	    rte_eth_dev_configure(port, 1, 1, &conf) != 0 || rte_eth_tx_queue_setup(port, 0, 64, 0, NULL) != 0 ||
	    rte_eth_rx_queue_setup(port, 0, 64, 0, NULL, pool) != 0 || rte_eth_dev_start(port) != 0)
		return -1;
	device_id = port;
	return 0;
}

/* Station 3's port is the device. */
static int start_with_device(void **state)
{
	struct port *port;

	start(state);
	port = &((struct setting *)*state)->stations[3].port;
	port->kind = PORT_DEVICE;
	memset(&port->device, 0, sizeof(port->device));
	port->device.port_id = port->device.device.port = device_id;
	port->device.pool = pool;
	port->device.queues = 1;
	port->device.device.longest = 1518;
	atomic_store(&port->device.state, DEVICE_UP);
	((struct setting *)*state)->round.patience = PATIENCE;
	return 0;
}

/* What has reached the wire. */
static unsigned take_from_wire(void)
{
	struct rte_mbuf *mbuf;
	unsigned count = 0;

	while (rte_ring_dequeue(wire, (void **)&mbuf) == 0) {
		rte_pktmbuf_free(mbuf);
		count++;
	}
	return count;
}

static int end_with_device(void **state)
{
	struct setting *setting = *state;
	struct port_queue *queue = &setting->stations[3].port.queues[0];

	take_from_wire();
	rte_pktmbuf_free_bulk(queue->held, queue->nb_held);
	assert_int_equal(rte_mempool_avail_count(pool), 1023);
	return end(state);
}

/* To station 1 by port 1, to the device by port 3. */
struct steered {
	struct egress egresses[2];
	struct step steps[2];
	struct classifier *classifier;
	struct source source;
};

static void steer_to_both(struct setting *setting, struct steered *steered)
{
	const struct rule rules[] = {to_port(1, 1, 0), to_port(3, 3, 1)};

	*steered = (struct steered){.egresses = {egress_to(setting, 1, NULL), egress_to(setting, 3, NULL)},
				    .steps = {{NULL, 0}, {NULL, 1}},
				    .classifier = classifier_of(rules, 2)};
	steered->source = source_of(setting, 0,
				    &(struct steering_config){.egresses = steered->egresses,
							      .nb_egresses = 2,
							      .classifier = steered->classifier,
							      .steps = steered->steps,
							      .nb_steps = 2,
							      .otherwise = STEERING_DROP});
	source_begin(&steered->source);
}

static void forget(struct steered *steered)
{
	steering_free(steered->source.steering);
	free(steered->classifier);
}

static void send_to_port(struct setting *setting, uint16_t port, unsigned count)
{
	struct frame frame;

	frame_udp4(&frame, 1, 2, 1000, port);
	for (unsigned i = 0; i < count; i++)
		send_frame(&setting->stations[0], &frame);
}

static void frames_for_a_full_device_are_sent_when_it_has_room(void **state)
{
	struct setting *setting = *state;
	struct steered steered;
	unsigned sent = 0;

	steer_to_both(setting, &steered);
	send_to_port(setting, 3, RING);
	assert_int_equal(source_poll(&steered.source, &setting->round), RING);
	assert_true(source_owes(&steered.source));
	/* It stays full for a while. */
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(source_poll(&steered.source, &setting->round), 0);
	while (source_owes(&steered.source)) {
		sent += take_from_wire();
		assert_int_equal(source_poll(&steered.source, &setting->round), 0);
	}
	sent += take_from_wire();
	assert_int_equal(sent, RING);
	assert_int_equal(setting->stations[3].counters.sent_packets, RING);
	forget(&steered);
}

static void frames_for_a_full_device_are_sent_while_others_go_elsewhere(void **state)
{
	struct setting *setting = *state;
	struct steered steered;
	unsigned sent = 0;

	steer_to_both(setting, &steered);
	send_to_port(setting, 3, RING);
	assert_int_equal(source_poll(&steered.source, &setting->round), RING);
	for (unsigned i = 0; i < 10; i++) {
		sent += take_from_wire();
		offer_buffers(&setting->stations[1], 1);
		send_to_port(setting, 1, 1);
		assert_int_equal(source_poll(&steered.source, &setting->round), 1);
	}
	assert_int_equal(sent + take_from_wire(), RING);
	forget(&steered);
}

static void a_device_that_stays_full_keeps_frames_for_the_time_that_is_stated(void **state)
{
	struct setting *setting = *state;
	struct steered steered;

	steer_to_both(setting, &steered);
	send_to_port(setting, 3, RING);
	assert_int_equal(source_poll(&steered.source, &setting->round), RING);
	source_poll(&steered.source, &setting->round);
	setting->round.now += PATIENCE;
	source_poll(&steered.source, &setting->round);
	assert_true(source_owes(&steered.source));
	assert_int_equal(setting->stations[3].counters.drop_receiver_full, 0);
	setting->round.now++;
	source_poll(&steered.source, &setting->round);
	assert_false(source_owes(&steered.source));
	assert_int_equal(setting->stations[3].counters.drop_receiver_full, RING - DEVICE_ROOM);
	assert_int_equal(take_from_wire(), DEVICE_ROOM);
	/* The next time begins from the start. */
	send_to_port(setting, 3, RING);
	assert_int_equal(source_poll(&steered.source, &setting->round), RING);
	source_poll(&steered.source, &setting->round);
	assert_true(source_owes(&steered.source));
	forget(&steered);
}

static void a_device_that_another_worker_has_is_come_back_to(void **state)
{
	struct setting *setting = *state;
	rte_spinlock_t *lock = &setting->stations[3].port.queues[0].lock;
	struct steered steered;

	steer_to_both(setting, &steered);
	steered.source.steering->outlets[1].egress.locked = true;
	send_to_port(setting, 3, RING);
	assert_int_equal(source_poll(&steered.source, &setting->round), RING);
	take_from_wire();
	rte_spinlock_lock(lock);
	source_poll(&steered.source, &setting->round);
	assert_true(source_owes(&steered.source));
	rte_spinlock_unlock(lock);
	source_poll(&steered.source, &setting->round);
	assert_int_equal(take_from_wire(), DEVICE_ROOM);
	assert_true(rte_spinlock_trylock(lock));
	forget(&steered);
}

static bool was_woken(int fd)
{
	eventfd_t count;

	return eventfd_read(fd, &count) == 0;
}

static void a_guest_is_told_of_its_last_frame_while_others_go_elsewhere(void **state)
{
	struct setting *setting = *state;
	struct virtqueue *ring = &setting->stations[1].receives.ring;
	struct steered steered;

	steer_to_both(setting, &steered);
	ring->call_fd = eventfd(0, EFD_NONBLOCK);
	ring->asleep = false; /* it was polling when last asked, and sleeps by now */
	offer_buffers(&setting->stations[1], 1);
	send_to_port(setting, 1, 1);
	assert_int_equal(source_poll(&steered.source, &setting->round), 1);
	assert_false(was_woken(ring->call_fd));
	send_to_port(setting, 3, 1);
	assert_int_equal(source_poll(&steered.source, &setting->round), 1);
	assert_true(was_woken(ring->call_fd));
	close(ring->call_fd);
	forget(&steered);
}

/* A source whose frames all go to one station, without being looked at. */
static struct source to_station(struct setting *setting, unsigned station, struct watch *watch)
{
	return (struct source){.from = &setting->stations[0].port,
			       .kind = watch != NULL ? SOURCE_WATCHED : SOURCE_DIRECT,
			       .egress = egress_to(setting, station, NULL),
			       .watch = watch};
}

static void a_guest_is_told_of_its_last_frame_while_its_sender_has_reached_its_rate(void **state)
{
	struct setting *setting = *state;
	struct virtqueue *ring = &setting->stations[1].receives.ring;
	struct gate gate = {0};
	struct watch *watch = calloc(1, sizeof(*watch));
	struct source source = to_station(setting, 1, watch);

	watch->gate = &gate;
	limit_set(&gate.limit, &(struct rate){.packets = 1}, setting->round.now, 1000);
	ring->call_fd = eventfd(0, EFD_NONBLOCK);
	ring->asleep = false; /* it was polling when last asked, and sleeps by now */
	offer_buffers(&setting->stations[1], 2);
	send_to_port(setting, 1, 2);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	assert_false(was_woken(ring->call_fd));
	assert_int_equal(source_poll(&source, &setting->round), 0);
	assert_true(was_woken(ring->call_fd));
	setting->round.now += 1000;
	assert_int_equal(source_poll(&source, &setting->round), 1);
	close(ring->call_fd);
	free(watch);
}

/* It cannot know what it would have found there: it must not go to sleep. */
static void a_receiver_that_another_worker_has_is_come_back_to(void **state)
{
	struct setting *setting = *state;
	rte_spinlock_t *lock = &setting->stations[1].port.queues[0].lock;

	for (unsigned watched = 0; watched < 2; watched++) {
		struct watch *watch = watched ? calloc(1, sizeof(*watch)) : NULL;
		struct source source = to_station(setting, 1, watch);

		source.egress.locked = true;
		source_begin(&source);
		offer_buffers(&setting->stations[1], 1);
		send_to_port(setting, 1, 1);
		rte_spinlock_lock(lock);
		assert_int_equal(source_poll(&source, &setting->round), 0);
		assert_true(source_owes(&source));
		rte_spinlock_unlock(lock);
		assert_int_equal(source_poll(&source, &setting->round), 1);
		assert_false(source_owes(&source));
		free(watch);
	}
	assert_true(rte_spinlock_trylock(lock));
}

/* One pair of rings may be missing for a moment, while the guest changes how many it uses; not so one that is stopped.
 */
static void frames_for_a_ring_that_is_stopped_do_not_wait(void **state)
{
	struct setting *setting = *state;
	struct port *port = &setting->stations[1].port;
	struct simulated_guest *second = &setting->stations[2].receives;
	struct source source = to_station(setting, 1, NULL);

	source.egress.queue = 1;
	port->queues[1].counters = &setting->stations[1].counters;
	send_to_port(setting, 1, 2);
	assert_int_equal(source_poll(&source, &setting->round), 0);
	second->ring.fault = VRING_FAULT_no_header;
	atomic_store(&port->guest.live[GUEST_VRINGS_EACH + GUEST_RECEIVES], &second->ring);
	assert_int_equal(source_poll(&source, &setting->round), 2);
	assert_int_equal(setting->stations[1].counters.drop_receiver_down, 2);
}

/* What cannot be asked lets frames pass: they count all the same. */
static void a_share_that_another_worker_is_at_costs_no_frame(void **state)
{
	struct setting *setting = *state;
	struct shares *shares = shares_make(&(struct rate){.packets = 10}, (uint32_t[]){1}, 1, setting->round.now,
					    1000);
	struct division division = {.shares = shares};
	struct egress_watch *seen = calloc(1, sizeof(*seen));
	struct watch *watch = calloc(1, sizeof(*watch));
	struct source source = to_station(setting, 1, watch);

	seen->division = &division;
	source.egress.watch = seen;
	offer_buffers(&setting->stations[1], 8);
	send_to_port(setting, 1, 4);
	rte_spinlock_lock(&division.lock);
	assert_int_equal(source_poll(&source, &setting->round), 4);
	rte_spinlock_unlock(&division.lock);
	assert_int_equal(setting->stations[1].counters.sent_packets, 4);
	assert_int_equal(setting->stations[1].counters.drop_rate, 0);
	/* With the next one they are half a second at this rate. */
	send_to_port(setting, 1, 2);
	setting->round.now += 100;
	assert_int_equal(source_poll(&source, &setting->round), 1);
	setting->round.now += 400;
	assert_int_equal(source_poll(&source, &setting->round), 0);
	setting->round.now += 200;
	assert_int_equal(source_poll(&source, &setting->round), 1);
	free(shares);
	free(seen);
	free(watch);
}

static void frames_that_there_is_no_buffer_for_are_not_the_devices(void **state)
{
	static struct rte_mbuf *all[1023];
	struct setting *setting = *state;
	struct steered steered;

	steer_to_both(setting, &steered);
	assert_int_equal(rte_pktmbuf_alloc_bulk(pool, all, RTE_DIM(all)), 0);
	send_to_port(setting, 3, 3);
	assert_int_equal(source_poll(&steered.source, &setting->round), 3);
	rte_pktmbuf_free_bulk(all, RTE_DIM(all));
	assert_int_equal(setting->stations[0].counters.drop_no_buffer, 3);
	assert_int_equal(setting->stations[3].counters.drop_receiver_full, 0);
	send_to_port(setting, 3, 1);
	assert_int_equal(source_poll(&steered.source, &setting->round), 1);
	assert_int_equal(take_from_wire(), 1);
	forget(&steered);
}

/* ------- long segments ------- */

enum {
	PIECES = 25,
	PIECE = 8,
	SEGMENTS = RING,		/* which are more pieces than the switch holds for a device */
	AT_ONCE = DEVICE_HELD / PIECES, /* segments that it does hold */
	TCP_AT = 34,
	TCP_HEADER = 20,
};

static void send_long_segment(struct station *station)
{
	const struct virtio_net_hdr offload = {
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
		.hdr_len = TCP_AT + TCP_HEADER,
		.gso_size = PIECE,
		.csum_start = TCP_AT,
		.csum_offset = 16,
	};
	const uint64_t address = FRAMES + station->sends.next_desc % RING * BUFFER;
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 1, 2, IPPROTO_TCP, TCP_HEADER + PIECES * PIECE, 0, 0);
	frame_add16(&frame, 1000);
	frame_add16(&frame, 3);
	frame_add32(&frame, 1);
	frame_add32(&frame, 0);
	frame_add16(&frame, TCP_HEADER / 4 << 12);
	while (frame.length < TCP_AT + TCP_HEADER + PIECES * PIECE)
		frame_add8(&frame, 0);
	station->sends.ring.offloads = OFFLOAD_CHECKSUM | OFFLOAD_TCP4;
	send_frame(station, &frame);
	memcpy(guest_at(&station->sends, address), &offload, sizeof(offload));
}

static void long_segments_wait_with_their_guest_for_a_device(void **state)
{
	struct setting *setting = *state;
	struct source source = to_station(setting, 3, NULL);
	unsigned sent = 0;

	for (unsigned i = 0; i < SEGMENTS; i++)
		send_long_segment(&setting->stations[0]);
	assert_int_equal(source_poll(&source, &setting->round), AT_ONCE);
	assert_int_equal(setting->stations[0].counters.received_packets, AT_ONCE);
	for (unsigned i = 0; i < SEGMENTS * PIECES / DEVICE_ROOM + 1; i++) {
		sent += take_from_wire();
		source_poll(&source, &setting->round);
	}
	assert_int_equal(sent + take_from_wire(), SEGMENTS * PIECES);
	assert_int_equal(setting->stations[0].counters.received_packets, SEGMENTS);
	assert_int_equal(setting->stations[0].counters.drop_no_buffer, 0);
}

/* Held under a program, and sent under the next, which gives it nothing. */
static void a_new_program_flushes_what_the_one_before_gave(void **state)
{
	struct setting *setting = *state;
	struct steered before, after;
	struct source orphan = {.from = &setting->stations[3].port, .orphan = true};
	unsigned sent;

	steer_to_both(setting, &before);
	send_to_port(setting, 3, 2 * DEVICE_ROOM);
	source_poll(&before.source, &setting->round);
	steer_to_both(setting, &after);
	assert_true(source_owes(&after.source));
	sent = take_from_wire();
	source_poll(&after.source, &setting->round);
	assert_int_equal(sent + take_from_wire(), 2 * DEVICE_ROOM);
	/* The same where nobody gives frames to the device any more: its own source sees to it. */
	send_to_port(setting, 3, 2 * DEVICE_ROOM);
	source_poll(&after.source, &setting->round);
	assert_true(source_owes(&orphan));
	sent = take_from_wire();
	source_poll(&orphan, &setting->round);
	assert_int_equal(sent + take_from_wire(), 2 * DEVICE_ROOM);
	assert_false(source_owes(&orphan));
	forget(&before);
	forget(&after);
}

/* ------- from a device ------- */

/* A frame of the station 2 arrives at the device.  Returns the buffer that it lies in. */
static struct rte_mbuf *arrive(uint8_t destination, uint16_t port)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	struct frame frame;

	assert_non_null(mbuf);
	frame_macs(&frame, destination, 2);
	frame_ipv4(&frame, 1, 2, 17, 8, 0, 0);
	frame_ports(&frame, 1000, port);
	memcpy(rte_pktmbuf_append(mbuf, 60), frame.bytes, 60);
	assert_int_equal(rte_ring_enqueue(arrivals, mbuf), 0);
	return mbuf;
}

/* Was what left by the device the buffer that it came in? */
static bool leaves_by(const struct rte_mbuf *mbuf)
{
	struct rte_mbuf *sent = NULL;

	assert_int_equal(rte_ring_dequeue(wire, (void **)&sent), 0);
	assert_int_equal(rte_ring_count(wire), 0);
	assert_int_equal(sent->pkt_len, 60);
	rte_pktmbuf_free(sent);
	return sent == mbuf;
}

static void a_frame_that_is_steered_to_one_device_is_handed_over(void **state)
{
	struct setting *setting = *state;
	struct egress_watch *seen = calloc(1, sizeof(*seen) + sizeof(seen->taps[0]));
	struct watch *watch = calloc(1, sizeof(*watch));
	struct steered steered;

	steer_to_both(setting, &steered);
	steered.source.from = &setting->stations[3].port;
	struct rte_mbuf *mbuf = arrive(1, 3);
	assert_int_equal(source_poll(&steered.source, &setting->round), 1);
	assert_true(leaves_by(mbuf));
	forget(&steered);
	/* Nor does a rate alone take a copy; a mirror needs the frame afterwards. */
	steer_to_both(setting, &steered);
	steered.source.from = &setting->stations[3].port;
	steered.source.watch = watch;
	steered.source.steering->outlets[steered.source.steering->targets[1].outlet].egress.watch = seen;
	mbuf = arrive(1, 3);
	assert_int_equal(source_poll(&steered.source, &setting->round), 1);
	assert_true(leaves_by(mbuf));
	seen->nb_taps = 1;
	seen->taps[0].mirror = egress_to(setting, 1, NULL);
	offer_buffers(&setting->stations[1], 1);
	mbuf = arrive(1, 3);
	assert_int_equal(source_poll(&steered.source, &setting->round), 1);
	assert_false(leaves_by(mbuf));
	assert_int_equal(setting->stations[1].counters.sent_packets, 1);
	forget(&steered);
	free(watch);
	free(seen);
}

/* A frame of so many bytes, which a guest takes in several buffers. */
static void arrive_long(uint32_t length)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	memset(rte_pktmbuf_append(mbuf, length), 0x11, length);
	assert_int_equal(rte_ring_enqueue(arrivals, mbuf), 0);
}

static void a_devices_frame_waits_for_all_the_buffers_that_it_needs(void **state)
{
	struct setting *setting = *state;
	struct queue_counters *counters = &setting->stations[1].counters;

	for (unsigned watched = 0; watched < 2; watched++) {
		struct watch *watch = watched ? calloc(1, sizeof(*watch)) : NULL;
		struct source source = to_station(setting, 1, watch);

		source.from = &setting->stations[3].port;
		memset(counters, 0, sizeof(*counters));
		offer_buffers(&setting->stations[1], 1);
		arrive_long(BUFFER + 100);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(source_poll(&source, &setting->round), 0);
		assert_int_equal(counters->sent_packets, 0);
		offer_buffers(&setting->stations[1], 1);
		assert_int_equal(source_poll(&source, &setting->round), 1);
		assert_int_equal(counters->sent_packets, 1);
		assert_int_equal(counters->sent_bytes, BUFFER + 100);
		/* For as long as frames wait. */
		offer_buffers(&setting->stations[1], 1);
		arrive_long(BUFFER + 100);
		assert_int_equal(source_poll(&source, &setting->round), 0);
		setting->round.now += PATIENCE + 1;
		assert_int_equal(source_poll(&source, &setting->round), 1);
		assert_int_equal(counters->drop_receiver_full, 1);
		assert_int_equal(source_poll(&source, &setting->round), 0);
		free(watch);
		end_with_device(state);
		start_with_device(state);
		setting = *state;
		counters = &setting->stations[1].counters;
	}
}

/* A TCP segment that the device has joined of so many. */
static struct rte_mbuf *joined(unsigned pieces)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	struct frame frame;

	frame_macs(&frame, 1, 2);
	frame_ipv4(&frame, 1, 2, IPPROTO_TCP, TCP_HEADER + pieces * PIECE, 0, 0);
	frame_add32(&frame, 0);
	frame_add32(&frame, 1);
	frame_add32(&frame, 0);
	frame_add32(&frame, (uint32_t)TCP_HEADER / 4 << 28);
	frame_add32(&frame, 0);
	memset(rte_pktmbuf_append(mbuf, frame.length + pieces * PIECE), 0, frame.length + pieces * PIECE);
	memcpy(rte_pktmbuf_mtod(mbuf, void *), frame.bytes, frame.length);
	mbuf->ol_flags = RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_NONE;
	mbuf->tso_segsz = PIECE;
	return mbuf;
}

static void a_devices_long_segments_wait_for_a_device(void **state)
{
	enum { COUNT = 5, EACH = 90, HELD = DEVICE_HELD / EACH };
	struct setting *setting = *state;
	struct port_queue *queue = &setting->stations[3].port.queues[0];
	struct source source = to_station(setting, 3, NULL);
	unsigned sent = 0;

	source.from = &setting->stations[3].port;
	for (unsigned i = 0; i < COUNT; i++)
		queue->unread[queue->nb_unread++] = joined(EACH);
	assert_int_equal(source_poll(&source, &setting->round), HELD);
	assert_int_equal(queue->nb_unread, COUNT - HELD);
	for (unsigned i = 0; i < COUNT * EACH / DEVICE_ROOM + COUNT; i++) {
		sent += take_from_wire();
		source_poll(&source, &setting->round);
	}
	assert_int_equal(sent + take_from_wire(), COUNT * EACH);
	assert_int_equal(setting->stations[3].counters.received_packets, COUNT);
	assert_int_equal(setting->stations[3].counters.drop_no_buffer, 0);
}

static void a_bridge_hands_over_what_it_does_not_flood(void **state)
{
	static const struct bridge_port_config ports[] = {{.name = "0"}, {.name = "1"}, {.name = "2"}};
	struct setting *setting = *state;
	struct bridge_memory *memory = bridge_memory_new(64);
	struct bridge *bridge = bridge_new(
		memory, &(struct bridge_config){.nb_ports = 3, .ports = ports, .ageing = 300, .flood = 1000});
	/* Frames come by the device as port 0; port 2 is the device as well. */
	const struct egress egresses[] = {{0}, egress_to(setting, 1, NULL), egress_to(setting, 3, NULL)};
	struct source source = source_of(setting, 3,
					 &(struct steering_config){.egresses = egresses,
								   .nb_egresses = 3,
								   .otherwise = STEERING_DROP,
								   .bridge = bridge,
								   .bridge_port = 0});
	struct bridge_decision decision;
	struct frame frame;
	uint64_t flaps = 0;

	offer_buffers(&setting->stations[1], 1);
	struct rte_mbuf *mbuf = arrive(9, 1);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	assert_false(leaves_by(mbuf));
	assert_int_equal(setting->stations[1].counters.sent_packets, 1);
	/* Station 9 speaks at port 2, and is known. */
	frame_macs(&frame, 2, 9);
	frame_add16(&frame, 0x0900);
	bridge_decide(bridge, 2, &(struct bridge_frame){frame.bytes, frame.length}, 1, setting->round.now, &decision,
		      &flaps);
	mbuf = arrive(9, 1);
	assert_int_equal(source_poll(&source, &setting->round), 1);
	assert_true(leaves_by(mbuf));
	steering_free(source.steering);
	bridge_free(bridge);
	bridge_memory_free(memory);
}

/* ------- what a driver refuses ------- */

enum { REFUSED = 0xbad, UDP_CHECKSUM_AT = 34 };

/* A driver that takes no frame to this port. */
static uint16_t refuse(void *queue, struct rte_mbuf **mbufs, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++)
		if (*rte_pktmbuf_mtod_offset(mbufs[i], rte_be16_t *, UDP_CHECKSUM_AT + 2) == RTE_BE16(REFUSED))
			return i;
	return count;
}

/* Frames to these ports whose checksum is left to the device. */
static void read_unfinished(struct burst *burst, const uint16_t *ports, unsigned count)
{
	burst_start(burst);
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = arrive(1, ports[i]), *taken = NULL;
		struct packet *packet;

		assert_int_equal(rte_ring_dequeue(arrivals, (void **)&taken), 0);
		assert_ptr_equal(taken, mbuf);
		packet = burst_add_mbuf(burst, mbuf);
		packet->offload = (struct virtio_net_hdr){
			.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = UDP_CHECKSUM_AT, .csum_offset = 6};
	}
}

static void what_the_driver_refuses_is_not_delivered(void **state)
{
	static const uint16_t ports[] = {REFUSED, 3, REFUSED, 4, REFUSED};
	static const uint8_t all[] = {0, 1, 2, 3, 4};
	struct setting *setting = *state;
	struct port *port = &setting->stations[3].port;
	static struct burst burst;

	rte_eth_fp_ops[device_id].tx_pkt_prepare = refuse;
	port->device.device.transmits = RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	read_unfinished(&burst, ports, RTE_DIM(ports));
	burst.packets[4].delivered = true; /* to another port */
	assert_int_equal(device_write(port, 0, &burst, all, burst.count, false), burst.count);
	assert_true(device_flush(port, 0));
	rte_eth_fp_ops[device_id].tx_pkt_prepare = NULL;
	assert_false(burst.packets[0].delivered);
	assert_true(burst.packets[1].delivered);
	assert_false(burst.packets[2].delivered);
	assert_true(burst.packets[3].delivered);
	assert_true(burst.packets[4].delivered);
	assert_int_equal(setting->stations[3].counters.sent_packets, 2);
	assert_int_equal(setting->stations[3].counters.drop_receiver_too_small, 3);
	assert_int_equal(take_from_wire(), 2);
	for (unsigned i = 0; i < burst.count; i++)
		rte_pktmbuf_free(burst.packets[i].mbuf);
}

/* ------- mirrors ------- */

static void copies_for_a_device_are_sent_when_it_has_room(void **state)
{
	for (unsigned steered = 0; steered < 2; steered++) {
		struct setting *setting = *state;
		struct watch *watch = calloc(1, sizeof(*watch) + sizeof(watch->taps[0]));
		struct steered to;
		struct source source;
		unsigned sent = 0;

		watch->nb_taps = 1;
		watch->taps[0].mirror = egress_to(setting, 3, NULL);
		steer_to_both(setting, &to);
		source = to.source;
		source.watch = watch;
		if (!steered) {
			source.kind = SOURCE_WATCHED;
			source.egress = egress_to(setting, 1, NULL);
		}
		offer_buffers(&setting->stations[1], 2 * DEVICE_ROOM);
		send_to_port(setting, 1, 2 * DEVICE_ROOM);
		assert_int_equal(source_poll(&source, &setting->round), 2 * DEVICE_ROOM);
		assert_true(source_owes(&source));
		for (unsigned i = 0; i < 4; i++) {
			sent += take_from_wire();
			assert_int_equal(source_poll(&source, &setting->round), 0);
		}
		assert_int_equal(sent + take_from_wire(), 2 * DEVICE_ROOM);
		assert_false(source_owes(&source));
		forget(&to);
		free(watch);
		end_with_device(state);
		start_with_device(state);
	}
}

/* ------- a switch that is killed ------- */

static eth_tx_burst_t send_to_wire;
static struct simulated_guest *sender;
static unsigned given_to_driver;

/* What is sent is the sender's again: if this were the switch's end, the next one would not send it once more. */
static uint16_t send_what_is_given_back(void *queue, struct rte_mbuf **mbufs, uint16_t count)
{
	given_to_driver += count;
	assert_true(guest_taken(sender) >= given_to_driver);
	return send_to_wire(queue, mbufs, count);
}

static void send_three(struct setting *setting, struct source *source, uint16_t port)
{
	const unsigned before = guest_taken(sender);

	given_to_driver = before;
	send_to_port(setting, port, 3);
	assert_int_equal(source_poll(source, &setting->round), 3);
	assert_int_equal(given_to_driver, before + 3);
	assert_int_equal(take_from_wire(), 3);
}

static void a_sender_has_its_frames_back_before_a_device_sends_them(void **state)
{
	struct setting *setting = *state;
	struct watch *watch = calloc(1, sizeof(*watch) + sizeof(watch->taps[0]));
	struct source source = to_station(setting, 3, NULL);
	struct steered steered;

	sender = &setting->stations[0].sends;
	send_to_wire = rte_eth_fp_ops[device_id].tx_pkt_burst;
	rte_eth_fp_ops[device_id].tx_pkt_burst = send_what_is_given_back;
	send_three(setting, &source, 3);
	source = to_station(setting, 3, watch);
	send_three(setting, &source, 3);
	steer_to_both(setting, &steered);
	send_three(setting, &steered.source, 3);
	/* Copies for a mirror. */
	watch->nb_taps = 1;
	watch->taps[0].mirror = egress_to(setting, 3, NULL);
	source = to_station(setting, 1, watch);
	offer_buffers(&setting->stations[1], 6);
	send_three(setting, &source, 1);
	steered.source.watch = watch;
	send_three(setting, &steered.source, 1);
	rte_eth_fp_ops[device_id].tx_pkt_burst = send_to_wire;
	forget(&steered);
	free(watch);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start_with_device, end_with_device)
	const struct CMUnitTest tests[] = {
		TEST(frames_for_a_full_device_are_sent_when_it_has_room),
		TEST(frames_for_a_full_device_are_sent_while_others_go_elsewhere),
		TEST(a_device_that_stays_full_keeps_frames_for_the_time_that_is_stated),
		TEST(a_device_that_another_worker_has_is_come_back_to),
		TEST(a_guest_is_told_of_its_last_frame_while_others_go_elsewhere),
		TEST(a_guest_is_told_of_its_last_frame_while_its_sender_has_reached_its_rate),
		TEST(a_receiver_that_another_worker_has_is_come_back_to),
		TEST(frames_for_a_ring_that_is_stopped_do_not_wait),
		TEST(a_share_that_another_worker_is_at_costs_no_frame),
		TEST(frames_that_there_is_no_buffer_for_are_not_the_devices),
		TEST(long_segments_wait_with_their_guest_for_a_device),
		TEST(a_new_program_flushes_what_the_one_before_gave),
		TEST(a_frame_that_is_steered_to_one_device_is_handed_over),
		TEST(a_devices_frame_waits_for_all_the_buffers_that_it_needs),
		TEST(a_devices_long_segments_wait_for_a_device),
		TEST(a_bridge_hands_over_what_it_does_not_flood),
		TEST(what_the_driver_refuses_is_not_delivered),
		TEST(copies_for_a_device_are_sent_when_it_has_room),
		TEST(a_sender_has_its_frames_back_before_a_device_sends_them),
	};

	return cmocka_run_group_tests(tests, start_all, NULL);
}
