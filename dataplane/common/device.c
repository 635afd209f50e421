/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
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
#include <rte_log.h>
#include <rte_pci.h>

#include "device.h"

enum {
	PATH_LONGEST = sizeof(((struct sockaddr_un *)0)->sun_path) - 1,
	MTU_JUMBO = 9000,
	SERVERS = 16, /* vhost-server ports of one program */
};

#define VIRTIO_LOGS "pmd.net.virtio.*"

static const struct {
	const char *scheme;
	enum device_kind kind;
} schemes[] = {
	{"vhost:", DEVICE_VHOST},  {"vhost-server:", DEVICE_VHOST_SERVER},
	{"if:", DEVICE_INTERFACE}, {"pci:", DEVICE_PCI},
	{"vdev:", DEVICE_VDEV},
};

static unsigned nb_made; /* so that each device made here has a name of its own */

/* Socket files of vhost-server ports, for a signal that comes while we wait for a back end. */
static char server_paths[SERVERS][PATH_LONGEST + 1];

__attribute__((format(printf, 3, 4))) static int fail(struct device_error *error, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return code;
}

static int parse(const char *uri, enum device_kind *kind, const char **target, struct device_error *error)
{
	struct rte_pci_addr address;

	*target = NULL;
	for (size_t i = 0; i < RTE_DIM(schemes); i++) {
		size_t length = strlen(schemes[i].scheme);

		if (strncmp(uri, schemes[i].scheme, length) == 0) {
			*kind = schemes[i].kind;
			*target = uri + length;
		}
	}
	if (*target == NULL || **target == '\0')
		return fail(error, -EINVAL,
			    "'%s' names no port; use vhost:PATH, vhost-server:PATH, if:NAME, pci:ADDRESS or "
			    "vdev:ARGUMENTS",
			    uri);
	switch (*kind) {
	case DEVICE_VHOST:
	case DEVICE_VHOST_SERVER:
		if (strlen(*target) > PATH_LONGEST)
			return fail(error, -EINVAL,
				    "%.40s...: a socket's path has at most %d bytes, this one %zu; use a shorter one",
				    uri, PATH_LONGEST, strlen(*target));
		if (strchr(*target, ',') != NULL)
			return fail(error, -EINVAL, "%s: the path must not contain a comma; use another one", uri);
		return 0;
	case DEVICE_INTERFACE:
		if (strlen(*target) >= IFNAMSIZ)
			return fail(error, -EINVAL, "%s: an interface's name has at most %d bytes", uri, IFNAMSIZ - 1);
		return 0;
	case DEVICE_PCI:
		if (rte_pci_addr_parse(*target, &address) != 0)
			return fail(error, -EINVAL, "%s: not a PCI address; write one like pci:0000:01:00.0", uri);
		return 0;
	case DEVICE_VDEV:
		if (strcspn(*target, ",") >= RTE_ETH_NAME_MAX_LEN)
			return fail(error, -EINVAL, "%s: a device's name has at most %d bytes", uri,
				    RTE_ETH_NAME_MAX_LEN - 1);
		return 0;
	}
	return -EINVAL;
}

int device_check(const char *uri, struct device_error *error)
{
	enum device_kind kind;
	const char *target;

	return parse(uri, &kind, &target, error);
}

bool device_is_pci(const char *uri)
{
	return strncmp(uri, "pci:", 4) == 0;
}

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
		return fail(error, -errno, "%s: %s; start the vhost-user back end that listens there first", path,
			    strerror(errno));
	if (!S_ISSOCK(file.st_mode))
		return fail(error, -EINVAL, "%s is not a socket; give the path of a vhost-user back end's socket",
			    path);
	return 0;
}

static int check_server_socket(const char *path, struct device_error *error)
{
	struct stat file;

	if (lstat(path, &file) != 0)
		return 0;
	if (!S_ISSOCK(file.st_mode))
		return fail(error, -EBUSY, "%s exists and is not a socket; remove it or use another path", path);
	if (try_connect(path) != -ECONNREFUSED)
		return fail(error, -EBUSY, "%s is in use; stop the program that listens there or use another path",
			    path);
	unlink(path); /* left by a program that is gone */
	return 0;
}

