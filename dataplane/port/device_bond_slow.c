/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "port/device_bond_internal.h"

enum {
	LACP_SHORT_TIMEOUT = 0x02,
	LACP_AGGREGATION = 0x04,
	LACP_AGREES = 0x08,
	LACP_COLLECTS = 0x10,
	LACP_JOINS = 0x38,  /* synchronization, collecting, distributing (IEEE 802.1AX, 6.4.2.3) */
	TAGS_MOST = 2,	    /* behind which a slow protocol is looked for */
	TO_AGREE = 5,	    /* s, until an end that was chosen has to collect what it is sent */
	BUFFERS_BESIDE = 8, /* that the driver has beside those in its queues, and the most in its two rings */
};

/*
 * The driver makes a pool for each of its members, once for all who ever have the number, and gives its buffers to
 * nobody.  NULL: it has not yet.
 */
static struct rte_mempool *find_pool(uint16_t shim)
{
	static const char *const names[] = {"slave_port%u_pool", "member_port%u_pool"}; /* since DPDK 23.11 */
	struct rte_mempool *pool = NULL;
	char name[RTE_MEMPOOL_NAMESIZE];

	for (unsigned i = 0; i < RTE_DIM(names) && pool == NULL; i++) {
		snprintf(name, sizeof(name), names[i], shim);
		pool = rte_mempool_lookup(name);
	}
	return pool;
}

/* ------- memory ------- */

/* Of one member: the pool, of which each queue may be full, with its ring and caches; and two short rings. */
static size_t slow_memory(unsigned queues)
{
	const unsigned buffers = queues * DEVICE_DESCRIPTORS + BUFFERS_BESIDE;

	return device_buffers_memory(buffers, sizeof(struct slow_protocol_frame) + RTE_PKTMBUF_HEADROOM) +
	       RTE_MEMPOOL_HEADER_SIZE((struct rte_mempool *)NULL, 1) +
	       (size_t)rte_ring_get_memsize(rte_align32pow2(buffers + 1)) +
	       2 * (size_t)rte_ring_get_memsize(BUFFERS_BESIDE);
}

size_t bond_memory(const char *uri, unsigned queues)
{
	struct device_error ignored;
	struct bond_names names;

	return bond_parse(uri, &names, &ignored) == 0 && names.mode == BOND_LACP ? names.count * slow_memory(queues)
										 : 0;
}

static size_t memory_left(void)
{
	struct rte_malloc_socket_stats heap;

	return rte_malloc_get_socket_stats((int)rte_socket_id(), &heap) == 0 ? heap.heap_freesz_bytes : SIZE_MAX;
}

static size_t memory_lacking(const struct bond_member *member)
{
	return find_pool(member->shim) == NULL ? slow_memory(member->bond->queues) : 0;
}

bool bond_has_slow_memory(const struct bond_member *member)
{
	return memory_lacking(member) <= memory_left();
}

int bond_check_slow_memory(const struct bond *bond, struct device_error *error)
{
	const size_t left = memory_left();
	size_t needed = 0;

	for (unsigned i = 0; i < bond->count; i++)
		needed += memory_lacking(&bond->members[i]);
	if (needed <= left)
		return 0;
	snprintf(error->text, sizeof(error->text), DEVICE_NO_MEMORY, (needed >> 20) + 1, left >> 20);
	return -ENOMEM;
}

/* ------- frames, in the threads of workers ------- */

static const struct rte_ether_addr slow_address = {{0x01, 0x80, 0xc2, 0x00, 0x00, 0x02}}; /* IEEE 802.3, 57A.3 */

/*
 * By its type, also behind tags, which the next device may take off; and by the address of slow protocols, which
 * nothing else is sent to.
 */
static bool is_slow(const struct rte_mbuf *mbuf)
{
	const struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(mbuf, const struct rte_ether_hdr *);
	rte_be16_t type;

	if (mbuf->data_len < sizeof(*ethernet))
		return false;
	if (unlikely(rte_is_same_ether_addr(&ethernet->dst_addr, &slow_address)))
		return true;
	type = ethernet->ether_type;
	for (uint32_t tags = 0, at = sizeof(*ethernet);
	     tags < TAGS_MOST && (type == RTE_BE16(RTE_ETHER_TYPE_VLAN) || type == RTE_BE16(RTE_ETHER_TYPE_QINQ)) &&
	     mbuf->data_len >= at + RTE_VLAN_HLEN;
	     tags++, at += RTE_VLAN_HLEN)
		memcpy(&type, (const uint8_t *)ethernet + at + offsetof(struct rte_vlan_hdr, eth_proto), sizeof(type));
	return type == RTE_BE16(RTE_ETHER_TYPE_SLOW);
}

/* Whether it is the driver's own.  Until that has a pool nothing leaves by the member: so it is seldom looked for. */
static bool is_drivers(struct bond_member *member, const struct rte_mbuf *mbuf)
{
	struct rte_mempool *pool = atomic_load_explicit(&member->slow_pool, memory_order_relaxed);

	if (unlikely(pool == NULL)) {
		pool = find_pool(member->shim);
		atomic_store_explicit(&member->slow_pool, pool, memory_order_relaxed);
	}
	return pool != NULL && mbuf->pool == pool;
}

