/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "device_internal.h"
#include "log.h"

enum {
	PATH_LONGEST = sizeof(((struct sockaddr_un *)0)->sun_path) - 1,
	SERVERS = 16, /* vhost-server ports of one program */
};

static unsigned nb_made; /* so that each device made here has a name of its own */

/* Socket files of vhost-server ports, for a signal that comes while we wait for a back end. */
static char server_paths[SERVERS][PATH_LONGEST + 1];

/* Try to connect to a Unix socket.  Returns 0 or -errno. */
static int try_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int rc, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	strcpy(address.sun_path, path);
	rc = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : -errno;
	close(fd);
	return rc;
}

static int check_client_socket(const char *path, struct device_error *error)
{
	struct stat file;

	if (stat(path, &file) != 0)
		return device_fail(error, -errno, "%s: %s; start the vhost-user back end that listens there first",
				   path, strerror(errno));
	if (!S_ISSOCK(file.st_mode))
		return device_fail(error, -EINVAL,
				   "%s is not a socket; give the path of a vhost-user back end's socket", path);
	return 0;
}

static int check_server_socket(const char *path, struct device_error *error)
{
	struct stat file;

	if (lstat(path, &file) != 0)
		return 0;
	if (!S_ISSOCK(file.st_mode))
		return device_fail(error, -EBUSY, "%s exists and is not a socket; remove it or use another path", path);
	if (try_connect(path) != -ECONNREFUSED)
		return device_fail(error, -EBUSY,
				   "%s is in use; stop the program that listens there or use another path", path);
	unlink(path); /* left by a program that is gone */
	return 0;
}

static void end_waiting(int signal_number)
{
	for (int i = 0; i < SERVERS; i++)
		if (server_paths[i][0] != '\0')
			unlink(server_paths[i]);
	_exit(0);
}

/* Probe a vhost-server, which does not return before its back end has come. */
static int probe_server(const char *path, const char *arguments)
{
	struct sigaction ending = {.sa_handler = end_waiting}, old_int, old_term;
	sigset_t signals, old;
	int rc, slot = 0;

	while (slot < SERVERS && server_paths[slot][0] != '\0')
		slot++;
	if (slot == SERVERS)
		return -ENOSPC;
	strcpy(server_paths[slot], path);
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaction(SIGINT, &ending, &old_int);
	sigaction(SIGTERM, &ending, &old_term);
	pthread_sigmask(SIG_UNBLOCK, &signals, &old);
	rc = rte_dev_probe(arguments);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	sigaction(SIGINT, &old_int, NULL);
	sigaction(SIGTERM, &old_term, NULL);
	if (rc != 0)
		server_paths[slot][0] = '\0';
	return rc;
}

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

/* DPDK's words for a vhost-user front end.  Without an address the driver makes one up, and complains. */
static void describe_front_end(const struct device *device, const char *mode, unsigned queues, char *arguments,
			       size_t size)
{
	struct rte_ether_addr mac;

	rte_eth_random_addr(mac.addr_bytes);
	snprintf(arguments, size, "%s,path=%s,queue_size=%d,queues=%u%s,mac=" RTE_ETHER_ADDR_PRT_FMT, device->name,
		 device->target, DEVICE_DESCRIPTORS, queues, mode, RTE_ETHER_ADDR_BYTES(&mac));
}

static int probe_front_end(struct device *device, unsigned queues, struct device_error *error)
{
	char arguments[512];
	int rc = check_client_socket(device->target, error);

	if (rc != 0)
		return rc;
	describe_front_end(device, "", queues, arguments, sizeof(arguments));
	if (rte_dev_probe(arguments) == 0)
		return 0;
	rc = try_connect(device->target);
	if (rc == -ECONNREFUSED)
		return device_fail(error, rc, "nobody listens at %s; start the vhost-user back end first",
				   device->target);
	if (rc != 0)
		return device_fail(error, rc, "%s: %s", device->target, strerror(-rc));
	return device_fail(
		error, -EPROTO,
		"%s: the program that listens there did not answer as a vhost-user back end, or has fewer than %u "
		"queue pairs; see its log",
		device->target, queues);
}

static int probe_waiting_front_end(struct device *device, unsigned queues, struct device_error *error)
{
	char arguments[512];
	int rc = check_server_socket(device->target, error);

	if (rc != 0)
		return rc;
	describe_front_end(device, ",server=1", queues, arguments, sizeof(arguments));
	if (probe_server(device->target, arguments) == 0)
		return 0;
	return device_fail(error, -EIO,
			   "%s: could not listen there, or what connected was no vhost-user back end; check that its "
			   "directory exists and may be written",
			   device->target);
}

