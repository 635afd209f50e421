/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <net/if.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_log.h>

#include "device_internal.h"

enum {
	MTU_JUMBO = 9000,
	SENT_KEPT = 64, /* buffers that have been sent and a vhost-user front end may keep: a burst */
};

/* What the driver finds wrong while it opens is worth a line; that a peer has gone it would say often. */
static const char *const repetitive[] = {"pmd.net.virtio.*", "pmd.net.memif*"};

/*
 * Offloads to ask for.  A device that lacks one leaves it to the sender, who sees that in `transmits`; a checksum that
 * the device has verified need not be verified again by who gets the frame.
 */
#define WANTED_TRANSMITS                                                                                \
	(RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM | \
	 RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_TSO)
#define WANTED_RECEIVES (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM)

/* With this key a flow and its answer hash alike (S. Woo and K. Park, "Scalable TCP Session Monitoring with Symmetric
 * Receive-side Scaling", 2012), so that one queue sees both. */
static uint8_t symmetric_key[64];

static void spread(struct rte_eth_conf *config, const struct rte_eth_dev_info *info)
{
	const uint64_t flows = info->flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);

	if (flows == 0)
		return;
	for (unsigned i = 0; i < sizeof(symmetric_key); i += 2) {
		symmetric_key[i] = 0x6d;
		symmetric_key[i + 1] = 0x5a;
	}
	config->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	config->rx_adv_conf.rss_conf = (struct rte_eth_rss_conf){
		.rss_key = symmetric_key,
		.rss_key_len = info->hash_key_size > 0 && info->hash_key_size <= sizeof(symmetric_key)
				       ? info->hash_key_size
				       : 40,
		.rss_hf = flows,
	};
}

unsigned device_mtu(const char *interface)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int mtu = 0;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0)
		mtu = request.ifr_mtu;
	if (fd >= 0)
		close(fd);
	return mtu;
}

void device_follow_mtu(struct device *device)
{
	char name[IF_NAMESIZE];
	unsigned mtu;

	if (device->interface == 0 || device->kind == DEVICE_PCI || if_indextoname(device->interface, name) == NULL)
		return;
	mtu = RTE_MIN(device_mtu(name), (unsigned)UINT16_MAX - RTE_ETHER_HDR_LEN - RTE_VLAN_HLEN);
	/* DPDK's driver for TAP sends nothing longer than it was configured for, which is not more than Ethernet has.
	 */
	if (device->kind == DEVICE_TAP)
		mtu = RTE_MIN(mtu, (unsigned)RTE_ETHER_MTU);
	/* Nor does the one for AF_XDP know a frame in two buffers: it copies all of it to one. */
	if (device->kind == DEVICE_XDP)
		mtu = RTE_MIN(mtu, (unsigned)device->buffer - RTE_ETHER_HDR_LEN - RTE_VLAN_HLEN);
	if (mtu > 0)
		__atomic_store_n(&device->longest, mtu + RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN, __ATOMIC_RELAXED);
}

static int set_up_queues(struct device *device, const struct device_options *options,
			 const struct rte_eth_dev_info *info)
{
	uint16_t wanted = options->descriptors ? options->descriptors : DEVICE_DESCRIPTORS;
	uint16_t received = wanted, sent = wanted;
	int socket = rte_eth_dev_socket_id(device->port);
	int rc = rte_eth_dev_adjust_nb_rx_tx_desc(device->port, &received, &sent);
	struct rte_eth_txconf transmit = info->default_txconf;

	/* Else they come back only when the ring is nearly full, and the next frames are written to buffers gone cold.
	 */
	if ((device->kind == DEVICE_VHOST || device->kind == DEVICE_VHOST_SERVER) && sent > 2 * SENT_KEPT)
		transmit.tx_free_thresh = sent - SENT_KEPT;
	for (uint16_t queue = 0; queue < device->queues && rc == 0; queue++) {
		rc = rte_eth_rx_queue_setup(device->port, queue, received, socket, NULL, options->pool);
		if (rc == 0)
			rc = rte_eth_tx_queue_setup(device->port, queue, sent, socket, &transmit);
	}
	device->descriptors = sent;
	return rc;
}