/*
 * DPDK's driver has members carry frames together whoever is at their other ends; the standard has one aggregator of a
 * port do so at a time (IEEE 802.1AX, 6.3.1).  So the first other end that says that it agrees is chosen, until no
 * member has one that collects.  Members with another one tell it that they do not join, and the driver is told so of
 * it: then neither sends.
 */
static struct bond_end end_of(const struct port_params *partner, uint8_t state)
{
	return (struct bond_end){.system = partner->system,
				 .priority = partner->system_priority,
				 .key = partner->key,
				 .port = (state & LACP_AGGREGATION) != 0 ? 0 : partner->port_number};
}

static bool is_nobody(const struct bond_end *end)
{
	return rte_is_zero_ether_addr(&end->system);
}

static bool are_one(const struct bond_end *one, const struct bond_end *other)
{
	return memcmp(one, other, sizeof(*one)) == 0;
}

/*
 * What may be said of LACP_JOINS between the member and its other end: until one is chosen only that they agree.  With
 * `choose` the choice is made, if there is none.  While another thread looks at it, which may have been put off its
 * CPU, the member stays what it is: the next frame comes within a second.
 */
static uint8_t may_say(struct bond_member *member, const struct bond_end *end, bool choose)
{
	struct bond *bond = member->bond;
	uint8_t may = 0;

	if (is_nobody(end))
		return LACP_JOINS;
	if (!rte_spinlock_trylock(&bond->choice))
		return atomic_load_explicit(&member->aside, memory_order_relaxed) ? 0 : LACP_JOINS;
	if (choose && is_nobody(&bond->chosen)) {
		bond->chosen = *end;
		bond->chosen_by = member;
		bond->chosen_at = rte_rdtsc();
	}
	if (is_nobody(&bond->chosen))
		may = LACP_AGREES;
	else if (are_one(&bond->chosen, end))
		may = LACP_JOINS;
	atomic_store_explicit(&member->aside, may == 0, memory_order_relaxed);
	rte_spinlock_unlock(&bond->choice);
	return may;
}

void bond_choose(struct bond *bond)
{
	bool joined[BOND_MEMBERS] = {0}, collects[BOND_MEMBERS] = {0}, kept = false, young;
	struct bond_end ends[BOND_MEMBERS] = {0};

	for (unsigned i = 0; i < bond->count; i++) {
		struct rte_eth_bond_8023ad_member_info info;

		joined[i] = bond_lacp_state(&bond->members[i], &info);
		if (!joined[i] || (info.actor_state & LACP_ALONE) != 0)
			continue;
		ends[i] = end_of(&info.partner, info.partner_state);
		collects[i] = (info.partner_state & LACP_COLLECTS) != 0;
	}
	rte_spinlock_lock(&bond->choice);
	/* The driver hears a moment later what the choice was made by. */
	young = rte_rdtsc() - bond->chosen_at <= TO_AGREE * rte_get_tsc_hz();
	for (unsigned i = 0; i < bond->count; i++)
		kept |= (collects[i] && are_one(&ends[i], &bond->chosen)) ||
			(young && joined[i] && bond->chosen_by == &bond->members[i]);
	if (!kept)
		bond->chosen = (struct bond_end){0};
	for (unsigned i = 0; i < bond->count; i++)
		atomic_store_explicit(&bond->members[i].aside,
				      !is_nobody(&ends[i]) && !is_nobody(&bond->chosen) &&
					      !are_one(&ends[i], &bond->chosen),
				      memory_order_relaxed);
	rte_spinlock_unlock(&bond->choice);
}

/* LACP's part of a frame; NULL: it is another one. */
static struct lacpdu *lacpdu_of(struct rte_mbuf *mbuf)
{
	struct lacpdu_header *frame = rte_pktmbuf_mtod(mbuf, struct lacpdu_header *);

	return mbuf->data_len >= sizeof(*frame) && frame->eth_hdr.ether_type == RTE_BE16(RTE_ETHER_TYPE_SLOW) &&
			       frame->lacpdu.subtype == SLOW_SUBTYPE_LACP
		       ? &frame->lacpdu
		       : NULL;
}

/* Whether the driver takes it for LACP's or a marker. */
static bool is_for_driver(const struct rte_mbuf *mbuf)
{
	const struct slow_protocol_frame *frame = rte_pktmbuf_mtod(mbuf, const struct slow_protocol_frame *);

	return frame->eth_hdr.ether_type == RTE_BE16(RTE_ETHER_TYPE_SLOW) &&
	       (mbuf->data_len <= sizeof(frame->eth_hdr) || frame->slow_protocol.subtype == SLOW_SUBTYPE_LACP ||
		frame->slow_protocol.subtype == SLOW_SUBTYPE_MARKER);
}

