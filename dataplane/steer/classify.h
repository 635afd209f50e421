/* SPDX-License-Identifier: Apache-2.0
 *
 * Ordered rules to an action, the first that matches wins: tuple space search.  Rules that look at the same bits share
 * a hash table, so the cost of a lookup grows with the number of different masks, not with the number of rules.
 * Ranges are cut into prefixes.  A classifier is built whole, off the fast path, and never changed: any number of
 * threads may ask it.
 */
#ifndef TAILRACE_STEER_CLASSIFY_H
#define TAILRACE_STEER_CLASSIFY_H

#include "steer/parse.h"

enum {
	CLASSIFY_BURST = 64,
	CLASSIFY_ENTRIES = 1 << 16, /* that all ranges of a classifier's rules may be cut into */
	CLASSIFY_TUPLES = 1024,	    /* different masks */
};

enum match_field {
	MATCH_VLAN = 1 << 0,
	MATCH_INNER_VLAN = 1 << 1,
	MATCH_ETHERTYPE = 1 << 2,
	MATCH_SOURCE = 1 << 3,
	MATCH_DESTINATION = 1 << 4,
	MATCH_PROTOCOL = 1 << 5,
	MATCH_SOURCE_PORT = 1 << 6,
	MATCH_DESTINATION_PORT = 1 << 7,
};

struct match_range {
	uint16_t first, last;
};

struct match_prefix {
	enum headers_family family;
	unsigned length;     /* bits */
	uint8_t address[16]; /* network order, from the first byte on; bits behind the prefix are not looked at */
};

/* What a frame must have; a field counts if its bit is in `fields`, and all that count must hold. */
struct match {
	unsigned fields;		     /* enum match_field */
	struct match_range vlan, inner_vlan; /* 0: no VLAN, with a tag that says so (VLAN 0) or without one */
	uint16_t ethertype;
	uint8_t protocol;
	struct match_prefix source, destination;
	struct match_range source_port, destination_port;
};

struct rule {
	struct match match;
	uint32_t action;
};

struct classifier;

/* The same flow seen from its other end. */
void match_mirror(struct match *match);

/*
 * Build a classifier of rules in the order in which they count; what none of them matches gets `otherwise`.
 * Returns 0, or a negative errno with `*culprit` the rule that is at fault: -EINVAL when it can match nothing (two
 * families, or a range that ends before it begins), -E2BIG when its ranges are too much; -ENOMEM.
 * To free it: free().
 */
int classifier_build(struct classifier **classifier, const struct rule *rules, unsigned nb_rules, uint32_t otherwise,
		     unsigned *culprit);

/*
 * Does any rule look at ports, or at the protocol, which later fragments of IPv6 may not tell?  Then the later
 * fragments of a datagram need what was decided for its first.
 */
bool classifier_reads_transport(const struct classifier *classifier);

/* Classify up to CLASSIFY_BURST frames. */
void classify(const struct classifier *classifier, const struct headers *headers, unsigned count, uint32_t *actions);

/* The action for a frame of which nothing is known: that of a rule that asks for nothing. */
uint32_t classify_unread(const struct classifier *classifier);

#endif
