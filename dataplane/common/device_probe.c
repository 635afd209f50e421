/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_ethdev.h>

#include "device_internal.h"

static unsigned nb_made; /* so that each device made here has a name of its own */

int device_try_connect(const char *path)
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

int device_make(const char *arguments)
{
	const size_t length = strcspn(arguments, ",");
	char name[RTE_DEV_NAME_MAX_LEN];

	if (length >= sizeof(name))
		return -ENAMETOOLONG;
	snprintf(name, sizeof(name), "%.*s", (int)length, arguments);
	return rte_vdev_init(name, arguments[length] == ',' ? arguments + length + 1 : "");
}

static int probe_memif(struct device *device, struct device_error *error)
{
	const size_t length = strcspn(device->target, ",");
	char arguments[512], folder[DEVICE_PATH_LONGEST + 1];

	snprintf(folder, sizeof(folder), "%.*s", (int)length, device->target);
	if (strstr(device->target + length, "role=server") != NULL && device_try_connect(folder) == -ECONNREFUSED)
		unlink(folder); /* left by a program that is gone */
	*strrchr(folder, '/') = '\0';
	if (access(folder[0] ? folder : "/", R_OK | W_OK) != 0)
		return device_fail(error, -errno, "memif:%.*s: %s", (int)length, device->target, strerror(errno));
	snprintf(arguments, sizeof(arguments), "%s,socket=%.*s,socket-abstract=no,bsize=2048%s", device->name,
		 (int)length, device->target, device->target + length);
	if (device_make(arguments) == 0)
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
	if (device_make(arguments) == 0)
		return 0;
	return device_fail(error, -EIO, "pcap:%s: not a capture file that libpcap reads", device->target);
}

static int probe_vdev(struct device *device, struct device_error *error)
{
	if (rte_eth_dev_get_port_by_name(device->name, &device->port) == 0) {
		device->port = RTE_MAX_ETHPORTS; /* somebody else's */
		return device_fail(error, -EBUSY, "device %s is in use; give it another number", device->name);
	}
	if (device_make(device->target) == 0)
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
		device_name_pci(device);
	else if (device->kind == DEVICE_VDEV)
		snprintf(device->name, sizeof(device->name), "%.*s", (int)strcspn(device->target, ","), device->target);
	else
		snprintf(device->name, sizeof(device->name), "%s%u", drivers[device->kind], nb_made++);
	switch (device->kind) {
	case DEVICE_VHOST:
		return device_probe_vhost(device, queues, error);
	case DEVICE_VHOST_SERVER:
		return device_probe_vhost_server(device, queues, error);
	case DEVICE_INTERFACE:
		return device_probe_interface(device, queues, pool, error);
	case DEVICE_XDP:
		return device_probe_xdp(device, queues, error);
	case DEVICE_TAP:
		return device_probe_tap(device, error);
	case DEVICE_MEMIF:
		return probe_memif(device, error);
	case DEVICE_PCAP:
		return probe_pcap(device, error);
	case DEVICE_PCI:
		return device_probe_pci(device, error);
	case DEVICE_VDEV:
		return probe_vdev(device, error);
	}
	return -EINVAL;
}

int device_probe(struct device *device, const struct device_options *options, struct device_error *error)
{
	int rc;

	if (rte_eth_dev_count_total() == RTE_MAX_ETHPORTS)
		return device_fail(error, -ENOSPC, "this version of DPDK has room for %u devices, and all are taken",
				   RTE_MAX_ETHPORTS);
	rc = probe_kind(device, options->queues ? options->queues : 1, options->pool, error);
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
