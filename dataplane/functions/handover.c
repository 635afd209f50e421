/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <netinet/in.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_ether.h>

#include "common/log.h"
#include "function.h"
#include "handover.h"

enum {
	SCAN = 1 << 20,	 /* entries that are looked at for a page */
	LATE = 20,	 /* a part of a second by which the forwarding thread may be late in writing a tick */
	PATIENCE = 2000, /* ms that the forwarding thread has for a batch */
	RECORD = sizeof(struct handover_record),
};

static const char *const result_names[HANDOVER_NB_RESULTS] = {
#define X(name) #name,
	HANDOVER_RESULTS(X)
#undef X
};

int handover_open(struct handover *handover, const struct function_start *start)
{
	handover->start = *start;
	handover->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (handover->done_fd >= 0)
		return 0;
	log_error("eventfd: %s", strerror(errno));
	return -errno;
}

void handover_close(struct handover *handover)
{
	if (handover->tables.nb > 0 && handover->done_fd >= 0)
		close(handover->done_fd);
	handover->tables.nb = 0;
	memset(handover->parts, 0, sizeof(handover->parts));
	memset(handover->counts, 0, sizeof(handover->counts));
	handover->given = 0;
}

/* ------- one record ------- */

/* What a flow of this protocol can be in. */
static bool fits_protocol(const struct handover *handover, unsigned state, const struct headers *headers)
{
	const bool icmp = headers->protocol == (headers->family == HEADERS_IPV4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);

	if (headers->protocol == IPPROTO_TCP && !(handover->one_sided && state == CONNECTION_one_way))
		return state >= CONNECTION_syn_sent && state <= CONNECTION_reset && headers->has_ports;
	if (icmp)
		return (state == CONNECTION_asked || state == CONNECTION_answered) && headers->zero[0] != 0 &&
		       headers->source_port == headers->destination_port && !headers->has_ports;
	return state == CONNECTION_one_way || state == CONNECTION_two_way;
}

static bool is_tag(uint16_t tag)
{
	return tag == 0 || (tag & ~0xfff) == HEADERS_VLAN;
}

static bool fits_family(const struct headers *headers)
{
	static const uint8_t zeros[12];

	if (headers->family == HEADERS_IPV6)
		return headers->ethertype == RTE_ETHER_TYPE_IPV6;
	return headers->family == HEADERS_IPV4 && headers->ethertype == RTE_ETHER_TYPE_IPV4 &&
	       memcmp(headers->source + 4, zeros, sizeof(zeros)) == 0 &&
	       memcmp(headers->destination + 4, zeros, sizeof(zeros)) == 0;
}

/* The key of a record that holds, as connection_key_make() makes it of the opener's first frame. */
static bool read_key(const struct handover *handover, const struct connections *flows,
		     const struct handover_record *record, struct connection_key *key)
{
	struct inspected frame = {.event = EVENT_DATAGRAM};
	struct headers *headers = &frame.headers;

	memcpy(headers->key, record->key, sizeof(record->key));
	if (record->state == CONNECTION_none || record->state >= CONNECTION_NB_STATES || record->opener > 1 ||
	    record->port > 1 || record->has_mac > 1)
		return false;
	if (!fits_family(headers) || !fits_protocol(handover, record->state, headers) || !is_tag(headers->vlan) ||
	    !is_tag(headers->inner_vlan) || (headers->inner_vlan != 0 && headers->vlan == 0) ||
	    headers->has_ports > 1 || headers->zero[1] > 1 || headers->zero[2] != 0)
		return false;
	frame.query = headers->zero[0];
	if (frame.query != 0)
		frame.event = headers->zero[1] ? EVENT_ANSWER : EVENT_QUERY;
	connection_key_make(flows, &frame, key);
	key->source = record->opener;
	/* Other ends would be in another order. */
	return memcmp(key->words, record->key, sizeof(record->key)) == 0 &&
	       memcmp(headers->source, headers->destination, sizeof(headers->source)) != 0;
}

bool handover_holds(const struct handover *handover, const struct handover_record *record)
{
	struct connection_key key;

	return read_key(handover, handover->tables.tables[0], record, &key);
}

/* One that does not hold is for any: none has it. */
static unsigned table_of(const struct handover *handover, const struct handover_record *record)
{
	return handover->tables.nb > 1 ? handover->home(handover, record) : 0;
}

/* Ticks wrap; of two within half of the range one is later.  States are in the order of a flow's life. */
static bool is_later(const struct connection *flow, const struct handover_record *record, uint32_t seen)
{
	const int32_t later = (int32_t)(seen - flow->seen);

	return later > 0 || (later == 0 && record->state > flow->state);
}

