/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_ether.h>
#include <rte_mbuf.h>

#include "port/device_bond_internal.h"

enum {
	LACP_SHORT_TIMEOUT = 0x02,
	TAGS_MOST = 2, /* behind which a slow protocol is looked for */
};

/* ------- frames, in the threads of workers ------- */

/*
 * By its type, also behind tags, which the next device may take off; and by the address of slow protocols (IEEE 802.3,
 * 57A.3), which nothing else is sent to.
 */
static bool is_slow(const struct rte_mbuf *mbuf)
{
	static const struct rte_ether_addr all = {{0x01, 0x80, 0xc2, 0x00, 0x00, 0x02}};
	const struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(mbuf, const struct rte_ether_hdr *);
	rte_be16_t type;

	if (mbuf->data_len < sizeof(*ethernet))
		return false;
	if (unlikely(rte_is_same_ether_addr(&ethernet->dst_addr, &all)))
		return true;
	type = ethernet->ether_type;
	for (uint32_t tags = 0, at = sizeof(*ethernet);
	     tags < TAGS_MOST && (type == RTE_BE16(RTE_ETHER_TYPE_VLAN) || type == RTE_BE16(RTE_ETHER_TYPE_QINQ)) &&
	     mbuf->data_len >= at + RTE_VLAN_HLEN;
	     tags++, at += RTE_VLAN_HLEN)
		memcpy(&type, (const uint8_t *)ethernet + at + offsetof(struct rte_vlan_hdr, eth_proto), sizeof(type));
	return type == RTE_BE16(RTE_ETHER_TYPE_SLOW);
}

/*
 * The driver makes a pool for each of its members, once for all who ever have the number, and gives it to nobody.  It
 * is there before the first frame of it; until then nothing is sent by the member, so that it is looked for seldom.
 */
static bool is_drivers(struct bond_member *member, const struct rte_mbuf *mbuf)
{
	/* DPDK 24.11 has another word. */
	static const char *const names[] = {"slave_port%u_pool", "member_port%u_pool"};
	struct rte_mempool *pool = atomic_load_explicit(&member->slow_pool, memory_order_relaxed);
	char name[RTE_MEMPOOL_NAMESIZE];

	for (unsigned i = 0; i < RTE_DIM(names) && unlikely(pool == NULL); i++) {
		snprintf(name, sizeof(name), names[i], member->shim);
		pool = rte_mempool_lookup(name);
		atomic_store_explicit(&member->slow_pool, pool, memory_order_relaxed);
	}
	return pool != NULL && mbuf->pool == pool;
}

/*
 * The driver asks the other end for a frame each 30 s, and has no setting for that.  With this bit it is one a second
 * (IEEE 802.1AX, 6.4.2.3), so that silence is noticed after 3 s (lacp_timeouts()).
 */
static void ask_for_more(struct rte_mbuf *mbuf)
{
	struct lacpdu_header *frame = rte_pktmbuf_mtod(mbuf, struct lacpdu_header *);

	if (mbuf->data_len >= sizeof(*frame) && frame->lacpdu.subtype == SLOW_SUBTYPE_LACP)
		frame->lacpdu.actor.state |= LACP_SHORT_TIMEOUT;
}

bool bond_send_slow(struct bond_member *member, struct rte_mbuf **mbufs, uint16_t *count)
{
	for (uint16_t i = 0; i < *count; i++) {
		if (likely(!is_slow(mbufs[i])))
			continue;
		/* The driver sends its own one by one. */
		if (*count == 1 && is_drivers(member, mbufs[0])) {
			ask_for_more(mbufs[0]);
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