/* Flags of Linux's interface, after `more` were set: 0: it has gone; negative: it cannot be asked. */
static int interface_flags(unsigned interface, short more)
{
	struct ifreq request = {.ifr_ifindex = (int)interface};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), flags = 0;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, SIOCGIFNAME, &request) == 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0) {
		flags = (unsigned short)request.ifr_flags;
		request.ifr_flags = (short)(flags | more);
		if (more != 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0)
			flags |= more;
	}
	close(fd);
	return flags;
}

static int configure(struct device *device, const struct device_options *options, struct device_error *error)
{
	struct rte_eth_conf config = {.intr_conf.rxq = options->interrupts};
	const char *step = "describe itself";
	struct rte_eth_dev_info info;
	uint16_t mtu = RTE_ETHER_MTU;
	unsigned most;
	int was, rc;

	device->queues = options->queues ? options->queues : 1;
	rc = rte_eth_dev_info_get(device->port, &info);
	if (rc != 0)
		goto fail;
	device->interface = info.if_index;
	most = device_queues_of(&info);
	if (most < device->queues)
		return device_fail(error, -EINVAL, "%s has %u queue%s and %u are asked for; ask for fewer",
				   device->target, most, most == 1 ? "" : "s", device->queues);
	if (options->jumbo && (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER)) {
		mtu = RTE_MIN(info.max_mtu, MTU_JUMBO);
		if (info.max_rx_pktlen < (uint32_t)mtu + RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN)
			mtu = info.max_rx_pktlen - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN;
		config.rxmode.offloads = RTE_ETH_RX_OFFLOAD_SCATTER;
	}
	config.rxmode.mtu = mtu;
	config.rxmode.offloads |= options->offloads ? info.rx_offload_capa & WANTED_RECEIVES : 0;
	config.txmode.offloads = info.tx_offload_capa &
				 (options->offloads ? WANTED_TRANSMITS : RTE_ETH_TX_OFFLOAD_MULTI_SEGS);
	/* DPDK's driver does it in software there, and knows no IPv6. */
	if (device->kind == DEVICE_TAP)
		config.txmode.offloads &= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (device->queues > 1)
		spread(&config, &info);
	/*
	 * DPDK goes by what the driver last reported of its link, and not by the link.  A PCI device whose queues
	 * interrupt may have no vector left to report by, or a driver that sets none up: that one is asked.
	 */
	device->link_events = device->kind != DEVICE_PCI && (*info.dev_flags & RTE_ETH_DEV_INTR_LSC);
	config.intr_conf.lsc = device->link_events;
	step = "take its configuration";
	rc = rte_eth_dev_configure(device->port, device->queues, device->queues, &config);
	if (rc != 0)
		goto fail;
	device->receives = config.rxmode.offloads;
	device->transmits = config.txmode.offloads;
	step = "set up its rings";
	rc = set_up_queues(device, options, &info);
	if (rc != 0)
		goto fail;
	step = "start";
	was = device->kind == DEVICE_INTERFACE ? interface_flags(device->interface, 0) : 0;
	rc = rte_eth_dev_start(device->port);
	/* DPDK has ended the mode that somebody else may have set for purposes of their own. */
	if (was > 0 && (was & IFF_PROMISC))
		interface_flags(device->interface, IFF_PROMISC);
	if (rc != 0 && device->kind != DEVICE_MEMIF)
		goto fail;
	device->started = rc == 0;
	/* Not every device has the mode, or needs it; what an `if:` device receives by has it (device_packet.c). */
	rc = device->kind == DEVICE_INTERFACE ? 0 : rte_eth_promiscuous_enable(device->port);
	device_look_at_function(device, &info, rc == 0);
	device->buffer = rte_pktmbuf_data_room_size(options->pool) - RTE_PKTMBUF_HEADROOM;
	device->longest = mtu + RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
	device_follow_mtu(device);
	return 0;
fail:
	return device_fail(error, rc, "%s did not %s: %s", device->target, step, rte_strerror(-rc));
}

static void set_log_levels(uint32_t level, uint32_t eal)
{
	for (unsigned i = 0; i < RTE_DIM(repetitive); i++)
		rte_log_set_level_pattern(repetitive[i], level);
	rte_log_set_level_pattern("lib.eal", eal);
}