/* Whether a flow that is known is that of the record, and not one with the same ends that has ended since. */
static bool goes_on(const struct handover *handover, struct connections *flows, struct connection *flow,
		    const struct handover_record *record)
{
	return flow->opener == record->opener && flow->port == record->port &&
	       (handover->follow == NULL || handover->follow(flows, flow, record));
}

static enum handover_result add(struct handover *handover, struct connections *flows, const struct connection_key *key,
				const struct handover_record *record, uint32_t seen, uint32_t tick)
{
	enum handover_result result;
	struct connection *flow;

	if (handover->begin != NULL) {
		result = handover->begin(flows, record);
		if (result != HANDOVER_taken)
			return result;
	}
	flow = connections_add(flows, key, record->state, record->port, tick);
	if (handover->end != NULL)
		handover->end(flows, record, flow);
	if (flow == NULL)
		return HANDOVER_no_room;
	flow->seen = seen;
	function_count(&flows->begun, (uint64_t)-1); /* not here */
	return HANDOVER_taken;
}

enum handover_result handover_take_one(struct handover *handover, const struct handover_record *record, uint32_t tick)
{
	struct connections *flows = handover->tables.tables[table_of(handover, record)];
	enum handover_result result;
	struct connection_key key;
	struct connection *flow;
	uint32_t seen;

	if (!read_key(handover, flows, record, &key))
		return HANDOVER_malformed;
	if ((int32_t)(tick - record->seen) < -1) /* the TSCs of two sockets may differ a little */
		return HANDOVER_malformed;
	seen = (int32_t)(tick - record->seen) < 0 ? tick : record->seen;
	if (tick - seen > flows->timeouts[record->state])
		return HANDOVER_aged;
	flow = connections_find(flows, &key, 0, tick);
	if (flow == NULL)
		return add(handover, flows, &key, record, seen, tick);
	if (!is_later(flow, record, seen))
		return HANDOVER_known;
	if (goes_on(handover, flows, flow, record)) {
		connections_enter(flows, flow, record->state, seen);
		return HANDOVER_updated;
	}
	connections_remove(flows, flow);
	result = add(handover, flows, &key, record, seen, tick);
	return result == HANDOVER_taken ? HANDOVER_updated : result;
}

/* ------- the forwarding thread ------- */

void handover_take(struct handover *handover, unsigned queue, uint32_t tick)
{
	struct handover_part *part = &handover->parts[queue];
	const uint64_t one = 1;

	for (unsigned i = 0; i < HANDOVER_ROUND && part->next < part->until; i++) {
		const struct handover_record *record = &handover->batch[handover->order[part->next++]];

		/* Threads of other tables count, too. */
		atomic_fetch_add_explicit(&handover->counts[handover_take_one(handover, record, tick)], 1,
					  memory_order_relaxed);
	}
	if (part->next < part->until)
		return;
	atomic_store_explicit(&part->offered, false, memory_order_release);
	(void)!write(handover->done_fd, &one, sizeof(one));
}

/* ------- the control thread ------- */

static const char digits[] = "0123456789abcdef";

