/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a flow is kept: nobody who does not know the secret can have many flows kept in one place.  And what the table
 * shows of flows, beside traffic.
 */
#include "test/cmocka_all.h"

#include <stdlib.h>

#include "functions/connections.h"
#include "functions/plain.h"
#include "test/start_dpdk.h"

enum { FLOWS = 20000, TCP = 6 };

static const struct connections table = {
	.secret = {0x243f6a8885a308d3, 0x13198a2e03707344},
	.tails_secret = {0xa4093822299f31d0, 0x082efa98ec4e6c89},
};

static uint64_t mixed(uint64_t number)
{
	return hash_mix(number ^ HASH_0, HASH_1);
}

static int compare(const void *one, const void *other)
{
	const uint64_t first = *(const uint64_t *)one, second = *(const uint64_t *)other;

	return (first > second) - (first < second);
}

/* Flows that differ by their addresses alone, of which `make` writes the four words of the nth. */
static void assert_apart(void (*make)(uint64_t n, uint64_t *words))
{
	static uint64_t hashes[FLOWS];

	for (uint64_t n = 0; n < FLOWS; n++) {
		uint64_t words[CONNECTION_KEY_WORDS] = {0};

		words[4] = (uint64_t)RTE_ETHER_TYPE_IPV6 << 32 | (uint64_t)HEADERS_IPV6 << 48 | (uint64_t)TCP << 56;
		words[5] = PLAIN_PORTS | 80 << 16 | 1024;
		make(n, words);
		hashes[n] = connection_hash(&table, words);
	}
	qsort(hashes, FLOWS, sizeof(hashes[0]), compare);
	for (unsigned i = 1; i < FLOWS; i++)
		assert_true(hashes[i] != hashes[i - 1]);
}

/* What would be the same where the two first halves were made one word, as those of IPv4 are. */
static void second_halves_are_zeros(uint64_t n, uint64_t *words)
{
	words[0] = mixed(n);
	words[2] = words[0] << 32 | words[0] >> 32;
}

static void a_second_half_is_a_constant_of_the_hash(uint64_t n, uint64_t *words)
{
	static const uint64_t constants[] = {HASH_0, HASH_1, HASH_2, HASH_3, HASH_4, HASH_5};

	words[0] = 0x20010db8;
	words[1] = mixed(n / RTE_DIM(constants));
	words[2] = 0x20010db8;
	words[3] = constants[n % RTE_DIM(constants)];
}

static void ends_are_each_other_s(uint64_t n, uint64_t *words)
{
	words[0] = words[3] = mixed(2 * n);
	words[1] = words[2] = mixed(2 * n + 1);
}

static void both_halves_are_the_same(uint64_t n, uint64_t *words)
{
	words[0] = words[1] = mixed(2 * n);
	words[2] = words[3] = mixed(2 * n + 1);
}

static void addresses_of_ipv6_that_were_chosen_are_apart(void **state)
{
	assert_apart(second_halves_are_zeros);
	assert_apart(a_second_half_is_a_constant_of_the_hash);
	assert_apart(ends_are_each_other_s);
	assert_apart(both_halves_are_the_same);
}

static void a_plain_flow_has_the_hash_of_its_key(void **state)
{
	for (uint64_t n = 0; n < FLOWS; n++) {
		const uint64_t ends = mixed(n), last = PLAIN_PORTS | (uint32_t)mixed(ends);
		const uint64_t words[CONNECTION_KEY_WORDS] = {(uint32_t)ends, 0, ends >> 32, 0, plain_kind(TCP), last};

		assert_int_equal(connection_hash(&table, words),
				 connection_hash_words(&table, ends, plain_kind(TCP), last));
	}
}

/* Frames go on while the rows are made of a tick that was read before. */
static void a_flow_that_is_seen_meanwhile_is_not_idle(void **state)
{
	const uint32_t tick = 5, second = (uint32_t)(rte_get_tsc_hz() >> CONNECTION_TICK_SHIFT) + 1;
	struct connection entries[] = {
		{.state = CONNECTION_none},
		{.state = CONNECTION_two_way, .seen = tick + 1},
		{.state = CONNECTION_two_way, .seen = tick},
		{.state = CONNECTION_two_way, .seen = tick - second}, /* before ticks began anew */
	};
	struct connections flows = {.flows = entries, .most = RTE_DIM(entries) - 1, .used = RTE_DIM(entries) - 1};
	const struct connection_tables tables = {.tables = {&flows}, .nb = 1};
	json_t *table = connections_show(&tables, flows.most, tick), *rows = json_object_get(table, "rows"), *row;
	size_t i;

	assert_int_equal(json_array_size(rows), flows.most);
	json_array_foreach (rows, i, row)
		assert_int_equal(json_integer_value(json_object_get(row, "idle_s")), i == 2);
	json_decref(table);
}

/* Who has slept looks at all that would have been looked at meanwhile, and at no more than a part between two frames.
 */
static void a_sweep_makes_up_for_a_rest(void **state)
{
	enum { KNOWN = 3000, PART = 1024 };
	const struct connection_limits limits = {.most = 20000, .seconds = {[CONNECTION_TIMEOUT_one_way] = 10}};
	const uint32_t second = (uint32_t)(rte_get_tsc_hz() >> CONNECTION_TICK_SHIFT) + 1;
	uint32_t tick = connections_tick(rte_rdtsc()) + second;
	struct connections flows;

	assert_int_equal(connections_open(&flows, &limits), 0);
	for (uint64_t n = 0; n < KNOWN; n++) {
		struct connection_key key = {.words = {n, 0, KNOWN, 0, plain_kind(TCP), PLAIN_PORTS}};

		key.hash = connection_hash(&flows, key.words);
		assert_non_null(connections_add(&flows, &key, CONNECTION_one_way, 0, tick));
	}
	do
		connections_sweep(&flows, tick);
	while (connections_sweep_waits(&flows));
	assert_int_equal(flows.used, KNOWN);
	tick += 20 * second;
	connections_sweep(&flows, tick);
	assert_in_range(flows.used, KNOWN - PART, KNOWN);
	while (connections_sweep_waits(&flows))
		connections_sweep(&flows, tick);
	assert_int_equal(flows.used, 0);
	connections_close(&flows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_of_ipv6_that_were_chosen_are_apart),
		cmocka_unit_test(a_plain_flow_has_the_hash_of_its_key),
		cmocka_unit_test(a_flow_that_is_seen_meanwhile_is_not_idle),
		cmocka_unit_test(a_sweep_makes_up_for_a_rest),
	};

	if (start_dpdk(32) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