/*
 * Frames in each ring of an AF_PACKET device: `most`, which is 4 or 8 MiB and room for what comes while this thread is
 * held up, or as many as may be locked in memory, where the driver maps a receive and a transmit ring for each queue
 * pair.  0: not even a burst of a few.
 */
static unsigned interface_rings(unsigned queues, unsigned frame, unsigned most)
{
	const unsigned long long lockable = device_lockable_bytes();
	unsigned frames = most;

	while (frames >= 64 && 2ull * queues * frames * frame > lockable)
		frames /= 2;
	if (frames < 64)
		return 0;
	if (frames < most)
		log_warning(
			"an AF_PACKET device has rings of %u frames and not of %u: this program may lock only %llu KiB "
			"more in memory (ulimit -l)",
			frames, most, lockable >> 10);
	return frames;
}

static int probe_interface(struct device *device, unsigned queues, struct rte_mempool *pool, struct device_error *error)
{
	/* The driver copies a frame to one buffer, however long that is. */
	const bool jumbo = rte_pktmbuf_data_room_size(pool) >= DEVICE_JUMBO_ROOM;
	char arguments[256];
	unsigned rings;
	int rc = check_interface(device->target, error);

	if (rc == 0)
		rc = device_check_capabilities("if:", device, error);
	if (rc != 0)
		return rc;
	rings = interface_rings(queues, jumbo ? 16384 : 2048, jumbo ? 512 : 2048);
	if (rings == 0)
		return device_fail(
			error, -EPERM,
			"interface %s: its rings must stay in memory, and this program may lock only %llu KiB "
			"more; raise its limit (ulimit -l, or LimitMEMLOCK= of its service), or let it have the "
			"capability ipc_lock (--keep)",
			device->target, device_lockable_bytes() >> 10);
	snprintf(arguments, sizeof(arguments), "%s,iface=%s,qpairs=%u,framesz=%u,blocksz=%u,framecnt=%u", device->name,
		 device->target, queues, jumbo ? 16384 : 2048, jumbo ? 16384 : 4096, rings);
	if (rte_dev_probe(arguments) == 0)
		return 0;
	return device_fail(error, -EIO, "interface %s: DPDK could not open it; see the messages above", device->target);
}

static int probe_xdp(struct device *device, unsigned queues, struct device_error *error)
{
	char arguments[256];
	int rc = check_interface(device->target, error);

	if (rc == 0)
		rc = device_check_capabilities("xdp:", device, error);
	if (rc != 0)
		return rc;
	if (channels_of(device->target) < queues)
		return device_fail(error, -EINVAL,
				   "interface %s has %u queues for AF_XDP and %u are asked for; 'ethtool -L %s "
				   "combined N' gives it "
				   "more",
				   device->target, channels_of(device->target), queues, device->target);
	snprintf(arguments, sizeof(arguments), "%s,iface=%s,start_queue=0,queue_count=%u", device->name, device->target,
		 queues);
	if (rte_dev_probe(arguments) == 0)
		return 0;
	return device_fail(error, -EIO, "interface %s: DPDK could not open it for AF_XDP; see the messages above",
			   device->target);
}

static int probe_tap(struct device *device, struct device_error *error)
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

static int probe_memif(struct device *device, struct device_error *error)
{
	const size_t length = strcspn(device->target, ",");
	char arguments[512], folder[PATH_LONGEST + 1];

	snprintf(folder, sizeof(folder), "%.*s", (int)length, device->target);
	if (strstr(device->target + length, "role=server") != NULL && try_connect(folder) == -ECONNREFUSED)
		unlink(folder); /* left by a program that is gone */
	*strrchr(folder, '/') = '\0';
	if (access(folder[0] ? folder : "/", R_OK | W_OK) != 0)
		return device_fail(error, -errno, "memif:%.*s: %s", (int)length, device->target, strerror(errno));
	snprintf(arguments, sizeof(arguments), "%s,socket=%.*s,socket-abstract=no,bsize=2048%s", device->name,
		 (int)length, device->target, device->target + length);
	if (rte_dev_probe(arguments) == 0)
		return 0;
	return device_fail(error, -EIO, "memif:%s: could not be made; is another memif of this role and id there?",
			   device->target);
}

