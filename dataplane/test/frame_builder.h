/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames for tests of steer/, written header by header, and a generator of random numbers that a seed repeats.
 */
#ifndef TAILRACE_TEST_FRAME_BUILDER_H
#define TAILRACE_TEST_FRAME_BUILDER_H

#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>

struct frame {
	unsigned length;
	uint8_t bytes[256];
};

static inline void frame_add(struct frame *frame, const void *bytes, unsigned length)
{
	memcpy(frame->bytes + frame->length, bytes, length);
	frame->length += length;
}

static inline void frame_add8(struct frame *frame, uint8_t value)
{
	frame_add(frame, &value, 1);
}

static inline void frame_add16(struct frame *frame, uint16_t value)
{
	value = htons(value);
	frame_add(frame, &value, 2);
}

static inline void frame_add32(struct frame *frame, uint32_t value)
{
	value = htonl(value);
	frame_add(frame, &value, 4);
}

/* The two MAC addresses; the type, or tags and then the type, must follow. */
static inline void frame_macs(struct frame *frame, uint8_t destination, uint8_t source)
{
	const uint8_t macs[12] = {2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source};

	frame->length = 0;
	frame_add(frame, macs, 12);
}

static inline void frame_tag(struct frame *frame, uint16_t type, uint16_t vlan)
{
	frame_add16(frame, type);
	frame_add16(frame, vlan);
}

/* An IPv4 header, type included, for `payload` bytes; `fragment` is its flags and offset. */
static inline void frame_ipv4(struct frame *frame, uint32_t source, uint32_t destination, uint8_t protocol,
			      unsigned payload, uint16_t id, uint16_t fragment)
{
	frame_add16(frame, 0x0800);
	frame_add8(frame, 0x45);
	frame_add8(frame, 0);
	frame_add16(frame, 20 + payload);
	frame_add16(frame, id);
	frame_add16(frame, fragment);
	frame_add8(frame, 64);
	frame_add8(frame, protocol);
	frame_add16(frame, 0);
	frame_add32(frame, source);
	frame_add32(frame, destination);
}

/* An IPv6 header, type included; the addresses are 2001:db8:: and the given last four bytes. */
static inline void frame_ipv6(struct frame *frame, uint32_t source, uint32_t destination, uint8_t protocol,
			      unsigned payload)
{
	frame_add16(frame, 0x86dd);
	frame_add32(frame, 0x60000000);
	frame_add16(frame, payload);
	frame_add8(frame, protocol);
	frame_add8(frame, 64);
	for (unsigned i = 0; i < 2; i++) {
		frame_add32(frame, 0x20010db8);
		frame_add32(frame, 0);
		frame_add32(frame, 0);
		frame_add32(frame, i == 0 ? source : destination);
	}
}

static inline void frame_ports(struct frame *frame, uint16_t source, uint16_t destination)
{
	frame_add16(frame, source);
	frame_add16(frame, destination);
	frame_add32(frame, 8 << 16);
}

/* A whole UDP datagram over IPv4. */
static inline void frame_udp4(struct frame *frame, uint32_t source, uint32_t destination, uint16_t source_port,
			      uint16_t destination_port)
{
	frame_macs(frame, 1, 2);
	frame_ipv4(frame, source, destination, 17, 8, 0, 0);
	frame_ports(frame, source_port, destination_port);
}

/* SplitMix64. */
static inline uint64_t random64(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

#endif
