/* SPDX-License-Identifier: Apache-2.0
 *
 * LACP of a bond: whose slow-protocol frames leave by a member (those of DPDK's driver, and nobody else's), and the
 * memory that the driver takes.
 */
#define ALLOW_EXPERIMENTAL_API /* rte_eth_bond_member_add() in DPDK 23.11 */
#include "test/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "port/device_bond_internal.h"
#include "test/start_dpdk.h"

enum { SHIM = 7, FRAME = 124, MEMBERS = 2, QUEUES = 4 };

#define SLOW_ADDRESS 0x01, 0x80, 0xc2, 0x00, 0x00, 0x02
#define STATION	     0x02, 0x00, 0x00, 0x00, 0x00, 0x01
#define LACP	     0x88, 0x09, 0x01, 0x01

static struct rte_mempool *bonds_own, *another_ports, *drivers;
static const char *const member_names[MEMBERS] = {"net_null_one", "net_null_two"};
static struct bond bond;
static struct bond_member member;
static int cable;

static int start(void **state)
{
	int ends[2];

	if (start_dpdk(64) != 0)
		return -1;
	rte_log_set_level_pattern("pmd.net.bond*", RTE_LOG_CRIT); /* a null device has no modes to be set */
	bonds_own = rte_pktmbuf_pool_create("device_0", 63, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	another_ports = rte_pktmbuf_pool_create("device_1", 63, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	drivers = rte_pktmbuf_pool_create("slave_port7_pool", 63, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0)
		return -1;
	bond.mode = BOND_LACP;
	bond.options.pool = bonds_own;
	member.bond = &bond;
	member.shim = SHIM;
	member.slow_fd = ends[0];
	cable = ends[1];
	return bonds_own == NULL || another_ports == NULL || drivers == NULL;
}

static int stop(void **state)
{
	bond_close_slow(&member);
	close(cable);
	return member.slow_fd != -1;
}

static struct rte_mbuf *frame_of(struct rte_mempool *pool, const uint8_t *head, unsigned length)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	uint8_t *bytes;

	assert_non_null(mbuf);
	bytes = (uint8_t *)rte_pktmbuf_append(mbuf, FRAME);
	memset(bytes, 0, FRAME);
	memcpy(bytes, head, length);
	return mbuf;
}

/* Whether something has left by the member's socket. */
static bool has_left(uint8_t *frame)
{
	return recv(cable, frame, FRAME, MSG_DONTWAIT) == FRAME;
}

static void the_driver_s_own_leave_and_ask_for_more(void **state)
{
	static const uint8_t head[] = {SLOW_ADDRESS, STATION, LACP};
	struct rte_mbuf *mbuf = frame_of(drivers, head, sizeof(head));
	uint8_t frame[FRAME];
	uint16_t count = 1;

	assert_true(bond_send_slow(&member, &mbuf, &count));
	assert_true(has_left(frame));
	assert_memory_equal(frame, head, sizeof(head));
	assert_int_equal(((const struct lacpdu_header *)(const void *)frame)->lacpdu.actor.state, 0x02);
	rte_pktmbuf_free(mbuf);
}

static void nobody_else_s_do_whatever_port_they_came_by(void **state)
{
	static const uint8_t heads[][22] = {
		{SLOW_ADDRESS, STATION, LACP},
		{STATION, STATION, LACP},
		{SLOW_ADDRESS, STATION, 0x08, 0x00},
		{STATION, STATION, 0x81, 0x00, 0x00, 0x00, LACP},
		{STATION, STATION, 0x88, 0xa8, 0x00, 0x01, 0x81, 0x00, 0x00, 0x02, 0x88, 0x09},
	};
	struct rte_mempool *const pools[] = {bonds_own, another_ports};
	uint8_t frame[FRAME];

	for (unsigned i = 0; i < RTE_DIM(heads); i++)
		for (unsigned j = 0; j < RTE_DIM(pools); j++) {
			struct rte_mbuf *mbuf = frame_of(pools[j], heads[i], sizeof(heads[i]));
			uint16_t count = 1;

			assert_false(bond_send_slow(&member, &mbuf, &count));
			assert_int_equal(count, 0);
			assert_false(has_left(frame));
			rte_pktmbuf_free(mbuf);
		}
}

static void other_frames_may_leave(void **state)
{
	static const uint8_t heads[][22] = {
		{STATION, STATION, 0x08, 0x00},
		{STATION, STATION, 0x81, 0x00, 0x00, 0x01, 0x08, 0x00},
		/* Behind three tags no station looks for it. */
		{STATION, STATION, 0x81, 0x00, 0x00, 0x01, 0x81, 0x00, 0x00, 0x01, 0x81, 0x00},
		{SLOW_ADDRESS, STATION, LACP},
		{STATION, STATION, 0x08, 0x00},
	};
	struct rte_mbuf *mbufs[RTE_DIM(heads)];
	uint16_t count = RTE_DIM(heads);
	uint8_t frame[FRAME];

	for (unsigned i = 0; i < RTE_DIM(heads); i++)
		mbufs[i] = frame_of(another_ports, heads[i], sizeof(heads[i]));
	assert_false(bond_send_slow(&member, mbufs, &count));
	assert_int_equal(count, 3); /* those before it */
	assert_false(has_left(frame));
	rte_pktmbuf_free_bulk(mbufs, RTE_DIM(heads));
}

static void a_frame_that_ends_within_a_tag_is_not_read_beyond(void **state)
{
	static const uint8_t head[] = {STATION, STATION, 0x81, 0x00, 0x00, 0x00, 0x88, 0x09};
	struct rte_mbuf *mbuf = frame_of(another_ports, head, sizeof(head));
	uint16_t count = 1;

	rte_pktmbuf_trim(mbuf, FRAME - sizeof(head) + 1);
	assert_false(bond_send_slow(&member, &mbuf, &count));
	assert_int_equal(count, 1);
	rte_pktmbuf_free(mbuf);
}

/* Of a member that the driver has not activated yet. */
static void without_the_driver_s_pool_nothing_is_its_own(void **state)
{
	static const uint8_t head[] = {SLOW_ADDRESS, STATION, LACP};
	struct bond_member another = {.bond = &bond, .shim = SHIM + 1, .slow_fd = member.slow_fd};
	struct rte_mbuf *mbuf = frame_of(drivers, head, sizeof(head));
	uint8_t frame[FRAME];
	uint16_t count = 1;

	assert_false(bond_send_slow(&another, &mbuf, &count));
	assert_int_equal(count, 0);
	assert_false(has_left(frame));
	rte_pktmbuf_free(mbuf);
}

/* ------- whom members join ------- */

enum { AGREES = 0x0f, COLLECTS = 0x1f, JOINS = 0x38 }; /* of LACP's state */

static struct bond two;
static struct rte_eth_bond_8023ad_member_info heard[MEMBERS];

bool __wrap_bond_lacp_state(const struct bond_member *asked, struct rte_eth_bond_8023ad_member_info *info);

bool __wrap_bond_lacp_state(const struct bond_member *asked, struct rte_eth_bond_8023ad_member_info *info)
{
	*info = heard[asked - two.members];
	return asked->joined;
}

static void begin_two(void)
{
	two = (struct bond){.mode = BOND_LACP, .count = MEMBERS};
	memset(heard, 0, sizeof(heard));
	for (unsigned i = 0; i < MEMBERS; i++) {
		two.members[i].bond = &two;
		two.members[i].shim = SHIM;
		two.members[i].slow_fd = member.slow_fd;
		two.members[i].joined = true;
		heard[i].actor_state = LACP_ALONE;
	}
}

/* The driver would read what the buffer had before it (Linux's bond takes none either). */
static void one_that_is_cut_short_does_not_reach_the_driver(void **state)
{
	static const uint8_t heads[][22] = {{SLOW_ADDRESS, STATION, LACP},
					    {SLOW_ADDRESS, STATION, 0x88, 0x09, 0x02, 0x01},
					    {SLOW_ADDRESS, STATION, 0x88, 0x09, 0x03}}; /* OAM, which may be short */

	for (unsigned i = 0; i < RTE_DIM(heads); i++)
		for (unsigned length = sizeof(struct rte_ether_hdr); length <= FRAME; length++) {
			struct rte_mbuf *mbuf = frame_of(bonds_own, heads[i], sizeof(heads[i]));
			const bool whole = length == FRAME || (i == 2 && length > sizeof(struct rte_ether_hdr));

			begin_two();
			rte_pktmbuf_trim(mbuf, (uint16_t)(FRAME - length));
			assert_int_equal(bond_take_slow(&two.members[0], &mbuf, 1), whole);
			assert_int_equal(two.members[0].strays, !whole);
			if (whole)
				rte_pktmbuf_free(mbuf);
		}
}

/* Bridges forward what is to any other address: so anybody in the network might have sent it. */
static void one_to_another_address_does_not_reach_the_driver(void **state)
{
	static const uint8_t heads[][22] = {
		{STATION, STATION, LACP},
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, STATION, LACP},
		{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e, STATION, LACP},
		{STATION, STATION, 0x88, 0x09, 0x02, 0x01},
	};

	begin_two();
	for (unsigned i = 0; i < RTE_DIM(heads); i++) {
		struct rte_mbuf *mbuf = frame_of(bonds_own, heads[i], sizeof(heads[i]));

		rte_pktmbuf_mtod(mbuf, struct lacpdu_header *)->lacpdu.actor.state = COLLECTS;
		assert_int_equal(bond_take_slow(&two.members[0], &mbuf, 1), 0);
		assert_int_equal(two.members[0].strays, i + 1);
		assert_true(rte_is_zero_ether_addr(&two.chosen.system));
	}
}

