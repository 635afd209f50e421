/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-tap-guest: a Linux network stack as a vhost-user guest, where no virtual machine is at hand.
 *
 * A TAP interface on one side, a virtio-user port on the other.  What the stack asks a network card to do, complete a
 * checksum or cut a 64 KiB segment, goes to the switch as a virtual machine's request would: the TAP's network header
 * becomes the mbuf's offload flags, from which DPDK's virtio driver makes the network header in the ring; and back.
 *
 * It sleeps while neither side has anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_net.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "common/eal.h"
#include "common/log.h"
#include "common/option.h"
#include "common/stop.h"

enum {
	BUFFERS = 2047,
	BUFFER_DATA = 24 << 10, /* three of them hold the largest segment */
	PIECES = 4,
	DESCRIPTORS = 256,
	BURST = 32,
	MEMORY_MIB = 96,
	HEADER = sizeof(struct virtio_net_hdr_mrg_rxbuf),
	TCP_CHECKSUM_AT = offsetof(struct rte_tcp_hdr, cksum),
	UDP_CHECKSUM_AT = offsetof(struct rte_udp_hdr, dgram_cksum),
};

struct guest {
	uint16_t port;
	int tap, interrupt;
	struct rte_mempool *pool;
};

static const char usage[] = "usage: tailrace-tap-guest --socket PATH --tap NAME [--core N] [--huge]\n"
			    "\n"
			    "Carry frames between a TAP interface, which it makes, and a vhost-user back end that "
			    "connects to PATH; checksum\n"
			    "and segmentation requests of the network stack are passed on.\n";

/* The interface, with a network header before each frame.  Returns its descriptor or -errno. */
static int open_tap(const char *name)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int header = HEADER, fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &request) != 0 || ioctl(fd, TUNSETVNETHDRSZ, &header) != 0 ||
	    ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
		int error = -errno;

		close(fd);
		return error;
	}
	return fd;
}

/* The virtio-user port, listening at `path`; returns when a back end has come.  Returns 0 or -errno. */
static int open_port(struct guest *guest, const char *path)
{
	struct rte_eth_conf config = {
		.intr_conf.rxq = 1,
		.rxmode.offloads = RTE_ETH_RX_OFFLOAD_TCP_LRO | RTE_ETH_RX_OFFLOAD_TCP_CKSUM |
				   RTE_ETH_RX_OFFLOAD_UDP_CKSUM,
		.txmode.offloads = RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
				   RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_MULTI_SEGS,
	};
	struct rte_eth_dev_info info;
	char arguments[256];
	int rc;

	snprintf(arguments, sizeof(arguments), "path=%s,queue_size=%d,server=1", path, DESCRIPTORS);
	rc = rte_vdev_init("net_virtio_user0", arguments); /* rte_dev_probe() may refuse the length of a path */
	if (rc != 0 || (rc = rte_eth_dev_get_port_by_name("net_virtio_user0", &guest->port)) != 0)
		return rc;
	rc = rte_eth_dev_info_get(guest->port, &info);
	if (rc != 0)
		return rc;
	/* A back end that offers fewer gets what it can take: the stack then does the rest itself. */
	config.rxmode.offloads &= info.rx_offload_capa;
	config.txmode.offloads &= info.tx_offload_capa;
	rc = rte_eth_dev_configure(guest->port, 1, 1, &config);
	if (rc == 0)
		rc = rte_eth_rx_queue_setup(guest->port, 0, DESCRIPTORS, 0, NULL, guest->pool);
	if (rc == 0)
		rc = rte_eth_tx_queue_setup(guest->port, 0, DESCRIPTORS, 0, NULL);
	if (rc == 0)
		rc = rte_eth_dev_start(guest->port);
	if (rc != 0)
		return rc;
	guest->interrupt = rte_eth_dev_rx_intr_ctl_q_get_fd(guest->port, 0);
	if (!(config.txmode.offloads & RTE_ETH_TX_OFFLOAD_TCP_TSO) &&
	    ioctl(guest->tap, TUNSETOFFLOAD, config.txmode.offloads & RTE_ETH_TX_OFFLOAD_TCP_CKSUM ? TUN_F_CSUM : 0) !=
		    0)
		return -errno;
	return guest->interrupt < 0 ? guest->interrupt : 0;
}