/*
 * Whether it is one, which the driver does not look at: to the address that no bridge forwards, or anybody in the
 * network could speak for the other end; and all there, or what the buffer had before would be read.
 */
static bool is_from_link(const struct rte_mbuf *mbuf)
{
	return mbuf->data_len >= sizeof(struct lacpdu_header) &&
	       rte_is_same_ether_addr(&rte_pktmbuf_mtod(mbuf, const struct rte_ether_hdr *)->dst_addr, &slow_address);
}

/*
 * Let one that says that it joins say so only if the member may join that end.  `choose`: it is that end who says so;
 * what the driver says of one is no reason to choose it, which may never agree.
 */
static void confine(struct bond_member *member, uint8_t *state, const struct lacpdu_actor_partner_params *other,
		    bool choose)
{
	const struct bond_end end = end_of(&other->port_params, other->state);

	if ((*state & LACP_JOINS) != 0 && (*state & LACP_ALONE) == 0)
		*state &= (uint8_t)~LACP_JOINS | may_say(member, &end, choose);
}

static uint64_t system_of(const struct lacpdu *lacpdu)
{
	uint64_t word = 0;

	memcpy(&word, &lacpdu->actor.port_params.system, sizeof(lacpdu->actor.port_params.system));
	return word;
}

/* Whether a member of the same bond has sent it: members would agree with each other. */
static bool is_own(const struct bond *bond, const struct lacpdu *lacpdu)
{
	const uint64_t system = system_of(lacpdu);

	for (unsigned i = 0; i < bond->count && system != 0; i++)
		if (atomic_load_explicit(&bond->members[i].system, memory_order_relaxed) == system)
			return true;
	return false;
}

/* Whether the driver may have a frame. */
static bool may_take(struct bond_member *member, struct rte_mbuf *mbuf)
{
	struct lacpdu *lacpdu = NULL;

	if (unlikely(is_for_driver(mbuf))) {
		if (!is_from_link(mbuf))
			return false;
		lacpdu = lacpdu_of(mbuf);
	}
	if (likely(lacpdu == NULL))
		return !atomic_load_explicit(&member->aside, memory_order_relaxed);
	atomic_store_explicit(&member->looped, is_own(member->bond, lacpdu), memory_order_relaxed);
	if (atomic_load_explicit(&member->looped, memory_order_relaxed))
		return false;
	confine(member, &lacpdu->actor.state, &lacpdu->actor, true);
	return true;
}

uint16_t bond_take_slow(struct bond_member *member, struct rte_mbuf **mbufs, uint16_t count)
{
	uint16_t left = 0;

	for (uint16_t i = 0; i < count; i++) {
		if (likely(may_take(member, mbufs[i]))) {
			mbufs[left++] = mbufs[i];
			continue;
		}
		rte_pktmbuf_free(mbufs[i]);
		atomic_fetch_add_explicit(&member->strays, 1, memory_order_relaxed);
	}
	return left;
}

/*
 * The driver asks the other end for a frame each 30 s, and has no setting for that.  With the bit of the short time-out
 * it is one a second (IEEE 802.1AX, 6.4.2.3), so that silence is noticed after 3 s (lacp_timeouts()).
 */
static void complete(struct bond_member *member, struct rte_mbuf *mbuf)
{
	struct lacpdu *lacpdu = lacpdu_of(mbuf);

	if (lacpdu == NULL)
		return;
	atomic_store_explicit(&member->system, system_of(lacpdu), memory_order_relaxed);
	lacpdu->actor.state |= LACP_SHORT_TIMEOUT;
	confine(member, &lacpdu->actor.state, &lacpdu->partner, false);
}

bool bond_send_slow(struct bond_member *member, struct rte_mbuf **mbufs, uint16_t *count)
{
	for (uint16_t i = 0; i < *count; i++) {
		if (likely(!is_slow(mbufs[i])))
			continue;
		/* The driver sends its own one by one. */
		if (*count == 1 && is_drivers(member, mbufs[0])) {
			complete(member, mbufs[0]);
			(void)!send(member->slow_fd, rte_pktmbuf_mtod(mbufs[0], void *), mbufs[0]->data_len,
				    MSG_DONTWAIT); /* one that is lost is sent again within a second */
			return true;
		}
		*count = i;
	}
	return false;
}

/* ------- the socket ------- */

int bond_open_slow(struct bond_member *member)
{
	const struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_ifindex = (int)if_nametoindex(strchr(member->uri, ':') + 1),
	};
	int rc = 0;

	member->slow_fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0); /* which receives nothing */
	if (member->slow_fd < 0 || bind(member->slow_fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
		rc = -errno;
	if (rc != 0)
		snprintf(member->problem.text, sizeof(member->problem.text), "no socket for LACP: %s", strerror(-rc));
	return rc;
}

void bond_close_slow(struct bond_member *member)
{
	if (member->slow_fd >= 0)
		close(member->slow_fd);
	member->slow_fd = -1;
}
