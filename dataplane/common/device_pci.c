/* SPDX-License-Identifier: Apache-2.0
 *
 * PCI devices: NICs and virtual functions, which Linux has bound to a driver that gives them to programs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_pci.h>

#include "device_internal.h"
#include "log.h"

/* As Linux and DPDK write it, with its domain. */
void device_name_pci(struct device *device)
{
	struct rte_pci_addr address;

	rte_pci_addr_parse(device->target, &address);
	rte_pci_device_name(&address, device->name, sizeof(device->name));
}

bool device_pci_exists(const char *address)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
	return access(path, F_OK) == 0;
}

/* The driver that Linux has bound the device to, or "". */
static void driver_of(const char *address, char *driver, size_t size)
{
	char path[128], target[256];
	ssize_t length;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver", address);
	length = readlink(path, target, sizeof(target) - 1);
	target[length > 0 ? length : 0] = '\0';
	snprintf(driver, size, "%s", strrchr(target, '/') != NULL ? strrchr(target, '/') + 1 : "");
}

/* Whether a port of this program has it; DPDK may have found it at the start without that. */
static bool is_configured(const char *name)
{
	struct rte_eth_dev_info info;
	uint16_t port;

	return rte_eth_dev_get_port_by_name(name, &port) == 0 && rte_eth_dev_info_get(port, &info) == 0 &&
	       info.nb_rx_queues > 0;
}

/* ------- virtual functions ------- */

static bool is_virtual(const char *address)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/physfn", address);
	return access(path, F_OK) == 0;
}

/* The interface of Linux's that a virtual function's physical one is; false: it is another program's, or in another
 * network namespace. */
static bool find_physical(const char *address, char interface[static IF_NAMESIZE])
{
	struct dirent *entry;
	char path[384];
	DIR *folder;

	interface[0] = '\0';
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/physfn/net", address);
	folder = opendir(path);
	if (folder == NULL)
		return false;
	while ((entry = readdir(folder)) != NULL && entry->d_name[0] == '.')
		;
	snprintf(interface, IF_NAMESIZE, "%.*s", IF_NAMESIZE - 1, entry != NULL ? entry->d_name : "");
	closedir(folder);
	return interface[0] != '\0';
}

/* Whether a virtual function's physical one is an interface of Linux's that is down, and which. */
static bool physical_is_down(const char *address, char interface[static IF_NAMESIZE])
{
	unsigned flags = IFF_UP;
	char path[384];
	FILE *file;

	if (!find_physical(address, interface))
		return false;
	snprintf(path, sizeof(path), "/sys/class/net/%s/flags", interface);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	if (fscanf(file, "%x", &flags) != 1)
		flags = IFF_UP;
	fclose(file);
	return !(flags & IFF_UP);
}

/*
 * What DPDK's driver for virtual functions of 82576 and I350 (DPDK 22.11) does not tell: only the first of the queues
 * that it names is given frames; a wish for every frame, which no such function may have, it takes for granted; and
 * it opens one whose physical function does not answer, with an address of its own making.
 */
static bool claims_too_much(const struct rte_eth_dev_info *info)
{
	return strcmp(info->driver_name, "net_e1000_igb_vf") == 0;
}

unsigned device_queues_of(const struct rte_eth_dev_info *info)
{
	return claims_too_much(info) ? 1 : RTE_MIN(info->max_rx_queues, info->max_tx_queues);
}

void device_look_at_function(struct device *device, const struct rte_eth_dev_info *info, bool promiscuous)
{
	struct rte_ether_addr address = {0};

	if (device->kind != DEVICE_PCI)
		return;
	/* In a machine that was given one, Linux knows nothing of its physical function. */
	device->virtual_function = claims_too_much(info) || is_virtual(device->name);
	device->needs_physical = claims_too_much(info);
	if (!device->virtual_function || (promiscuous && !claims_too_much(info)))
		return;
	rte_eth_macaddr_get(device->port, &address);
	log_warning("PCI device %s receives only what is sent to its address " DEVICE_MAC_FORMAT " or to several: %s",
		    device->name, RTE_ETHER_ADDR_BYTES(&address),
		    claims_too_much(info) ? "no virtual function of this NIC may have other frames"
					  : "its physical function lets it have no other frames; see 'ip link set dev "
					    "NAME vf NUMBER trust on'");
}

