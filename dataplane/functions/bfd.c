/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_common.h>

#include "bfd.h"

enum {
	VERSION = 1,
	POLL = 0x20,
	FINAL = 0x10,
	AUTHENTICATED = 0x04,
	MULTIPOINT = 0x01,
	NEVER_HEARD = 1, /* us between packets that the other end takes, before it has said so (RFC 5880, 6.8.1) */
};

/* RFC 5880, 4.1. */
struct packet {
	uint8_t version_diagnostic, state_flags, multiplier, length;
	uint32_t own, yours, desired, least, least_echo;
};

_Static_assert(sizeof(struct packet) == BFD_PACKET, "as it is on the link");

/* xorshift (Marsaglia): for the jitter, which nobody has to guess. */
static uint32_t random_of(struct bfd *bfd)
{
	bfd->random ^= bfd->random << 13;
	bfd->random ^= bfd->random >> 17;
	bfd->random ^= bfd->random << 5;
	return bfd->random;
}

/* When the next packet is due after the last one (RFC 5880, 6.8.7). */
static void schedule(struct bfd *bfd)
{
	const uint64_t interval = RTE_MAX(bfd->desired, bfd->remote_least);
	/* From 75 % of it on, up to all; with a multiplier of 1 up to 90 %, or that would be a loss. */
	const uint32_t range = bfd->with.multiplier == 1 ? 15 : 25;

	bfd->due = bfd->remote_least == 0 ? UINT64_MAX
					  : bfd->sent + interval * (75 + random_of(bfd) % (range + 1)) / 100;
}

static void enter(struct bfd *bfd, enum bfd_state state, enum bfd_diagnostic diagnostic, uint64_t now)
{
	if (state == BFD_UP)
		bfd->ups++;
	if (bfd->state == BFD_UP)
		bfd->downs++;
	bfd->state = state;
	bfd->diagnostic = (uint8_t)diagnostic;
	if (state == BFD_DOWN)
		bfd->why_down = bfd->diagnostic;
	bfd->since = now;
	bfd->desired = state == BFD_UP ? bfd->with.interval : RTE_MAX(bfd->with.interval, (uint32_t)BFD_SLOW);
	bfd->polls = state == BFD_UP;			      /* it asks for another interval (6.8.3) */
	bfd->due = bfd->remote_least == 0 ? UINT64_MAX : now; /* news is told at once (6.8.7) */
}

void bfd_begin(struct bfd *bfd, const struct bfd_settings *settings, uint32_t discriminator, uint64_t now)
{
	*bfd = (struct bfd){
		.with = *settings,
		.state = BFD_DOWN,
		.remote_state = BFD_DOWN,
		.own = discriminator,
		.remote_least = NEVER_HEARD,
		.desired = RTE_MAX(settings->interval, (uint32_t)BFD_SLOW),
		.due = now,
		.since = now,
		.random = discriminator,
	};
}

/* What the other end's state makes of this one's (RFC 5880, 6.8.6). */
static void follow(struct bfd *bfd, uint64_t now)
{
	if (bfd->remote_state == BFD_ADMIN_DOWN) {
		if (bfd->state != BFD_DOWN)
			enter(bfd, BFD_DOWN, BFD_SIGNALLED, now);
	} else if (bfd->state == BFD_DOWN) {
		if (bfd->remote_state == BFD_DOWN)
			enter(bfd, BFD_INIT, bfd->diagnostic, now);
		else if (bfd->remote_state == BFD_INIT)
			enter(bfd, BFD_UP, BFD_NONE, now);
	} else if (bfd->state == BFD_INIT) {
		if (bfd->remote_state == BFD_INIT || bfd->remote_state == BFD_UP)
			enter(bfd, BFD_UP, BFD_NONE, now);
	} else if (bfd->remote_state == BFD_DOWN) {
		enter(bfd, BFD_DOWN, BFD_SIGNALLED, now);
	}
}