/* The state with which the driver gets what an other end, of which this is the last byte of its system, says. */
static uint8_t hears(unsigned which, uint8_t end, uint8_t state)
{
	static const uint8_t head[] = {SLOW_ADDRESS, STATION, LACP};
	struct rte_mbuf *mbuf = frame_of(bonds_own, head, sizeof(head));
	struct lacpdu *lacpdu = &rte_pktmbuf_mtod(mbuf, struct lacpdu_header *)->lacpdu;

	lacpdu->actor.port_params.system.addr_bytes[5] = end;
	lacpdu->actor.state = state;
	assert_int_equal(bond_take_slow(&two.members[which], &mbuf, 1), 1);
	state = lacpdu->actor.state;
	heard[which] = (struct rte_eth_bond_8023ad_member_info){
		.actor_state = AGREES, .partner_state = state, .partner = lacpdu->actor.port_params};
	rte_pktmbuf_free(mbuf);
	return state;
}

/* The state with which leaves what the driver says to it. */
static uint8_t says(unsigned which, uint8_t end, uint8_t state)
{
	static const uint8_t head[] = {SLOW_ADDRESS, STATION, LACP};
	struct rte_mbuf *mbuf = frame_of(drivers, head, sizeof(head));
	struct lacpdu *lacpdu = &rte_pktmbuf_mtod(mbuf, struct lacpdu_header *)->lacpdu;
	uint8_t frame[FRAME];
	uint16_t count = 1;

	lacpdu->actor.state = state;
	lacpdu->partner.port_params.system.addr_bytes[5] = end;
	assert_true(bond_send_slow(&two.members[which], &mbuf, &count));
	assert_true(has_left(frame));
	rte_pktmbuf_free(mbuf);
	return ((const struct lacpdu_header *)(const void *)frame)->lacpdu.actor.state;
}