static int check_interface(const char *name, struct device_error *error)
{
	struct ifreq request = {0};
	int fd, rc = 0;

	if (if_nametoindex(name) == 0)
		return fail(error, -ENODEV, "no network interface '%s'; see 'ip link' for those there are", name);
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail(error, -errno, "interface %s: %s; run as root or give the program CAP_NET_RAW", name,
			    strerror(errno));
	strcpy(request.ifr_name, name);
	if (ioctl(fd, SIOCGIFFLAGS, &request) == 0 && !(request.ifr_flags & IFF_UP))
		rc = fail(error, -ENETDOWN, "interface %s is down; bring it up with 'ip link set %s up'", name, name);
	close(fd);
	return rc;
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

/* DPDK's words for a vhost-user front end.  Without an address the driver makes one up, and complains. */
static void describe_front_end(const struct device *device, const char *mode, char *arguments, size_t size)
{
	struct rte_ether_addr mac;

	rte_eth_random_addr(mac.addr_bytes);
	snprintf(arguments, size, "%s,path=%s,queue_size=%d%s,mac=" RTE_ETHER_ADDR_PRT_FMT, device->name,
		 device->target, DEVICE_DESCRIPTORS, mode, RTE_ETHER_ADDR_BYTES(&mac));
}

/* Make the device known to DPDK: fills in its name and ethdev id. */
static int probe(struct device *device, struct device_error *error)
{
	char arguments[512];
	int rc;

	switch (device->kind) {
	case DEVICE_VHOST:
		rc = check_client_socket(device->target, error);
		if (rc != 0)
			return rc;
		snprintf(device->name, sizeof(device->name), "net_virtio_user%u", nb_made++);
		describe_front_end(device, "", arguments, sizeof(arguments));
		if (rte_dev_probe(arguments) == 0)
			break;
		rc = try_connect(device->target);
		if (rc == -ECONNREFUSED)
			return fail(error, rc, "nobody listens at %s; start the vhost-user back end first",
				    device->target);
		if (rc != 0)
			return fail(error, rc, "%s: %s", device->target, strerror(-rc));
		return fail(error, -EPROTO,
			    "%s: the program that listens there did not answer as a vhost-user back end; see its log",
			    device->target);
	case DEVICE_VHOST_SERVER:
		rc = check_server_socket(device->target, error);
		if (rc != 0)
			return rc;
		snprintf(device->name, sizeof(device->name), "net_virtio_user%u", nb_made++);
		describe_front_end(device, ",server=1", arguments, sizeof(arguments));
		if (probe_server(device->target, arguments) != 0)
			return fail(error, -EIO,
				    "%s: could not listen there, or what connected was no vhost-user back end; check "
				    "that its directory exists and may be written",
				    device->target);
		break;
	case DEVICE_INTERFACE:
		rc = check_interface(device->target, error);
		if (rc != 0)
			return rc;
		snprintf(device->name, sizeof(device->name), "net_af_packet%u", nb_made++);
		/* Two 4 MiB rings of 2048 frames: room for what comes while this thread is held up. */
		snprintf(arguments, sizeof(arguments), "%s,iface=%s,framesz=2048,blocksz=4096,framecnt=2048",
			 device->name, device->target);
		if (rte_dev_probe(arguments) != 0)
			return fail(error, -EIO, "interface %s: DPDK could not open it; see the messages above",
				    device->target);
		break;
	case DEVICE_PCI:
		snprintf(device->name, sizeof(device->name), "%s", device->target);
		if (rte_dev_probe(device->target) != 0)
			return fail(error, -ENODEV,
				    "PCI device %s could not be opened; bind it to vfio-pci with 'dpdk-devbind.py -b "
				    "vfio-pci %s', and see 'dpdk-devbind.py --status'",
				    device->target, device->target);
		break;
	case DEVICE_VDEV:
		snprintf(device->name, sizeof(device->name), "%.*s", (int)strcspn(device->target, ","), device->target);
		if (rte_eth_dev_get_port_by_name(device->name, &device->port) == 0)
			return fail(error, -EBUSY, "device %s is in use; give it another number", device->name);
		if (rte_dev_probe(device->target) != 0)
			return fail(error, -ENODEV, "DPDK could not make the device '%s'; check its arguments",
				    device->target);
		break;
	}
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
		return fail(error, -ENODEV, "%s is not an Ethernet device; only such can be ports", device->name);
	return 0;
}

static int configure(struct device *device, const struct device_options *options, struct device_error *error)
{
	struct rte_eth_conf config = {.intr_conf.rxq = options->interrupts};
	uint16_t wanted = options->descriptors ? options->descriptors : DEVICE_DESCRIPTORS;
	uint16_t received = wanted, sent = wanted, mtu = RTE_ETHER_MTU;
	const char *step = "describe itself";
	struct rte_eth_dev_info info;
	int socket, rc;

	rc = rte_eth_dev_info_get(device->port, &info);
	if (rc != 0)
		goto fail;
	if (options->jumbo && (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER)) {
		mtu = RTE_MIN(info.max_mtu, MTU_JUMBO);
		config.rxmode.offloads = RTE_ETH_RX_OFFLOAD_SCATTER;
	}
	config.rxmode.mtu = mtu;
	config.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	step = "take its configuration";
	rc = rte_eth_dev_configure(device->port, 1, 1, &config);
	if (rc != 0)
		goto fail;
	step = "set up its rings";
	rc = rte_eth_dev_adjust_nb_rx_tx_desc(device->port, &received, &sent);
	if (rc != 0)
		goto fail;
	socket = rte_eth_dev_socket_id(device->port);
	rc = rte_eth_rx_queue_setup(device->port, 0, received, socket, NULL, options->pool);
	if (rc == 0)
		rc = rte_eth_tx_queue_setup(device->port, 0, sent, socket, NULL);
	if (rc != 0)
		goto fail;
	step = "start";
	rc = rte_eth_dev_start(device->port);
	if (rc != 0)
		goto fail;
	rte_eth_promiscuous_enable(device->port); /* not every device has the mode, or needs it */
	device->descriptors = sent;
	device->longest = mtu + RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
	return 0;
fail:
	return fail(error, rc, "%s did not %s: %s", device->target, step, rte_strerror(-rc));
}

int device_open(struct device *device, const char *uri, const struct device_options *options,
		struct device_error *error)
{
	int rc;

	*device = (struct device){.port = RTE_MAX_ETHPORTS};
	/* What the driver finds wrong while it opens is worth a line; that a back end has gone it would say often. */
	rte_log_set_level_pattern(VIRTIO_LOGS, RTE_LOG_ERR);
	rc = parse(uri, &device->kind, &device->target, error);
	if (rc == 0)
		rc = probe(device, error);
	if (rc == 0)
		rc = configure(device, options, error);
	rte_log_set_level_pattern(VIRTIO_LOGS, RTE_LOG_CRIT);
	if (rc != 0)
		device_close(device);
	return rc;
}

bool device_link_up(const struct device *device)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(device->port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

void device_close(struct device *device)
{
	struct rte_eth_dev_info info;

	if (!rte_eth_dev_is_valid_port(device->port))
		return;
	rte_eth_dev_stop(device->port);
	/* Removing the whole device closes its port, and frees its name for another one. */
	if (rte_eth_dev_info_get(device->port, &info) != 0 || rte_dev_remove(info.device) != 0)
		rte_eth_dev_close(device->port);
	if (device->kind == DEVICE_VHOST_SERVER)
		for (int i = 0; i < SERVERS; i++)
			if (strcmp(server_paths[i], device->target) == 0)
				server_paths[i][0] = '\0';
	device->port = RTE_MAX_ETHPORTS;
}
