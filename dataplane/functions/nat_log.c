/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "common/log.h"
#include "nat_log.h"
#include "steer/parse.h"

enum { TIME_TEXT = 24, VLAN_TEXT = 24, ADDRESS_TEXT = 16 };

uint64_t nat_log_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static const char *time_text(char *text, time_t seconds)
{
	struct tm parts;

	gmtime_r(&seconds, &parts);
	strftime(text, TIME_TEXT, "%Y-%m-%dT%H:%M:%SZ", &parts);
	return text;
}

static const char *address_text(char *text, uint32_t address)
{
	snprintf(text, ADDRESS_TEXT, "%u.%u.%u.%u", address >> 24, address >> 16 & 255, address >> 8 & 255,
		 address & 255);
	return text;
}

static const char *vlan_text(char *text, uint32_t tags)
{
	const unsigned outer = tags >> 16, inner = tags & UINT16_MAX;
	int length = 0;

	text[0] = '\0';
	if (outer != 0)
		length = snprintf(text, VLAN_TEXT, " vlan %u", outer & ~(unsigned)HEADERS_VLAN);
	if (inner != 0)
		snprintf(text + length, (size_t)(VLAN_TEXT - length), " %u", inner & ~(unsigned)HEADERS_VLAN);
	return text;
}

static void write_event(const struct nat_log *log, const struct nat_event *event)
{
	char when[TIME_TEXT], vlan[VLAN_TEXT], inside[ADDRESS_TEXT], outside[ADDRESS_TEXT];

	log_info("blocks: %s %s %s %s %u-%u %" PRIu64 "%s", time_text(when, (time_t)event->time), nat_event_word(event),
		 address_text(inside, event->inside), address_text(outside, event->outside), event->first,
		 event->first + log->pool->settings->block - 1, event->number, vlan_text(vlan, event->tags));
}

static void write_begin(struct nat_log *log)
{
	char when[TIME_TEXT];

	if (log->began != 0)
		log_info("blocks: %s begins", time_text(when, log->began));
	log->began = 0;
}

/* Go on with this number. */
static void leave_out(struct nat_log *log, uint64_t next)
{
	char when[TIME_TEXT];

	if (next <= log->next)
		return;
	log_warning("blocks: %s left out %" PRIu64 " (%" PRIu64 "-%" PRIu64 ")", time_text(when, time(NULL)),
		    next - log->next, log->next, next - 1);
	log->next = next;
}

/* So many lines at most, and one about what was left out before each that is not the next.  Returns how many. */
static unsigned write_lines(struct nat_log *log, unsigned most)
{
	const uint64_t last = atomic_load_explicit(&log->pool->nb_events, memory_order_acquire);
	struct nat_event event;
	unsigned nb_lines = 0;

	while (log->next <= last && nb_lines < most) {
		nb_lines++;
		if (nat_pool_event(log->pool, log->next, &event)) {
			write_event(log, &event);
			log->next++;
		} else {
			leave_out(log, nat_pool_oldest(log->pool));
		}
	}
	return nb_lines;
}

void nat_log_begin(struct nat_log *log, const struct nat_pool *pool, uint64_t now)
{
	*log = (struct nat_log){.pool = pool, .next = 1, .spent_until = now, .began = time(NULL)};
}

void nat_log_write(struct nat_log *log, uint64_t now)
{
	const uint64_t second = 1000, from = now > second ? now - second : 0;
	uint64_t may;

	write_begin(log);
	/* What was not used for longer than a second is not kept. */
	log->spent_until = RTE_MAX(log->spent_until, from);
	may = (now - RTE_MIN(log->spent_until, now)) * NAT_LOG_A_SECOND / second;
	log->spent_until += (uint64_t)write_lines(log, (unsigned)may) * second / NAT_LOG_A_SECOND;
}

void nat_log_end(struct nat_log *log)
{
	char when[TIME_TEXT];

	write_begin(log);
	write_lines(log, NAT_LOG_AT_END);
	leave_out(log, atomic_load_explicit(&log->pool->nb_events, memory_order_acquire) + 1);
	log_info("blocks: %s ends", time_text(when, time(NULL)));
}