static void pass_seconds(unsigned seconds)
{
	two.chosen_at -= seconds * rte_get_tsc_hz();
}

/* Members that lead to one another, or to a switch that floods LACP, would agree with themselves. */
static void the_bond_s_own_that_comes_back_is_not_heard(void **state)
{
	static const uint8_t head[] = {SLOW_ADDRESS, STATION, LACP}, own[] = {0x02, 0, 0, 0, 0, 0x77};
	struct rte_mbuf *mbuf = frame_of(drivers, head, sizeof(head));
	uint8_t frame[FRAME];
	uint16_t count = 1;

	begin_two();
	memcpy(&rte_pktmbuf_mtod(mbuf, struct lacpdu_header *)->lacpdu.actor.port_params.system, own, sizeof(own));
	assert_true(bond_send_slow(&two.members[0], &mbuf, &count));
	assert_true(has_left(frame));
	rte_pktmbuf_free(mbuf);
	for (unsigned which = 0; which < MEMBERS; which++) {
		mbuf = frame_of(bonds_own, frame, FRAME);
		assert_int_equal(bond_take_slow(&two.members[which], &mbuf, 1), 0);
		assert_int_equal(two.members[which].strays, 1);
		assert_true(two.members[which].looped);
	}
	assert_int_equal(hears(1, 2, COLLECTS), COLLECTS);
	assert_true(two.members[0].looped && !two.members[1].looped);
}

