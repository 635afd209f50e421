/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/if_packet.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "interrupts/doorbell.h"
#include "interrupts/frame.h"
#include "interrupts/source.h"

static int mapped(int fd, off_t offset, struct source *source)
{
	void *page = mmap(NULL, INTERRUPT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);

	if (page == MAP_FAILED)
		return -errno;
	source->page = page;
	return 0;
}

int source_open_socket(const char *path, struct source *source)
{
	struct doorbell doorbell;
	int error = doorbell_take(path, &doorbell);

	if (error >= 0)
		error = mapped(doorbell.page, 0, source);
	/* To wait by read() alone is one system call less on the way. */
	if (error == 0 && fcntl(doorbell.call, F_SETFL, O_RDWR) < 0)
		error = -errno;
	if (error < 0) {
		log_error("%s: %s", path, strerror(-error));
		return error;
	}
	source->event = doorbell.call;
	return 0;
}

/* The device's IOMMU group, opened: where there is no IOMMU, VFIO has it under another name. */
static int open_group(const char *address, bool *has_iommu)
{
	char link[128], target[256], path[64];
	const char *number;
	ssize_t length;
	int group;

	snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s/iommu_group", address);
	length = readlink(link, target, sizeof(target) - 1);
	if (length < 0)
		return -errno;
	target[length] = '\0';
	number = strrchr(target, '/');
	if (number == NULL)
		return -EPROTO;
	snprintf(path, sizeof(path), "/dev/vfio/%.16s", number + 1);
	*has_iommu = access(path, F_OK) == 0;
	if (!*has_iommu)
		snprintf(path, sizeof(path), "/dev/vfio/noiommu-%.16s", number + 1);
	group = open(path, O_RDWR | O_CLOEXEC);
	return group < 0 ? -errno : group;
}

/* The device as a file.  The container stays open: the device lasts as long as it does. */
static int open_device(const char *address)
{
	bool has_iommu;
	int container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	int group = container < 0 ? -errno : open_group(address, &has_iommu);
	int device;

	if (group < 0)
		return group;
	if (ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) < 0 ||
	    ioctl(container, VFIO_SET_IOMMU, has_iommu ? VFIO_TYPE1v2_IOMMU : VFIO_NOIOMMU_IOMMU) < 0)
		return -errno;
	device = ioctl(group, VFIO_GROUP_GET_DEVICE_FD, address);
	return device < 0 ? -errno : device;
}

/* Message-signalled interrupts are writes of the device's to memory: it must be allowed to master the bus. */
static int enable(int device)
{
	struct vfio_region_info config = {.argsz = sizeof(config), .index = VFIO_PCI_CONFIG_REGION_INDEX};
	uint16_t command;

	if (ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &config) < 0 ||
	    pread(device, &command, sizeof(command), (off_t)(config.offset + PCI_COMMAND)) != sizeof(command))
		return -errno;
	command |= PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
	return pwrite(device, &command, sizeof(command), (off_t)(config.offset + PCI_COMMAND)) == sizeof(command)
		       ? 0
		       : -errno;
}

static int set_event(int device, int event)
{
	union {
		struct vfio_irq_set set;
		char bytes[sizeof(struct vfio_irq_set) + sizeof(int)];
	} vector = {.set = {
			    .argsz = sizeof(vector),
			    .flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
			    .index = VFIO_PCI_MSIX_IRQ_INDEX,
			    .count = 1,
		    }};

	memcpy(vector.set.data, &event, sizeof(event));
	return ioctl(device, VFIO_DEVICE_SET_IRQS, &vector) < 0 ? -errno : 0;
}

int source_open_device(const char *address, struct source *source)
{
	/* An ivshmem device has its memory there. */
	struct vfio_region_info memory = {.argsz = sizeof(memory), .index = VFIO_PCI_BAR2_REGION_INDEX};
	int device = open_device(address), error = device < 0 ? device : enable(device);

	if (error == 0 && ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &memory) < 0)
		error = -errno;
	if (error == 0)
		error = mapped(device, (off_t)memory.offset, source);
	if (error == 0) {
		source->event = eventfd(0, EFD_CLOEXEC);
		error = source->event < 0 ? -errno : set_event(device, source->event);
	}
	if (error < 0)
		log_error("%s: VFIO does not give its memory and its interrupt: %s", address, strerror(-error));
	return error;
}

/* The name that Linux has for a network device: of a virtio device it hangs one below. */
static int interface_of(const char *address, char name[IFNAMSIZ])
{
	static const char *const places[] = {"virtio*/net/*", "net/*"};
	char pattern[128];
	glob_t found;
	int error = -ENODEV;

	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]) && error != 0; i++) {
		snprintf(pattern, sizeof(pattern), "/sys/bus/pci/devices/%s/%s", address, places[i]);
		if (glob(pattern, 0, NULL, &found) != 0)
			continue;
		snprintf(name, IFNAMSIZ, "%s", strrchr(found.gl_pathv[0], '/') + 1);
		globfree(&found);
		error = 0;
	}
	return error;
}

/* It sends nothing of its own: nobody takes what it sends. */
static void be_silent(const char *name)
{
	char path[96];
	int file;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/disable_ipv6", name);
	file = open(path, O_WRONLY | O_CLOEXEC);
	if (file < 0)
		return;
	(void)!write(file, "1", 1);
	close(file);
}

static int set_up(int socket, const char *name)
{
	struct ifreq request = {0};

	memcpy(request.ifr_name, name, IFNAMSIZ);
	if (ioctl(socket, SIOCGIFFLAGS, &request) < 0)
		return -errno;
	request.ifr_flags |= IFF_UP;
	return ioctl(socket, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

int source_open_nic(const char *address, struct source *source)
{
	struct sockaddr_ll from = {.sll_family = AF_PACKET, .sll_protocol = htons(INTERRUPT_FRAME_TYPE)};
	char name[IFNAMSIZ] = "";
	int fd, error = interface_of(address, name);

	/* Of no protocol until it is bound, so that no other device's frames come. */
	fd = error < 0 ? error : socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (error == 0 && fd < 0)
		error = -errno;
	if (error == 0) {
		be_silent(name);
		error = set_up(fd, name);
	}
	if (error == 0) {
		from.sll_ifindex = (int)if_nametoindex(name);
		error = bind(fd, (const struct sockaddr *)&from, sizeof(from)) < 0 ? -errno : 0;
	}
	if (error < 0) {
		log_error("%s: no frames of this network device can be waited for: %s", address, strerror(-error));
		return error;
	}
	source->frames = fd;
	return 0;
}
