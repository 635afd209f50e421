/* SPDX-License-Identifier: Apache-2.0
 *
 * Checksums and segments that one side leaves to another (virtio 1.1, section 5.1.6).
 *
 * A sender that negotiated offloads may hand over a frame whose checksum is unfinished, or a TCP segment of up to
 * 64 KiB to be cut, and says so in the network header.  Every field of that header is checked against the frame, and
 * what follows from the frame is corrected.  A receiver that takes the offload gets frame and header; for any other the
 * switch does the work: it completes the checksum, or cuts the segment, with one copy of each byte.
 *
 * Cutting is done here and not by DPDK's library (rte_gso), which in 22.11 knows no IPv6, and would need packet buffers
 * for frames that go from ring to ring.  Pure functions; any thread.
 */
#ifndef TAILRACE_VRING_OFFLOAD_H
#define TAILRACE_VRING_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_net.h>

struct vring_piece;

enum {
	OFFLOAD_CHECKSUM = 1, /* unfinished checksums */
	OFFLOAD_TCP4 = 2,     /* long segments of TCP over IPv4 */
	OFFLOAD_TCP6 = 4,     /* and over IPv6 */
	OFFLOAD_ECN = 8,      /* and with the CWR flag */

	OFFLOAD_STEERED = 128,	 /* bytes of a frame that steering may decide by */
	OFFLOAD_HEADERS = 512,	 /* bytes that all headers of a long segment may take */
	OFFLOAD_SEGMENTS = 128,	 /* that one frame is cut into at the most */
	OFFLOAD_SEGMENT_MIN = 8, /* the smallest payload that TCP ever negotiates, in Linux */
};

/* What a guest's features allow it to ask for as a sender, or make it take as a receiver. */
uint8_t offload_of_features(uint64_t features, bool sends);

/*
 * How many of a frame's first bytes have to be known to check its header: of a frame that is not to be cut, those that
 * steering decides by.
 */
static inline uint32_t offload_reads(const struct virtio_net_hdr *offload)
{
	/* The longest TCP header. */
	return offload->gso_type == VIRTIO_NET_HDR_GSO_NONE ? 0 : offload->csum_start + 60u;
}

/*
 * Check a sender's header and correct it.  `head` is a private copy of the frame's first bytes, offload_reads() or as
 * many as there are, at most OFFLOAD_HEADERS; `length` the frame's.  Returns false when the header is malformed, or
 * asks for what was not negotiated.
 *
 * An unfinished checksum may lie anywhere in the frame but where steering looks.  A long segment is TCP over IP under
 * VLAN tags or MPLS labels, and the IP header, but for options and extension headers, lies within the first
 * OFFLOAD_STEERED bytes.  None is in a tunnel: that would have more lengths to correct, and is another feature
 * (VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO), which is not offered.
 */
bool offload_check(struct virtio_net_hdr *offload, uint8_t offloads, const uint8_t *head, uint32_t head_length,
		   uint32_t length);

/* Whether a checked header asks for something. */
static inline bool offload_wanted(const struct virtio_net_hdr *offload)
{
	return offload->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
}

/* Whether a receiver takes a frame with this checked header as it is. */
static inline bool offload_taken(const struct virtio_net_hdr *offload, uint8_t offloads)
{
	uint8_t needed = 0;

	if (offload->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		needed |= OFFLOAD_CHECKSUM;
	if (offload->gso_type != VIRTIO_NET_HDR_GSO_NONE) {
		needed |= (offload->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == VIRTIO_NET_HDR_GSO_TCPV4 ? OFFLOAD_TCP4
												    : OFFLOAD_TCP6;
		if (offload->gso_type & VIRTIO_NET_HDR_GSO_ECN)
			needed |= OFFLOAD_ECN;
	}
	return (needed & ~offloads) == 0;
}

/*
 * Complete the checksum of the frame in pieces[0..count).  Its field lies in one piece, which is private.
 * Returns false, and has done nothing, when it does not lie in one.
 */
bool offload_checksum(const struct virtio_net_hdr *offload, const struct vring_piece *pieces, unsigned count);

/* How many segments a frame with this checked header is cut into. */
uint32_t offload_segments(const struct virtio_net_hdr *offload, uint32_t length);

/*
 * The headers of segment `number` (from 0), for a frame of `length` bytes whose headers are `head`: offload->hdr_len
 * bytes to `header`, all but the TCP checksum, which offload_segment_checksum() fills in.  Returns the segment's
 * payload, of which the first byte is the frame's byte offload->hdr_len + number * offload->gso_size.
 */
uint32_t offload_segment(const struct virtio_net_hdr *offload, const uint8_t *head, uint32_t length, uint32_t number,
			 uint8_t *header);

/* pieces[0] is the header that offload_segment() made, whole; the rest is the payload.  `length` is the frame's. */
void offload_segment_checksum(const struct virtio_net_hdr *offload, uint32_t length, const struct vring_piece *pieces,
			      unsigned count);

#endif