static void an_end_that_never_agrees_is_not_chosen(void **state)
{
	begin_two();
	assert_int_equal(hears(0, 1, AGREES & ~JOINS), AGREES & ~JOINS);
	assert_int_equal(says(0, 1, COLLECTS), AGREES);
	bond_choose(&two);
	assert_int_equal(hears(1, 2, COLLECTS), COLLECTS);
	bond_choose(&two);
	assert_int_equal(says(1, 2, COLLECTS), COLLECTS);
	assert_int_equal(says(0, 1, COLLECTS), COLLECTS & ~JOINS);
	assert_true(two.members[0].aside && !two.members[1].aside);
}

static void an_end_that_does_not_collect_is_let_go_of(void **state)
{
	begin_two();
	assert_int_equal(hears(0, 1, AGREES), AGREES);
	assert_int_equal(hears(1, 2, AGREES), AGREES & ~JOINS);
	pass_seconds(4);
	bond_choose(&two);
	assert_true(!two.members[0].aside && two.members[1].aside);
	pass_seconds(2);
	bond_choose(&two);
	assert_false(two.members[1].aside);
	assert_int_equal(hears(1, 2, COLLECTS), COLLECTS);
	pass_seconds(6);
	bond_choose(&two);
	assert_true(two.members[0].aside && !two.members[1].aside);
	assert_int_equal(hears(0, 1, COLLECTS), COLLECTS & ~JOINS);

	/* Nobody is heard there, or the link is lost. */
	heard[1].actor_state = LACP_ALONE;
	bond_choose(&two);
	assert_int_equal(hears(0, 1, COLLECTS), COLLECTS);
	two.members[0].joined = false;
	bond_choose(&two);
	assert_int_equal(hears(1, 2, COLLECTS), COLLECTS);
}

/* Frames come a moment before the driver knows of them. */
static void a_choice_is_kept_until_the_driver_knows_of_it(void **state)
{
	begin_two();
	assert_int_equal(hears(0, 1, COLLECTS), COLLECTS);
	heard[0].actor_state = LACP_ALONE;
	bond_choose(&two);
	assert_int_equal(hears(1, 2, COLLECTS), COLLECTS & ~JOINS);
}

static void a_lock_that_is_held_is_not_waited_for(void **state)
{
	begin_two();
	assert_int_equal(hears(0, 1, AGREES), AGREES);
	assert_int_equal(hears(1, 2, AGREES), AGREES & ~JOINS);
	rte_spinlock_lock(&two.choice);
	assert_int_equal(hears(0, 1, AGREES), AGREES);
	assert_int_equal(hears(1, 2, AGREES), AGREES & ~JOINS);
	rte_spinlock_unlock(&two.choice);
}

/* ------- memory ------- */

static size_t memory_taken(void)
{
	struct rte_malloc_socket_stats heap;

	assert_int_equal(rte_malloc_get_socket_stats((int)rte_socket_id(), &heap), 0);
	return heap.heap_allocsz_bytes;
}

/* A bond of the driver's own, with devices as a bond gives them to it.  It is not started. */
static uint16_t make_drivers_bond(uint16_t *members)
{
	const struct rte_eth_conf config = {0};
	const int made = rte_eth_bond_create("net_bonding0", BONDING_MODE_8023AD, 0);
	const uint16_t port = (uint16_t)made;

	assert_true(made >= 0);
	for (unsigned i = 0; i < MEMBERS; i++) {
		assert_int_equal(rte_vdev_init(member_names[i], "no-rx=1"), 0);
		assert_int_equal(rte_eth_dev_get_port_by_name(member_names[i], &members[i]), 0);
		assert_int_equal(rte_eth_dev_configure(members[i], QUEUES, QUEUES, &config), 0);
		assert_int_equal(rte_eth_bond_member_add(port, members[i]), 0);
	}
	assert_int_equal(rte_eth_dev_configure(port, QUEUES, QUEUES, &config), 0);
	for (uint16_t i = 0; i < QUEUES; i++) {
		assert_int_equal(rte_eth_rx_queue_setup(port, i, DEVICE_DESCRIPTORS, 0, NULL, bonds_own), 0);
		assert_int_equal(rte_eth_tx_queue_setup(port, i, DEVICE_DESCRIPTORS, 0, NULL), 0);
	}
	return port;
}