/* Whether it says something, and of this session, in the order of RFC 5880, 6.8.6. */
static bool holds(const struct bfd *bfd, const struct packet *packet, uint32_t size)
{
	const enum bfd_state state = packet->state_flags >> 6;

	return packet->version_diagnostic >> 5 == VERSION && packet->length >= BFD_PACKET && packet->length <= size &&
	       packet->multiplier != 0 && (packet->state_flags & (MULTIPOINT | AUTHENTICATED)) == 0 &&
	       packet->own != 0 &&
	       (packet->yours != 0 ? rte_be_to_cpu_32(packet->yours) == bfd->own
				   : state == BFD_DOWN || state == BFD_ADMIN_DOWN);
}

bool bfd_take(struct bfd *bfd, const uint8_t *bytes, uint32_t size, uint64_t now)
{
	struct packet packet;
	uint32_t least;

	if (size < sizeof(packet))
		return false;
	memcpy(&packet, bytes, sizeof(packet));
	if (!holds(bfd, &packet, size))
		return false;
	bfd->remote = rte_be_to_cpu_32(packet.own);
	bfd->remote_state = packet.state_flags >> 6;
	bfd->remote_diagnostic = packet.version_diagnostic & 0x1f;
	bfd->remote_multiplier = packet.multiplier;
	bfd->remote_desired = rte_be_to_cpu_32(packet.desired);
	bfd->heard = now;
	if ((packet.state_flags & FINAL) != 0)
		bfd->polls = false;
	if ((packet.state_flags & POLL) != 0)
		bfd->acknowledges = true;
	least = rte_be_to_cpu_32(packet.least);
	if (least != bfd->remote_least) {
		bfd->remote_least = least;
		schedule(bfd);
	}
	follow(bfd, now);
	return true;
}

uint64_t bfd_detection(const struct bfd *bfd)
{
	return (uint64_t)bfd->remote_multiplier * RTE_MAX(bfd->with.interval, bfd->remote_desired);
}

static void write_packet(const struct bfd *bfd, uint8_t *bytes, uint8_t flags)
{
	const struct packet packet = {
		.version_diagnostic = (uint8_t)(VERSION << 5 | bfd->diagnostic),
		.state_flags = (uint8_t)((unsigned)bfd->state << 6 | flags),
		.multiplier = bfd->with.multiplier,
		.length = BFD_PACKET,
		.own = rte_cpu_to_be_32(bfd->own),
		.yours = rte_cpu_to_be_32(bfd->remote),
		.desired = rte_cpu_to_be_32(bfd->desired),
		.least = rte_cpu_to_be_32(bfd->with.interval),
	};

	memcpy(bytes, &packet, sizeof(packet));
}

bool bfd_step(struct bfd *bfd, uint8_t packet[BFD_PACKET], uint64_t now, uint64_t *next)
{
	const uint64_t lost = bfd->heard + bfd_detection(bfd);

	/* Nothing was heard for as long as that: what was learned of the other end is forgotten (6.8.1). */
	if (bfd->remote != 0 && now >= lost) {
		bfd->remote = 0;
		/* One that its operator took down may be silent from then on (6.8.16): that is no loss. */
		if (bfd->remote_state != BFD_ADMIN_DOWN)
			bfd->remote_state = BFD_DOWN;
		bfd->remote_least = NEVER_HEARD;
		if (bfd->state == BFD_INIT || bfd->state == BFD_UP)
			enter(bfd, BFD_DOWN, BFD_EXPIRED, now);
		else
			schedule(bfd);
	}
	if (bfd->acknowledges) {
		bfd->acknowledges = false;
		write_packet(bfd, packet, FINAL);
		*next = now;
		return true;
	}
	if (now >= bfd->due) {
		write_packet(bfd, packet, bfd->polls ? POLL : 0);
		bfd->sent = now;
		schedule(bfd);
		*next = now;
		return true;
	}
	*next = bfd->remote != 0 ? RTE_MIN(bfd->due, lost) : bfd->due;
	return false;
}

const char *bfd_state_name(enum bfd_state state)
{
	static const char *const names[] = {"admin down", "down", "init", "up"};

	return names[state & 3];
}

const char *bfd_diagnostic_name(uint8_t diagnostic)
{
	static const char *const names[] = {
		"none",
		"nothing heard in time",
		"echo failed",
		"signalled by the other end",
		"forwarding reset",
		"path down",
		"concatenated path down",
		"administratively down",
		"reverse path down",
	};

	return diagnostic < RTE_DIM(names) ? names[diagnostic] : "unknown";
}
