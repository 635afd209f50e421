/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/socket.h>

#include <rte_ethdev.h>

#include "port/device_bond.h"
#include "port/device_losses.h"

uint64_t device_kernel_statistic(unsigned interface, const char *name)
{
	char path[128], interface_name[IF_NAMESIZE];
	uint64_t value = 0;
	FILE *file;

	if (if_indextoname(interface, interface_name) == NULL)
		return 0;
	snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/%s", interface_name, name);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%" SCNu64, &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

/* Frames that found the ring of an AF_XDP socket full, which DPDK's driver does not count. */
static uint64_t ring_was_full(int fd)
{
	struct xdp_statistics statistics = {0}; /* an older kernel fills in less */
	socklen_t size = sizeof(statistics);

	return getsockopt(fd, SOL_XDP, XDP_STATISTICS, &statistics, &size) == 0 ? statistics.rx_ring_full : 0;
}

/* What the kernel lost before the driver had it.  Its `rx_dropped` is also what nobody wanted, and is left out. */
static void add_kernel(const struct device *device, const int *waits_on, struct device_losses *losses)
{
	switch (device->kind) {
	case DEVICE_INTERFACE:
		for (unsigned i = 0; i < device->nb_packets; i++)
			losses->missed += packet_lost(&device->packets[i]);
		break;
	case DEVICE_XDP:
		for (unsigned i = 0; i < device->queues; i++)
			losses->missed += ring_was_full(waits_on[i]);
		break;
	case DEVICE_TAP: /* the other way round: what Linux sends is what we receive */
		losses->missed += device_kernel_statistic(device->interface, "tx_dropped");
		return;
	default:
		return;
	}
	losses->missed += device_kernel_statistic(device->interface, "rx_missed_errors");
	losses->errors += device_kernel_statistic(device->interface, "rx_errors");
}

/* Some drivers count as not sent what we still have. */
static bool reports_refused(const struct device *device)
{
	return device->kind == DEVICE_INTERFACE || device->kind == DEVICE_PCAP || device->kind == DEVICE_PCI;
}

/* Returns false, nothing added: they cannot be read. */
static bool add_losses(const struct device *device, const int *waits_on, struct device_losses *losses)
{
	struct rte_eth_stats stats;

	if (rte_eth_stats_get(device->port, &stats) != 0)
		return false;
	losses->missed += stats.imissed;
	losses->errors += stats.ierrors;
	losses->no_buffer += stats.rx_nombuf;
	losses->refused += reports_refused(device) ? stats.oerrors : 0;
	add_kernel(device, waits_on, losses);
	return true;
}

struct device_losses device_losses_read(const struct device_port *port)
{
	struct device_losses losses = {0};

	if (port->bond == NULL)
		return add_losses(&port->device, port->waits_on, &losses) ? losses : port->losses;
	for (unsigned i = 0; i < BOND_MEMBERS; i++, losses = (struct device_losses){0})
		if (bond_member(port->bond, i) != NULL &&
		    add_losses(bond_member(port->bond, i), port->waits_on, &losses))
			bond_note_losses(port->bond, i, &losses);
	return bond_losses(port->bond);
}

static void count(uint64_t *counter, uint64_t *before, uint64_t now)
{
	if (now > *before)
		__atomic_fetch_add(counter, now - *before, __ATOMIC_RELAXED);
	*before = now;
}

void device_losses_count(struct queue_counters *counters, struct device_losses *before, const struct device_losses *now)
{
	count(&counters->drop_device_missed, &before->missed, now->missed);
	count(&counters->drop_device_errors, &before->errors, now->errors);
	count(&counters->drop_device_no_buffer, &before->no_buffer, now->no_buffer);
	count(&counters->drop_device_refused, &before->refused, now->refused);
}