int device_open(struct device *device, const char *uri, const struct device_options *options,
		struct device_error *error)
{
	int rc;

	*device = (struct device){.port = RTE_MAX_ETHPORTS};
	set_log_levels(options->quiet ? RTE_LOG_CRIT : RTE_LOG_ERR, options->quiet ? RTE_LOG_CRIT : RTE_LOG_ERR);
	rc = device_parse(uri, &device->kind, &device->target, error);
	if (rc == 0 && options->queues > DEVICE_QUEUES)
		rc = device_fail(error, -EINVAL, "%s: at most %d queues", uri, DEVICE_QUEUES);
	if (rc == 0)
		rc = device_probe(device, options, error);
	if (rc == 0)
		rc = configure(device, options, error);
	/* What was never started complains of being stopped. */
	if (rc != 0) {
		set_log_levels(RTE_LOG_CRIT, RTE_LOG_CRIT);
		device_close(device);
	}
	set_log_levels(RTE_LOG_CRIT, RTE_LOG_ERR);
	return rc;
}

/* Linux's view of an interface, which the drivers of AF_PACKET and AF_XDP do not ask for. */
static bool interface_runs(unsigned interface)
{
	const int flags = interface_flags(interface, 0);

	return flags < 0 || ((flags & IFF_UP) && (flags & IFF_RUNNING));
}

bool device_link_up(const struct device *device)
{
	struct rte_eth_link link;

	if (!device->started)
		return false;
	if (device->kind == DEVICE_INTERFACE || device->kind == DEVICE_XDP)
		return interface_runs(device->interface);
	return rte_eth_link_get_nowait(device->port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP &&
	       device_physical_up(device);
}

bool device_exists(const struct device *device)
{
	char name[IF_NAMESIZE];

	if (device->kind == DEVICE_PCI)
		return device_pci_exists(device->name);
	return device->interface == 0 || if_indextoname(device->interface, name) != NULL;
}

/* ------- stopping ------- */

struct errand {
	void (*work)(struct device *device);
	struct device *device;
	sem_t done;
};

static void run(void *argument)
{
	struct errand *errand = argument;

	errand->work(errand->device);
	sem_post(&errand->done);
}

/*
 * Drivers take a callback back from DPDK's interrupt thread when they stop, and go on if it is just running there;
 * virtio-user's then reads the device that has been closed meanwhile (seen with DPDK 22.11, when a back end dies and
 * its device is closed at once).  In that thread itself no callback is running, and what they have put off until
 * later by an alarm comes before ours.
 */
static void in_interrupt_thread(void (*work)(struct device *device), struct device *device)
{
	struct errand errand = {.work = work, .device = device};

	sem_init(&errand.done, 0, 0);
	if (rte_eal_alarm_set(1, run, &errand) != 0)
		run(&errand);
	while (sem_wait(&errand.done) != 0)
		;
	sem_destroy(&errand.done);
}

static void restart(struct device *device)
{
	rte_eth_dev_stop(device->port);
	device->started = rte_eth_dev_start(device->port) == 0;
}

bool device_restart(struct device *device)
{
	/* That the peer is not there it would say each time. */
	set_log_levels(RTE_LOG_CRIT, RTE_LOG_ERR);
	in_interrupt_thread(restart, device);
	return device->started;
}

static void stop_and_remove(struct device *device)
{
	struct rte_eth_dev_info info;

	rte_eth_dev_stop(device->port);
	/* Removing the whole device closes its port, and frees its name for another one. */
	if (rte_eth_dev_info_get(device->port, &info) != 0 || rte_dev_remove(info.device) != 0)
		rte_eth_dev_close(device->port);
}

void device_close(struct device *device)
{
	if (rte_eth_dev_is_valid_port(device->port)) {
		in_interrupt_thread(stop_and_remove, device);
		device_unprobe(device);
		device->port = RTE_MAX_ETHPORTS;
	}
	packet_close(device->packets, device->nb_packets);
	free(device->packets);
	device->packets = NULL;
	device->nb_packets = 0;
}
