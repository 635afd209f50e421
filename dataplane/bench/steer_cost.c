/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-steer-cost: TSC cycles for each frame of what steering decides, without the moving of frames.  Each line is
 * the least of several rounds over frames in random order, a burst at a time, as a worker does it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "common/option.h"
#include "steer/bridge.h"
#include "steer/classify.h"
#include "steer/pin.h"
#include "test/frame_builder.h"

enum { BURST = 64, FRAMES = 1 << 20, BRIDGED = 1 << 12, ROUNDS = 5 };

static struct headers *headers;

static double least(double best, double cycles)
{
	return best == 0 || cycles < best ? cycles : best;
}

static void report(const char *what, double cycles)
{
	printf("%-44s %6.1f cycles a frame\n", what, cycles);
}

/* FRAMES headers of so many flows, in random order; the source address is the flow's number. */
static void make_headers(uint32_t flows)
{
	uint64_t seed = 1;

	for (unsigned i = 0; i < FRAMES; i++) {
		const uint32_t flow = flows == FRAMES ? i : random64(&seed) % flows;
		struct frame frame;

		frame_udp4(&frame, 0x0a000000 + flow, 0xc0a80001, 1024 + flow % 1000, 80);
		parse_frame(frame.bytes, frame.length, &headers[i]);
	}
	for (unsigned i = FRAMES - 1; flows > 1 && i > 0; i--) {
		const unsigned j = random64(&seed) % (i + 1);
		const struct headers other = headers[i];

		headers[i] = headers[j];
		headers[j] = other;
	}
}

static void parsing(void)
{
	static struct frame frames[BURST];
	struct headers out[BURST];
	double best = 0;

	for (unsigned i = 0; i < BURST; i++)
		frame_udp4(&frames[i], i, 2, 3, 4);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t start = rte_rdtsc();

		for (unsigned burst = 0; burst < FRAMES / BURST; burst++)
			for (unsigned i = 0; i < BURST; i++) {
				parse_frame(frames[i].bytes, frames[i].length, &out[i]);
				__asm__ volatile("" ::"m"(out[i]));
			}
		best = least(best, (double)(rte_rdtsc() - start) / FRAMES);
	}
	report("parse, UDP over IPv4", best);
}

static void classifying(unsigned rules)
{
	struct rule *list = calloc(rules, sizeof(*list));
	struct classifier *classifier;
	uint32_t actions[BURST];
	double best = 0, building = 0;
	unsigned culprit;
	char text[64];

	for (unsigned i = 0; i < rules; i++) {
		const uint32_t address = htonl(0x0a000000 + i);

		list[i] = (struct rule){{.fields = MATCH_SOURCE, .source = {HEADERS_IPV4, 32, {0}}}, i};
		memcpy(list[i].match.source.address, &address, 4);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t start = rte_rdtsc();

		if (classifier_build(&classifier, list, rules, 0, &culprit) != 0)
			abort();
		building = least(building, rte_rdtsc() - start);
		if (round + 1 < ROUNDS)
			free(classifier);
	}
	make_headers(rules);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t start = rte_rdtsc();

		for (unsigned i = 0; i < FRAMES; i += BURST) {
			classify(classifier, &headers[i], BURST, actions);
			__asm__ volatile("" ::"m"(actions));
		}
		best = least(best, (double)(rte_rdtsc() - start) / FRAMES);
	}
	snprintf(text, sizeof(text), "classify, %u rules, built in %.0f kcycles", rules, building / 1000);
	report(text, best);
	free(classifier);
	free(list);
}

static void pinning(unsigned flows)
{
	static const struct pin_replica replicas[] = {{"a", false}, {"b", false}, {"c", false}, {"d", false}};
	struct pin_memory *memory = pin_memory_new(PIN_FLOW_SECONDS);
	struct pin_group *group = pin_group_new(memory, false, replicas, 4);
	uint8_t all[BURST], chosen[BURST];
	double best = 0;
	char text[64];

	for (unsigned i = 0; i < BURST; i++)
		all[i] = i;
	make_headers(flows);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t start = rte_rdtsc();

		for (unsigned i = 0; i < FRAMES; i += BURST) {
			pin(group, &headers[i], all, BURST, start, chosen);
			__asm__ volatile("" ::"m"(chosen));
		}
		best = least(best, (double)(rte_rdtsc() - start) / FRAMES);
	}
	snprintf(text, sizeof(text), "pin, %u flows", flows);
	report(text, best);
	pin_group_free(group);
	pin_memory_free(memory);
}

/* Every station speaks to every other, from one port. */
static void bridging(unsigned stations)
{
	static const struct bridge_port_config ports[] = {{.name = "a"}, {.name = "b"}};
	struct bridge_memory *memory = bridge_memory_new(2 * stations + 16);
	struct bridge *bridge = bridge_new(
		memory, &(struct bridge_config){.nb_ports = 2, .ports = ports, .ageing = 300, .flood = 1});
	uint8_t(*frames)[32] = calloc(BRIDGED, sizeof(*frames)); /* small, so that they stay in the cache */
	struct bridge_decision decisions[BURST];
	uint64_t seed = 1, flaps = 0;
	double best = 0;
	char text[64];

	for (unsigned i = 0; i < BRIDGED; i++) {
		const uint32_t from = random64(&seed) % stations, to = random64(&seed) % stations;

		memcpy(frames[i] + 1, &to, 4);
		memcpy(frames[i] + 7, &from, 4);
		frames[i][0] = frames[i][6] = 2;
		frames[i][12] = 8;
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t start = rte_rdtsc();

		for (unsigned i = 0; i < BRIDGED; i += BURST) {
			struct bridge_frame views[BURST];

			for (unsigned j = 0; j < BURST; j++)
				views[j] = (struct bridge_frame){frames[i + j], 18};
			bridge_decide(bridge, 0, views, BURST, start, decisions, &flaps);
			__asm__ volatile("" ::"m"(decisions));
		}
		best = least(best, (double)(rte_rdtsc() - start) / (BRIDGED));
	}
	snprintf(text, sizeof(text), "bridge, %u stations", stations);
	report(text, best);
	free(frames);
	bridge_free(bridge);
	bridge_memory_free(memory);
}

int main(int argc, char **argv)
{
	option_none(argc, argv, "TSC cycles for each frame of what steering decides.");
	headers = aligned_alloc(64, FRAMES * sizeof(*headers));
	if (headers == NULL)
		return 1;
	parsing();
	for (unsigned rules = 1; rules <= 1000; rules *= 10)
		classifying(rules);
	for (unsigned flows = 1; flows < FRAMES; flows *= 100)
		pinning(flows);
	bridging(2);
	bridging(4000);
	free(headers);
	return 0;
}