bool device_physical_up(const struct device *device)
{
	char interface[IF_NAMESIZE];

	return !device->needs_physical || !physical_is_down(device->name, interface);
}

enum device_reset device_reset_of(const struct device *device)
{
	uint16_t command;
	char path[128];
	ssize_t length;
	int file;

	if (!device->virtual_function)
		return DEVICE_NOT_RESET;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", device->name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return DEVICE_NOT_RESET;
	length = pread(file, &command, sizeof(command), PCI_COMMAND);
	close(file);
	if (length != sizeof(command))
		return DEVICE_NOT_RESET;
	if (command == UINT16_MAX) /* nobody has answered */
		return DEVICE_IN_RESET;
	return command & PCI_COMMAND_MASTER ? DEVICE_NOT_RESET : DEVICE_WAS_RESET;
}

void device_why_down(const struct device *device, bool card_was_reset, char *why, size_t size)
{
	char interface[IF_NAMESIZE];

	if (!device->started)
		snprintf(why, size, "its peer is not there");
	else if (device->needs_physical && physical_is_down(device->name, interface))
		snprintf(why, size, "its physical function is down; bring it up with 'ip link set %s up'", interface);
	else if (card_was_reset && find_physical(device->name, interface))
		snprintf(why, size,
			 "its card was reset; if Linux's driver was not told of it, run 'ip link set %s down' and 'ip "
			 "link set %s up'",
			 interface, interface);
	else
		snprintf(why, size, card_was_reset ? "its card was reset, and it has no link" : "it has no link");
}

/* ------- opening ------- */

/*
 * Whether this process may open the device's IOMMU group as who it is; the memory that it may lock is then the kernel's
 * to judge.  In vfio's no-IOMMU mode the file has another name, and asks for a capability.
 */
static bool may_open_group(const char *address)
{
	char path[128], target[256], *name;
	ssize_t length;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", address);
	length = readlink(path, target, sizeof(target) - 1);
	target[length > 0 ? length : 0] = '\0';
	name = strrchr(target, '/');
	if (name == NULL)
		return false;
	snprintf(path, sizeof(path), "/dev/vfio/%.64s", name + 1);
	return access(path, R_OK | W_OK) == 0;
}

int device_probe_pci(struct device *device, struct device_error *error)
{
	char driver[64];
	int rc = 0;

	if (is_configured(device->name))
		return device_fail(error, -EBUSY, "PCI device %s is in use by another port", device->name);
	if (!device_pci_exists(device->name))
		rc = device_fail(error, -ENODEV, "there is no PCI device %s; 'lspci -D' lists those there are",
				 device->name);
	else if (!rte_eal_has_pci())
		rc = device_fail(error, -ENODEV,
				 "PCI device %s: this program does not look for PCI devices; start it with --pci",
				 device->name);
	if (rc == 0 && !may_open_group(device->name))
		rc = device_check_capabilities("pci:", device, error);
	if (rc != 0)
		return rc;
	if (rte_dev_probe(device->name) == 0)
		return 0;
	driver_of(device->name, driver, sizeof(driver));
	if (strcmp(driver, "vfio-pci") == 0)
		return device_fail(
			error, -ENODEV,
			"PCI device %s could not be opened by vfio-pci; is it a NIC that DPDK knows, and in no "
			"other program's hands, nor another device of its IOMMU group in Linux's?",
			device->name);
	return device_fail(
		error, -ENODEV,
		"PCI device %s could not be opened: it has %s%s; bind it to vfio-pci with 'dpdk-devbind.py -b "
		"vfio-pci %s', and see 'dpdk-devbind.py --status'",
		device->name, driver[0] != '\0' ? "the driver " : "no driver", driver, device->name);
}