static void write_hex(char *text, const void *from, uint32_t length)
{
	const uint8_t *bytes = from;

	for (uint32_t i = 0; i < length; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
}

static int digit_of(char letter)
{
	return letter >= '0' && letter <= '9' ? letter - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static bool read_hex(const char *text, void *into, uint32_t length)
{
	uint8_t *bytes = into;

	for (uint32_t i = 0; i < length; i++) {
		const int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* A flow as it is at a moment: its thread may be changing it.  Returns false if it is free, or changing still. */
static bool copy_whole(const struct connections *flows, uint32_t number, struct connection *flow)
{
	struct connection again;

	if (!connections_copy(flows, number, flow))
		return false;
	return connections_copy(flows, number, &again) && memcmp(flow->key, again.key, sizeof(again.key)) == 0 &&
	       again.state == flow->state;
}

static void read_record(const struct handover *handover, const struct connections *flows, const struct connection *flow,
			struct handover_record *record)
{
	*record = (struct handover_record){
		.seen = flow->seen, .state = flow->state, .opener = flow->opener, .port = flow->port};
	memcpy(record->key, flow->key, sizeof(record->key));
	if (handover->fill != NULL)
		handover->fill(flows, flow, record);
}

/* In `text` there is room for it. */
static json_t *tell(struct handover *handover, char *text)
{
	const uint32_t length = handover->tell(handover, handover->told, HANDOVER_TOLD);

	write_hex(text, handover->told, length);
	return json_stringn(text, (size_t)length * 2);
}

/* Which flows are wanted: all, or those that were seen, or have changed, since a tick. */
struct wanted {
	json_int_t since, changed; /* -1: not asked for */
};

static bool is_wanted(const struct connections *flows, const struct wanted *wanted, uint32_t number,
		      struct connection *flow)
{
	const uint32_t changed = *(const volatile uint32_t *)&flows->changed[number];

	if (wanted->changed >= 0 && (int32_t)(changed - (uint32_t)wanted->changed) < 0)
		return false;
	return copy_whole(flows, number, flow) &&
	       (wanted->since < 0 || (int32_t)(flow->seen - (uint32_t)wanted->since) >= 0);
}

/* How many entries there are in all tables; and the table of one of them, with its number there. */
static json_int_t entries_of(const struct handover *handover)
{
	json_int_t entries = 0;

	for (unsigned i = 0; i < handover->tables.nb; i++)
		entries += handover->tables.tables[i]->most;
	return entries;
}

static const struct connections *table_with(const struct handover *handover, json_int_t entry, uint32_t *number)
{
	struct connections *const *table = handover->tables.tables;

	for (; entry > (json_int_t)(*table)->most; table++)
		entry -= (*table)->most;
	*number = (uint32_t)entry;
	return *table;
}

json_t *handover_give(struct handover *handover, json_t *params, struct control_error *error)
{
	const uint64_t late = rte_get_tsc_hz() / LATE;
	const uint32_t tick = connections_tick(rte_rdtsc() - late);
	struct wanted wanted = {.since = -1, .changed = -1};
	const json_int_t entries = entries_of(handover);
	json_int_t from = 1, entry;
	struct handover_record record;
	struct connection flow;
	unsigned count = 0, most = HANDOVER_PAGE;
	json_t *given, *told = NULL;
	char *text;

	if (control_unpack(params, error, "{s?:I, s?:I, s?:I}", "from", &from, "since", &wanted.since, "changed",
			   &wanted.changed) != 0)
		return NULL;
	if (from < 1 || wanted.since > UINT32_MAX || wanted.changed > UINT32_MAX)
		return control_fail(error, CONTROL_INVALID_PARAMS,
				    "from: expected an entry, from 1; since, changed: a tick");
	text = malloc((size_t)HANDOVER_PAGE * 2 * RECORD + 1);
	if (text == NULL)
		return control_fail(error, CONTROL_FAILED, "no memory for a page of connections");
	if (from == 1 && handover->tell != NULL) {
		told = tell(handover, text);
		most /= 2; /* an answer has a bounded length */
	}
	for (entry = from; entry <= entries && entry - from < SCAN; entry++) {
		const struct connections *flows;
		uint32_t number;

		if (count == most)
			break;
		flows = table_with(handover, entry, &number);
		if (!is_wanted(flows, &wanted, number, &flow))
			continue;
		read_record(handover, flows, &flow, &record);
		write_hex(text + (size_t)count++ * 2 * RECORD, &record, RECORD);
	}
	function_count(&handover->given, count);
	given = json_pack("{s:s%, s:I, s:I}", "connections", text, (size_t)count * 2 * RECORD, "next",
			  entry <= entries ? entry : (json_int_t)0, "tick", (json_int_t)tick);
	if (told != NULL)
		json_object_set_new(given, "told", told);
	free(text);
	return given;
}

static json_t *counts_of(const uint64_t counts[HANDOVER_NB_RESULTS])
{
	json_t *object = json_object();

	for (unsigned i = 0; i < HANDOVER_NB_RESULTS; i++)
		json_object_set_new(object, result_names[i], json_integer((json_int_t)counts[i]));
	return object;
}

static void read_counts(const struct handover *handover, uint64_t counts[HANDOVER_NB_RESULTS])
{
	for (unsigned i = 0; i < HANDOVER_NB_RESULTS; i++)
		counts[i] = atomic_load_explicit(&handover->counts[i], memory_order_relaxed);
}

/* Put those of a batch for one table after the other; ends[] is where those of each end. */
static void sort(struct handover *handover, uint32_t count, uint32_t ends[FUNCTION_QUEUES])
{
	uint8_t tables[HANDOVER_PAGE];
	uint32_t at = 0;

	for (uint32_t i = 0; i < count; i++)
		tables[i] = (uint8_t)table_of(handover, &handover->batch[i]);
	for (unsigned table = 0; table < handover->tables.nb; table++) {
		for (uint32_t i = 0; i < count; i++)
			if (tables[i] == table)
				handover->order[at++] = (uint16_t)i;
		ends[table] = at;
	}
}

/* How many tables have not taken their part. */
static unsigned nb_late(const struct handover *handover)
{
	unsigned late = 0;

	for (unsigned table = 0; table < handover->tables.nb; table++)
		late += handover_waits(handover, table);
	return late;
}

static uint64_t milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A wake-up may be of a part that was not waited for, and is no more than a reason to look again. */
static void wait_for_all(const struct handover *handover)
{
	const uint64_t until = milliseconds() + PATIENCE;
	struct pollfd done = {.fd = handover->done_fd, .events = POLLIN};
	uint64_t now = until - PATIENCE, count;

	while (nb_late(handover) > 0 && now < until) {
		poll(&done, 1, (int)(until - now));
		(void)!read(handover->done_fd, &count, sizeof(count));
		now = milliseconds();
	}
}

/*
 * Have the forwarding threads of all tables take their parts; those that nothing is for are asked only where there is
 * nothing for any.  Returns how many have not in time; what they take later is taken as well.
 */
static unsigned offer(struct handover *handover, uint32_t count)
{
	uint32_t ends[FUNCTION_QUEUES], next = 0;

	sort(handover, count, ends);
	for (unsigned table = 0; table < handover->tables.nb; next = ends[table++]) {
		struct handover_part *part = &handover->parts[table];

		if (ends[table] == next && count > 0)
			continue;
		part->next = next;
		part->until = ends[table];
		atomic_store_explicit(&part->offered, true, memory_order_release);
		function_wake(&handover->start, table);
	}
	wait_for_all(handover);
	return nb_late(handover);
}

/* Who was late, as "queue 1, 3". */
static void name_late(const struct handover *handover, char *text, size_t size)
{
	size_t at = 0;

	for (unsigned table = 0; table < handover->tables.nb && at < size; table++)
		if (handover_waits(handover, table))
			at += (size_t)snprintf(text + at, size - at, "%s%u", at == 0 ? "queue " : ", ", table);
}

static json_t *fail_late(const struct handover *handover, unsigned late, struct control_error *error)
{
	char which[FUNCTION_QUEUES * 4 + 8] = "no queue any more";

	name_late(handover, which, sizeof(which));
	if (handover->tables.nb == 1)
		return control_fail(error, CONTROL_FAILED, "the forwarding thread has not taken them in %d ms",
				    PATIENCE);
	return control_fail(error, CONTROL_FAILED,
			    "forwarding threads have not taken those of %u of %u tables in %d ms (%s); the others have",
			    late, handover->tables.nb, PATIENCE, which);
}

json_t *handover_receive(struct handover *handover, json_t *params, struct control_error *error)
{
	uint64_t before[HANDOVER_NB_RESULTS], counts[HANDOVER_NB_RESULTS];
	const char *text, *told = "";
	size_t length, told_length = 0;
	unsigned late = 0;

	if (control_unpack(params, error, "{s:s%, s?:s%}", "connections", &text, &length, "told", &told,
			   &told_length) != 0)
		return NULL;
	if (length % (2 * RECORD) != 0 || length / (2 * RECORD) > HANDOVER_PAGE)
		return control_fail(error, CONTROL_INVALID_PARAMS,
				    "connections: expected at most %d records of %d bytes in hexadecimal digits",
				    HANDOVER_PAGE, RECORD);
	if (nb_late(handover) > 0)
		return control_fail(error, CONTROL_FAILED, "connections that came before are not taken yet");
	for (size_t i = 0; i < length / (2 * RECORD); i++)
		if (!read_hex(text + i * 2 * RECORD, &handover->batch[i], RECORD))
			return control_fail(error, CONTROL_INVALID_PARAMS,
					    "connections: record %zu: expected hexadecimal digits", i);
	if (told_length % 2 != 0 || told_length / 2 > HANDOVER_TOLD ||
	    !read_hex(told, handover->told, (uint32_t)(told_length / 2)))
		return control_fail(error, CONTROL_INVALID_PARAMS, "told: expected at most %d bytes in hexadecimal",
				    HANDOVER_TOLD);
	if (handover->hear != NULL && told_length > 0)
		handover->hear(handover, handover->told, (uint32_t)(told_length / 2));
	if (handover->prepare != NULL)
		handover->prepare(handover, (uint32_t)(length / (2 * RECORD)));
	read_counts(handover, before);
	if (length > 0 || told_length == 0)
		late = offer(handover, (uint32_t)(length / (2 * RECORD)));
	if (late > 0)
		return fail_late(handover, late, error);
	read_counts(handover, counts);
	for (unsigned i = 0; i < HANDOVER_NB_RESULTS; i++)
		counts[i] -= before[i];
	return counts_of(counts);
}

json_t *handover_describe(const struct handover *handover)
{
	uint64_t counts[HANDOVER_NB_RESULTS];
	json_t *object;

	read_counts(handover, counts);
	object = counts_of(counts);
	json_object_set_new(object, "given", json_integer((json_int_t)handover->given));
	return object;
}
