/* SPDX-License-Identifier: Apache-2.0
 *
 * A station with addresses of its own on a link, as a balancer and a tunnel are: ARP (RFC 826) and neighbour discovery
 * (RFC 4861), by which it finds its neighbours and they find it.  Pure; any thread.
 */
#ifndef TAILRACE_FUNCTIONS_NEIGHBOURS_H
#define TAILRACE_FUNCTIONS_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "steer/parse.h"

enum { NEIGHBOUR_FRAME = 128 }; /* bytes of which no frame of ARP or neighbour discovery has more */

struct ip_address {
	uint8_t bytes[16]; /* in network order; of IPv4 the first four, and zeros */
	uint8_t family;	   /* enum headers_family; HEADERS_OTHER: there is none */
};

/* Returns false if it is none. */
bool ip_address_read(const char *text, struct ip_address *address);

static inline unsigned ip_version(uint8_t family) /* of two addresses: IPv4's, IPv6's */
{
	return family == HEADERS_IPV6;
}

struct station {
	struct ip_address addresses[2]; /* IPv4's, IPv6's */
	uint8_t mac[6];
};

/* Give it a MAC address that is not another one's: a local one, made of its IP address. */
void station_make_mac(struct station *station);

/* What ARP or neighbour discovery says. */
struct neighbour {
	bool answer;		  /* or a question */
	struct ip_address source; /* who asks, or who is known by this to have the MAC address */
	struct ip_address target; /* who is asked for, or who is answered */
	uint8_t mac[6];		  /* the source's */
};

/* Returns false if it says nothing. */
bool neighbour_read(const uint8_t *head, uint32_t size, struct neighbour *neighbour);

/* Each writes a frame, and returns its length. */

/* Who has the target? */
uint32_t neighbour_write_question(uint8_t *frame, const struct station *station, const struct ip_address *target);

/* The station has what was asked for. */
uint32_t neighbour_write_answer(uint8_t *frame, const struct station *station, const struct neighbour *question);

/* ------- of other frames that a station sends ------- */

void station_write_ethernet(uint8_t *frame, const struct station *station, const uint8_t *mac, uint16_t type);

/*
 * Each writes the header in front of `length` bytes that are there, with a checksum of 0 at `checksum`, which is filled
 * in.  Returns the length of the frame.
 */
uint32_t station_write_ip4(uint8_t *frame, const uint8_t *source, const uint8_t *target, uint8_t protocol, uint8_t ttl,
			   uint16_t length, unsigned checksum);

uint32_t station_write_ip6(uint8_t *frame, const uint8_t *source, const uint8_t *target, uint8_t protocol,
			   uint8_t hop_limit, uint16_t length, unsigned checksum);

#endif