/* What it makes last, in a thread of DPDK's that has seen a member's link. */
static bool has_ring(uint16_t shim)
{
	static const char *const names[] = {"slave_%u_tx", "member_%u_tx"};
	char name[RTE_RING_NAMESIZE];
	bool has = false;

	for (unsigned i = 0; i < RTE_DIM(names) && !has; i++) {
		snprintf(name, sizeof(name), names[i], shim);
		has = rte_ring_lookup(name) != NULL;
	}
	return has;
}

/* With too little the driver ends the program. */
static void the_driver_s_memory_is_asked_for_before(void **state)
{
	const size_t asked = bond_memory("bond:lacp,if:eth1,if:eth2", QUEUES);
	struct bond checked = {.mode = BOND_LACP, .queues = 1000, .count = MEMBERS};
	struct device_error error;
	uint16_t members[MEMBERS];
	uint16_t port = make_drivers_bond(members);
	const size_t before = memory_taken();

	for (unsigned i = 0; i < MEMBERS; i++) {
		checked.members[i].bond = &checked;
		checked.members[i].shim = members[i];
	}
	assert_false(bond_has_slow_memory(&checked.members[0]));
	assert_int_equal(bond_check_slow_memory(&checked, &error), -ENOMEM);
	assert_non_null(strstr(error.text, "--memory"));
	assert_int_equal(rte_eth_dev_start(port), 0);
	for (unsigned i = 0; i < MEMBERS; i++)
		for (unsigned tries = 0; !has_ring(members[i]); tries++) {
			assert_true(tries < 20000);
			usleep(1000);
		}
	assert_in_range(memory_taken() - before, asked / 2, asked);
	/* It has it for good. */
	assert_true(bond_has_slow_memory(&checked.members[0]));
	assert_int_equal(bond_check_slow_memory(&checked, &error), 0);
	assert_int_equal(bond_memory("bond:active-backup,if:eth1,if:eth2", QUEUES), 0);
	assert_int_equal(device_port_memory("bond:lacp,if:eth1,if:eth2", QUEUES),
			 device_port_memory("bond:active-backup,if:eth1,if:eth2", QUEUES) + asked);
	rte_eth_dev_stop(port);
	for (unsigned i = 0; i < MEMBERS; i++)
		rte_eth_bond_member_remove(port, members[i]);
	assert_int_equal(rte_eth_bond_free("net_bonding0"), 0);
	for (unsigned i = 0; i < MEMBERS; i++)
		assert_int_equal(rte_vdev_uninit(member_names[i]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_else_s_do_whatever_port_they_came_by),
		cmocka_unit_test(the_driver_s_own_leave_and_ask_for_more),
		cmocka_unit_test(other_frames_may_leave),
		cmocka_unit_test(a_frame_that_ends_within_a_tag_is_not_read_beyond),
		cmocka_unit_test(without_the_driver_s_pool_nothing_is_its_own),
		cmocka_unit_test(one_that_is_cut_short_does_not_reach_the_driver),
		cmocka_unit_test(one_to_another_address_does_not_reach_the_driver),
		cmocka_unit_test(the_bond_s_own_that_comes_back_is_not_heard),
		cmocka_unit_test(an_end_that_never_agrees_is_not_chosen),
		cmocka_unit_test(an_end_that_does_not_collect_is_let_go_of),
		cmocka_unit_test(a_choice_is_kept_until_the_driver_knows_of_it),
		cmocka_unit_test(a_lock_that_is_held_is_not_waited_for),
		cmocka_unit_test(the_driver_s_memory_is_asked_for_before),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