static int probe_pcap(struct device *device, struct device_error *error)
{
	const size_t in = strcspn(device->target, ",");
	const char *out = device->target[in] == ',' ? device->target + in + 1 : "";
	char arguments[640], path[256];
	int length;

	length = snprintf(arguments, sizeof(arguments), "%s", device->name);
	snprintf(path, sizeof(path), "%.*s", (int)in, device->target);
	if (in > 0) {
		if (access(path, R_OK) != 0)
			return device_fail(error, -errno, "capture %s: %s", path, strerror(errno));
		length += snprintf(arguments + length, sizeof(arguments) - length, ",rx_pcap=%s", path);
	}
	if (out[0] != '\0') {
		FILE *file = fopen(out, "a");

		if (file == NULL)
			return device_fail(error, -errno, "capture %s: %s", out, strerror(errno));
		fclose(file);
		snprintf(arguments + length, sizeof(arguments) - length, ",tx_pcap=%s", out);
	}
	if (rte_dev_probe(arguments) == 0)
		return 0;
	return device_fail(error, -EIO, "pcap:%s: not a capture file that libpcap reads", device->target);
}

static int probe_pci(struct device *device, struct device_error *error)
{
	int rc = device_check_capabilities("pci:", device, error);

	if (rc != 0)
		return rc;
	if (rte_dev_probe(device->target) == 0)
		return 0;
	return device_fail(error, -ENODEV,
			   "PCI device %s could not be opened; bind it to vfio-pci with 'dpdk-devbind.py -b vfio-pci "
			   "%s', and see 'dpdk-devbind.py --status'",
			   device->target, device->target);
}

static int probe_vdev(struct device *device, struct device_error *error)
{
	if (rte_eth_dev_get_port_by_name(device->name, &device->port) == 0) {
		device->port = RTE_MAX_ETHPORTS; /* somebody else's */
		return device_fail(error, -EBUSY, "device %s is in use; give it another number", device->name);
	}
	if (rte_dev_probe(device->target) == 0)
		return 0;
	return device_fail(error, -ENODEV, "DPDK could not make the device '%s'; check its arguments", device->target);
}

static int probe_kind(struct device *device, unsigned queues, struct rte_mempool *pool, struct device_error *error)
{
	static const char *const drivers[] = {
		[DEVICE_VHOST] = "net_virtio_user",
		[DEVICE_VHOST_SERVER] = "net_virtio_user",
		[DEVICE_INTERFACE] = "net_af_packet",
		[DEVICE_XDP] = "net_af_xdp",
		[DEVICE_TAP] = "net_tap",
		[DEVICE_MEMIF] = "net_memif",
		[DEVICE_PCAP] = "net_pcap",
	};

	if (device->kind == DEVICE_PCI)
		snprintf(device->name, sizeof(device->name), "%s", device->target);
	else if (device->kind == DEVICE_VDEV)
		snprintf(device->name, sizeof(device->name), "%.*s", (int)strcspn(device->target, ","), device->target);
	else
		snprintf(device->name, sizeof(device->name), "%s%u", drivers[device->kind], nb_made++);
	switch (device->kind) {
	case DEVICE_VHOST:
		return probe_front_end(device, queues, error);
	case DEVICE_VHOST_SERVER:
		return probe_waiting_front_end(device, queues, error);
	case DEVICE_INTERFACE:
		return probe_interface(device, queues, pool, error);
	case DEVICE_XDP:
		return probe_xdp(device, queues, error);
	case DEVICE_TAP:
		return probe_tap(device, error);
	case DEVICE_MEMIF:
		return probe_memif(device, error);
	case DEVICE_PCAP:
		return probe_pcap(device, error);
	case DEVICE_PCI:
		return probe_pci(device, error);
	case DEVICE_VDEV:
		return probe_vdev(device, error);
	}
	return -EINVAL;
}

int device_probe(struct device *device, const struct device_options *options, struct device_error *error)
{
	int rc = probe_kind(device, options->queues ? options->queues : 1, options->pool, error);

	if (rc != 0)
		return rc;
	if (rte_eth_dev_get_port_by_name(device->name, &device->port) != 0) {
		struct rte_dev_iterator iterator;

		/* A PCI driver may choose the name of its port itself. */
		device->port = RTE_MAX_ETHPORTS;
		RTE_ETH_FOREACH_MATCHING_DEV(device->port, device->name, &iterator)
		{
			rte_eth_iterator_cleanup(&iterator);
			break;
		}
	}
	if (!rte_eth_dev_is_valid_port(device->port))
		return device_fail(error, -ENODEV, "%s is not an Ethernet device; only such can be ports",
				   device->name);
	return 0;
}

void device_unprobe(const struct device *device)
{
	if (device->kind != DEVICE_VHOST_SERVER)
		return;
	for (int i = 0; i < SERVERS; i++)
		if (strcmp(server_paths[i], device->target) == 0)
			server_paths[i][0] = '\0';
}