/* ------- from the stack to the switch ------- */

static void set_offload(struct rte_mbuf *mbuf, const struct virtio_net_hdr *header)
{
	const struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(mbuf, const struct rte_ether_hdr *);
	bool ipv6 = ethernet->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6);
	const struct rte_tcp_hdr *tcp;

	if (!(header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
		return;
	mbuf->l2_len = sizeof(*ethernet);
	mbuf->l3_len = header->csum_start - sizeof(*ethernet);
	mbuf->ol_flags |= ipv6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4;
	mbuf->ol_flags |= header->csum_offset == TCP_CHECKSUM_AT ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;
	if (header->gso_type == VIRTIO_NET_HDR_GSO_NONE)
		return;
	tcp = rte_pktmbuf_mtod_offset(mbuf, const struct rte_tcp_hdr *, header->csum_start);
	mbuf->l4_len = (tcp->data_off >> 4) * 4;
	mbuf->tso_segsz = header->gso_size;
	mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
}

/* One frame, or NULL when there is none. */
static struct rte_mbuf *read_tap(struct guest *guest)
{
	struct virtio_net_hdr_mrg_rxbuf header;
	struct iovec pieces[PIECES] = {{&header, HEADER}};
	struct rte_mbuf *mbufs[PIECES - 1];
	ssize_t length;
	int used;

	if (rte_pktmbuf_alloc_bulk(guest->pool, mbufs, PIECES - 1) != 0)
		return NULL;
	for (int i = 0; i < PIECES - 1; i++)
		pieces[i + 1] = (struct iovec){rte_pktmbuf_mtod(mbufs[i], void *), BUFFER_DATA};
	length = readv(guest->tap, pieces, PIECES) - HEADER;
	for (used = 0; used < PIECES - 1 && length > 0; used++) {
		mbufs[used]->data_len = RTE_MIN(length, BUFFER_DATA);
		length -= mbufs[used]->data_len;
		mbufs[0]->pkt_len += mbufs[used]->data_len;
		if (used > 0)
			mbufs[used - 1]->next = mbufs[used];
	}
	rte_pktmbuf_free_bulk(mbufs + used, PIECES - 1 - used);
	if (used == 0)
		return NULL;
	mbufs[0]->nb_segs = used;
	set_offload(mbufs[0], &header.hdr);
	return mbufs[0];
}

static unsigned carry_out(struct guest *guest)
{
	struct rte_mbuf *mbufs[BURST];
	unsigned count = 0, sent = 0;

	while (count < BURST && (mbufs[count] = read_tap(guest)) != NULL)
		count++;
	/* A full ring is the stack's to feel: it is not read from meanwhile. */
	while (sent < count) {
		sent += rte_eth_tx_burst(guest->port, 0, mbufs + sent, count - sent);
		if (sent < count)
			usleep(20);
	}
	return count;
}

/* ------- from the switch to the stack ------- */

static void get_offload(const struct rte_mbuf *mbuf, struct virtio_net_hdr *header)
{
	struct rte_net_hdr_lens lengths;
	uint32_t type;

	memset(header, 0, sizeof(*header));
	if ((mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD)
		header->flags = VIRTIO_NET_HDR_F_DATA_VALID;
	if ((mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) != RTE_MBUF_F_RX_L4_CKSUM_NONE)
		return;
	type = rte_net_get_ptype(mbuf, &lengths, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK);
	header->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	header->csum_start = lengths.l2_len + lengths.l3_len;
	header->csum_offset = (type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP ? UDP_CHECKSUM_AT : TCP_CHECKSUM_AT;
	if (!(mbuf->ol_flags & RTE_MBUF_F_RX_LRO))
		return;
	header->gso_type = RTE_ETH_IS_IPV4_HDR(type) ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
	header->gso_size = mbuf->tso_segsz;
	header->hdr_len = lengths.l2_len + lengths.l3_len + lengths.l4_len;
}

static void write_tap(const struct guest *guest, const struct rte_mbuf *mbuf)
{
	struct virtio_net_hdr_mrg_rxbuf header = {.num_buffers = 1};
	struct iovec pieces[64] = {{&header, HEADER}};
	int count = 1;

	get_offload(mbuf, &header.hdr);
	for (; mbuf != NULL && count < (int)RTE_DIM(pieces); mbuf = mbuf->next)
		pieces[count++] = (struct iovec){rte_pktmbuf_mtod(mbuf, void *), mbuf->data_len};
	/* What the stack refuses, because its interface is down or its queue full, is its own loss. */
	if (writev(guest->tap, pieces, count) < 0 && errno != EIO && errno != EAGAIN)
		log_warning("the TAP interface refused a frame: %s", strerror(errno));
}

static unsigned carry_in(struct guest *guest)
{
	struct rte_mbuf *mbufs[BURST];
	unsigned count = rte_eth_rx_burst(guest->port, 0, mbufs, BURST);

	for (unsigned i = 0; i < count; i++)
		write_tap(guest, mbufs[i]);
	rte_pktmbuf_free_bulk(mbufs, count);
	return count;
}

static void serve(struct guest *guest, int stop)
{
	struct pollfd wait[] = {{stop, POLLIN, 0}, {guest->tap, POLLIN, 0}, {guest->interrupt, POLLIN, 0}};
	uint64_t kicks;

	while (!(wait[0].revents & POLLIN)) {
		while (carry_in(guest) + carry_out(guest) > 0)
			if (poll(wait, 1, 0) > 0)
				return;
		rte_eth_dev_rx_intr_enable(guest->port, 0);
		if (carry_in(guest) == 0)
			poll(wait, RTE_DIM(wait), -1);
		if ((wait[2].revents & POLLIN) && read(guest->interrupt, &kicks, sizeof(kicks)) < 0)
			log_debug("nobody had kicked");
		rte_eth_dev_rx_intr_disable(guest->port, 0);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"socket", required_argument, NULL, 's'}, {"tap", required_argument, NULL, 't'},
		{"core", required_argument, NULL, 'c'},	  {"huge", no_argument, NULL, 'h'},
		{"help", no_argument, NULL, '?' + 1},	  {NULL, 0, NULL, 0},
	};
	struct eal_options eal = {.program = "tailrace-tap-guest", .core = -1, .memory_mib = MEMORY_MIB};
	const char *path = NULL, *name = NULL;
	struct guest guest = {.tap = -1};
	int option, stop, rc;

	log_open("tailrace-tap-guest", LOG_LEVEL_INFO);
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1)
		switch (option) {
		case 's':
			path = optarg;
			break;
		case 't':
			name = optarg;
			break;
		case 'c':
			eal.core = (int)option_number("core", optarg, 0, 1023);
			break;
		case 'h':
			eal.huge = true;
			break;
		case '?' + 1:
			fputs(usage, stdout);
			return 0;
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (path == NULL || name == NULL || optind < argc) {
		fputs(usage, stderr);
		return 2;
	}
	stop = stop_open();
	if (stop < 0 || eal_start(&eal) != 0)
		return 1;
	guest.pool = rte_pktmbuf_pool_create("guest", BUFFERS, 0, 0, BUFFER_DATA + RTE_PKTMBUF_HEADROOM, 0);
	guest.tap = open_tap(name);
	if (guest.pool == NULL || guest.tap < 0) {
		log_error("TAP interface %s: %s", name, guest.pool == NULL ? "no memory" : strerror(-guest.tap));
		return 1;
	}
	rc = open_port(&guest, path);
	if (rc != 0) {
		log_error("%s: %s", path, strerror(-rc));
		return 1;
	}
	serve(&guest, stop);
	rte_eth_dev_stop(guest.port);
	rte_eth_dev_close(guest.port);
	unlink(path);
	rte_eal_cleanup();
	return 0;
}
