/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "steer/rate.h"

enum {
	MS_A_SECOND = 1000,
	/* Bytes that a sender to a receiver without a limit may be ahead of the others: a burst of common frames. */
	SHARE_DEPTH = 64 * 1518,
};

static uint64_t cost(uint64_t unit, uint64_t rate, uint64_t hz)
{
	return rate > 0 ? (uint64_t)(((unsigned __int128)hz * unit << 32) / rate) : 0;
}

void limit_set(struct limit *limit, const struct rate *rate, uint64_t now, uint64_t hz)
{
	*limit = (struct limit){
		.byte_cost = cost(8, rate->bits, hz),
		.packet_cost = cost(1, rate->packets, hz),
		.burst = hz / MS_A_SECOND * RATE_BURST_MS,
		.byte_due = now,
		.packet_due = now,
	};
}

unsigned limit_pass(struct limit *limit, uint64_t now, const uint32_t *lengths, unsigned count)
{
	unsigned passed = 0;

	while (passed < count && (int64_t)(now - limit->byte_due) >= 0 && (int64_t)(now - limit->packet_due) >= 0)
		limit_spend(limit, lengths[passed++], 1);
	return passed;
}

struct shares *shares_make(const struct rate *rate, const uint32_t *weights, unsigned nb_members, uint64_t now,
			   uint64_t hz)
{
	struct shares *shares = calloc(1, sizeof(*shares) + nb_members * sizeof(shares->members[0]));
	uint64_t total = 0;

	if (shares == NULL)
		return NULL;
	if (rate != NULL) {
		shares->byte_cost = cost(8, rate->bits, hz);
		shares->packet_cost = cost(1, rate->packets, hz);
	}
	shares->poured_at = now;
	shares->patience = hz / 1000000 * SHARE_PATIENCE_US;
	shares->nb_members = nb_members;
	for (unsigned i = 0; i < nb_members; i++)
		total += weights[i];
	for (unsigned i = 0; i < nb_members; i++) {
		struct share *share = &shares->members[i];
		uint64_t depth = shares_limited(shares) ? (hz / MS_A_SECOND * RATE_BURST_MS) << SHARE_UNIT_BITS
							: (uint64_t)SHARE_DEPTH * nb_members;

		share->weight = weights[i];
		share->depth = (int64_t)(depth * weights[i] / total);
	}
	return shares;
}

static bool waits(const struct shares *shares, const struct share *share, uint64_t now)
{
	return share->waiting_at != 0 && now - share->waiting_at <= shares->patience;
}

/*
 * May the credit grow?  That of a sender which waits for a full receiver may without bound (all of them together do
 * not), so that the others run out of theirs and make room for it.
 */
static bool thirsty(const struct shares *shares, const struct share *share, uint64_t now)
{
	return share->credit < share->depth || (!shares_limited(shares) && waits(shares, share, now));
}

/* Divide `amount` by weight among the credits that may grow, again until nothing or nobody is left. */
static void pour(struct shares *shares, uint64_t amount, uint64_t now)
{
	uint64_t left = amount + shares->remainder;
	uint64_t total;

	do {
		const uint64_t dividing = left;

		total = 0;
		for (unsigned i = 0; i < shares->nb_members; i++)
			if (thirsty(shares, &shares->members[i], now))
				total += shares->members[i].weight;
		if (total == 0 || dividing < total)
			break;
		for (unsigned i = 0; i < shares->nb_members; i++) {
			struct share *share = &shares->members[i];
			uint64_t part = dividing / total * share->weight + dividing % total * share->weight / total;

			if (!thirsty(shares, share, now))
				continue;
			if (shares_limited(shares) && (int64_t)part > share->depth - share->credit)
				part = (uint64_t)(share->depth - share->credit);
			share->credit += (int64_t)part;
			left -= part;
		}
	} while (left >= total);
	/* Less than a unit for each is kept; when all are full, nothing is. */
	shares->remainder = total > 0 ? left : 0;
}

/* Is there another sender that waits and whose turn it is? */
static bool others_first(const struct shares *shares, unsigned member, uint64_t now)
{
	for (unsigned i = 0; i < shares->nb_members; i++) {
		const struct share *share = &shares->members[i];

		if (i != member && share->credit > 0 && waits(shares, share, now))
			return true;
	}
	return false;
}

bool shares_open(struct shares *shares, unsigned member, uint64_t now)
{
	struct share *share = &shares->members[member];

	if (shares_limited(shares)) {
		if ((int64_t)(now - shares->poured_at) > 0) {
			pour(shares, (now - shares->poured_at) << SHARE_UNIT_BITS, now);
			shares->poured_at = now;
		}
		return share->credit > 0;
	}
	if (shares->contended && now - shares->full_at > shares->patience)
		shares->contended = false;
	if (!shares->contended || share->credit > 0 || !others_first(shares, member, now))
		return true;
	share->waiting_at = now;
	return false;
}

/* What frames take of a credit. */
static int64_t price(const struct shares *shares, uint64_t bytes, uint32_t packets)
{
	unsigned __int128 by_bytes, by_packets;

	bytes += (uint64_t)packets * RATE_FCS;
	if (!shares_limited(shares))
		return (int64_t)bytes;
	by_bytes = (unsigned __int128)bytes * shares->byte_cost;
	by_packets = (unsigned __int128)packets * shares->packet_cost;
	return (int64_t)((by_bytes > by_packets ? by_bytes : by_packets) >> (32 - SHARE_UNIT_BITS));
}

unsigned shares_pass(const struct shares *shares, unsigned member, const uint32_t *lengths, unsigned count)
{
	int64_t credit = shares->members[member].credit;
	unsigned passed = 0;

	/* One without credit that was let in found nobody to go first. */
	if (!shares_limited(shares) && (!shares->contended || credit <= 0))
		return count;
	while (passed < count && credit > 0)
		credit -= price(shares, lengths[passed++], 1);
	return passed;
}

/* The receiver is full, for the first time in a while: all begin alike. */
static void begin_contention(struct shares *shares)
{
	for (unsigned i = 0; i < shares->nb_members; i++)
		shares->members[i].credit = shares->members[i].depth;
	shares->remainder = 0;
	shares->contended = true;
}

void shares_spend(struct shares *shares, unsigned member, const struct share_use *use, uint64_t now)
{
	struct share *share = &shares->members[member];
	uint64_t bytes = use->bytes;
	uint32_t packets = use->packets;
	int64_t spent;

	owed_take(&share->owed, &bytes, &packets);
	spent = price(shares, bytes, packets);
	if (shares_limited(shares)) {
		share->credit -= spent;
		return;
	}
	if (use->full) {
		if (!shares->contended)
			begin_contention(shares);
		shares->full_at = now;
	}
	share->waiting_at = use->waiting ? now : 0;
	if (shares->contended && spent > 0) {
		share->credit -= spent;
		pour(shares, (uint64_t)spent, now);
	}
}
