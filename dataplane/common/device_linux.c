/* SPDX-License-Identifier: Apache-2.0
 *
 * Interfaces of Linux's as devices: AF_PACKET, AF_XDP and TAP.
 */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_mbuf.h>

#include "device_internal.h"
#include "device_send_only.h"
#include "log.h"

static int check_interface(const char *name, struct device_error *error)
{
	struct ifreq request = {0};
	int fd, rc = 0;

	if (if_nametoindex(name) == 0)
		return device_fail(error, -ENODEV, "no network interface '%s'; see 'ip link' for those there are",
				   name);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return device_fail(error, -errno, "interface %s: %s", name, strerror(errno));
	strcpy(request.ifr_name, name);
	if (ioctl(fd, SIOCGIFFLAGS, &request) == 0 && !(request.ifr_flags & IFF_UP))
		rc = device_fail(error, -ENETDOWN, "interface %s is down; bring it up with 'ip link set %s up'", name,
				 name);
	close(fd);
	return rc;
}

/* Receive and transmit queues in pairs, which AF_XDP needs one of for each queue. */
static unsigned channels_of(const char *name)
{
	struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
	struct ifreq request = {.ifr_data = (void *)&channels};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	strcpy(request.ifr_name, name);
	if (fd < 0 || ioctl(fd, SIOCETHTOOL, &request) != 0)
		channels.combined_count = 0;
	if (fd >= 0)
		close(fd);
	return channels.combined_count > 0 ? channels.combined_count : 1;
}

/*
 * Frames in each ring that an AF_PACKET device sends by: `most`, or as many as may be locked in memory, where the
 * driver maps two rings for each queue pair.  0: not even a burst of a few.
 */
static unsigned sending_ring(unsigned queues, unsigned frame, unsigned most)
{
	const unsigned long long lockable = device_lockable_bytes();
	unsigned frames = most;

	while (frames >= 64 && 2ull * queues * frames * frame > lockable)
		frames /= 2;
	if (frames < 64)
		return 0;
	if (frames < most)
		log_warning("an AF_PACKET device sends by rings of %u frames and not of %u: this program may lock only "
			    "%llu KiB more in memory (ulimit -l)",
			    frames, most, lockable >> 10);
	return frames;
}

/* Have the driver open its sockets, to send by.  Returns 0, or -errno with the error filled in. */
static int open_sending(const struct device *device, unsigned queues, unsigned frame, unsigned frames,
			struct device_error *error)
{
	char arguments[256];
	unsigned bound;
	int rc;

	snprintf(arguments, sizeof(arguments), "%s,iface=%s,qpairs=%u,framesz=%u,blocksz=%u,framecnt=%u", device->name,
		 device->target, queues, frame, frame > 4096 ? frame : 4096, frames);
	send_only_begin();
	rc = rte_dev_probe(arguments);
	bound = send_only_end();
	if (rc != 0)
		return device_fail(error, -EIO, "interface %s: DPDK could not open it; see the messages above",
				   device->target);
	if (bound == queues)
		return 0;
	rte_eal_hotplug_remove("vdev", device->name);
	return device_fail(error, -ENOTSUP,
			   "interface %s: this version of DPDK opens it in a way that is not known here",
			   device->target);
}

int device_probe_interface(struct device *device, unsigned queues, struct rte_mempool *pool, struct device_error *error)
{
	/* The driver copies a frame to one slot, however long that is. */
	const bool jumbo = rte_pktmbuf_data_room_size(pool) >= DEVICE_JUMBO_ROOM;
	/* 4 or 8 MiB: room for what comes while the polling thread is held up. */
	const struct packet_options receiving = {
		.interface = if_nametoindex(device->target),
		.slot_size = jumbo ? 16384 : 2048,
		.nb_slots = jumbo ? 512 : 2048,
		.pool = pool,
	};
	unsigned frames;
	int rc = check_interface(device->target, error);

	if (rc == 0)
		rc = device_check_capabilities("if:", device, error);
	if (rc != 0)
		return rc;
	frames = sending_ring(queues, receiving.slot_size, receiving.nb_slots / 2);
	if (frames == 0)
		return device_fail(
			error, -EPERM,
			"interface %s: its rings must stay in memory, and this program may lock only %llu KiB "
			"more; raise its limit (ulimit -l, or LimitMEMLOCK= of its service), or let it have the "
			"capability ipc_lock (--keep)",
			device->target, device_lockable_bytes() >> 10);
	device->packets = calloc(queues, sizeof(*device->packets));
	if (device->packets == NULL)
		return device_fail(error, -ENOMEM, "interface %s: out of memory", device->target);
	device->nb_packets = queues;
	rc = packet_open(device->packets, queues, &receiving);
	if (rc != 0)
		return device_fail(error, rc, "interface %s: no packet sockets to receive by: %s", device->target,
				   strerror(-rc));
	return open_sending(device, queues, receiving.slot_size, frames, error);
}

int device_probe_xdp(struct device *device, unsigned queues, struct device_error *error)
{
	char arguments[256];
	unsigned channels;
	int rc = check_interface(device->target, error);

	if (rc == 0)
		rc = device_check_capabilities("xdp:", device, error);
	if (rc != 0)
		return rc;
	channels = channels_of(device->target);
	if (channels < queues)
		return device_fail(error, -EINVAL,
				   "interface %s has %u queue%s for AF_XDP and %u are asked for; 'ethtool -L %s "
				   "combined N' gives it more",
				   device->target, channels, channels == 1 ? "" : "s", queues, device->target);
	snprintf(arguments, sizeof(arguments), "%s,iface=%s,start_queue=0,queue_count=%u", device->name, device->target,
		 queues);
	if (rte_dev_probe(arguments) == 0)
		return 0;
	return device_fail(error, -EIO, "interface %s: DPDK could not open it for AF_XDP; see the messages above",
			   device->target);
}

int device_probe_tap(struct device *device, struct device_error *error)
{
	const bool existed = if_nametoindex(device->target) != 0;
	char arguments[256];
	int rc;

	if (access("/dev/net/tun", F_OK) != 0)
		return device_fail(error, -ENODEV, "tap:%s: this machine has no /dev/net/tun", device->target);
	rc = device_check_capabilities("tap:", device, error);
	if (rc != 0)
		return rc;
	snprintf(arguments, sizeof(arguments), "%s,iface=%s", device->name, device->target);
	if (rte_dev_probe(arguments) == 0)
		return 0;
	if (existed)
		return device_fail(error, -EBUSY, "interface %s exists and is no free TAP interface; use another name",
				   device->target);
	return device_fail(error, -EIO, "tap:%s: the interface could not be made; see the messages above",
			   device->target);
}
