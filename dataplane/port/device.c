/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#include "port/device.h"
#include "port/device_bond.h"
#include "port/device_losses.h"
#include "port/device_monitor.h"
#include "vring/vring.h"

enum {
	QUEUE_BUFFERS = 4096, /* of each queue: its rings, and what is under way */
	JUMBO_BUFFERS = 1024,
	BUFFER_CACHE = 256,
	RETIRED = 64, /* pools that still have a buffer somewhere */
	LONGEST_FD = 4096,
};

/*
 * A frame handed from one device to another lies in the first one's buffers, so these may outlive their device: a
 * pool is freed once all of its buffers are back.
 */
static struct rte_mempool *retired[RETIRED];

static void free_retired(void)
{
	for (unsigned i = 0; i < RETIRED; i++)
		if (retired[i] != NULL && rte_mempool_full(retired[i])) {
			rte_mempool_free(retired[i]);
			retired[i] = NULL;
		}
}

static void retire(struct rte_mempool *pool)
{
	for (unsigned i = 0; i < RETIRED; i++)
		if (retired[i] == NULL) {
			retired[i] = pool;
			break;
		}
	free_retired();
}

/* ------- descriptors to sleep on ------- */

/* The XDP sockets of this process, as bits by descriptor. */
static void find_sockets(uint64_t *found)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;

	memset(found, 0, LONGEST_FD / 8);
	if (folder == NULL)
		return;
	while ((entry = readdir(folder)) != NULL) {
		int fd = atoi(entry->d_name), domain = 0;
		socklen_t size = sizeof(domain);

		if (entry->d_name[0] != '.' && fd < LONGEST_FD &&
		    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_XDP)
			found[fd / 64] |= 1ULL << fd % 64;
	}
	closedir(folder);
}

/*
 * DPDK's driver for AF_XDP has no receive interrupts, and each of its queues has a socket that could be waited for: the
 * ones that were not there before.
 */
static void note_sockets(struct device_port *port, const uint64_t *before)
{
	uint64_t now[LONGEST_FD / 64];
	unsigned count = 0;

	find_sockets(now);
	for (int fd = 0; fd < LONGEST_FD && count < port->queues; fd++)
		if ((now[fd / 64] & ~before[fd / 64]) >> fd % 64 & 1)
			port->waits_on[count++] = fd;
	/* One for each queue, or it is not what we take it for. */
	for (unsigned i = 0; count != port->queues && i < count; i++)
		port->waits_on[i] = -1;
}

int device_wait_fd(const struct device_port *port, unsigned which)
{
	return device_receives(port) ? port->waits_on[which] : -1;
}

bool device_interrupts(struct device_port *port, unsigned which)
{
	struct pollfd first = {.fd = port->waits_on[which], .events = POLLIN};

	if (port->device.kind != DEVICE_PCI || atomic_load_explicit(&port->interrupted[which], memory_order_relaxed))
		return true;
	/* Nobody reads it: it stays readable. */
	if (poll(&first, 1, 0) <= 0)
		return false;
	atomic_store_explicit(&port->interrupted[which], true, memory_order_relaxed);
	return true;
}

/* ------- opening ------- */

/* The packet buffers of a device. */
struct buffers {
	unsigned count;
	uint16_t room;
};

static bool has_long_frames(const char *uri)
{
	return strncmp(uri, "if:", 3) == 0 && device_mtu(uri + 3) > DEVICE_PLAIN_MTU;
}

static struct buffers buffers_of(const char *uri, unsigned queues)
{
	bool jumbo = has_long_frames(uri);
	struct device_error error;
	struct bond_names bond;

	if (bond_is_named(uri) && bond_parse(uri, &bond, &error) == 0)
		for (unsigned i = 0; i < bond.count; i++)
			jumbo |= has_long_frames(bond.members[i]);
	/* One less than a power of two is what a pool's ring holds. */
	return (struct buffers){
		.count = (jumbo ? JUMBO_BUFFERS : QUEUE_BUFFERS) * queues - 1,
		.room = jumbo ? DEVICE_JUMBO_ROOM : RTE_MBUF_DEFAULT_BUF_SIZE,
	};
}

static struct rte_mempool *make_pool(const struct device_port *port)
{
	static unsigned pools;
	const struct buffers buffers = buffers_of(port->uri, port->queues);
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "device_%u", pools++);
	return rte_pktmbuf_pool_create(name, buffers.count, BUFFER_CACHE, 0, buffers.room, (int)rte_socket_id());
}

size_t device_buffers_memory(unsigned count, unsigned room)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t each = rte_mempool_calc_obj_size((uint32_t)sizeof(struct rte_mbuf) + room, 0, NULL);

	/* No buffer crosses the border of a page where it need not, since pages may lie anywhere. */
	return each <= page ? (count + page / each - 1) / (page / each) * page : count * each;
}

size_t device_port_memory(const char *uri, unsigned queues)
{
	const struct buffers buffers = buffers_of(uri, queues);

	return device_buffers_memory(buffers.count, buffers.room) + (bond_is_named(uri) ? bond_memory(uri, queues) : 0);
}

/* With the lock held. */
static size_t memory_left(void)
{
	struct rte_malloc_socket_stats heap;

	free_retired();
	return rte_malloc_get_socket_stats((int)rte_socket_id(), &heap) == 0 ? heap.heap_freesz_bytes : SIZE_MAX;
}

size_t device_memory_left(void)
{
	size_t left;

	device_lock();
	left = memory_left();
	device_unlock();
	return left;
}

/*
 * A TAP's interrupts are those of its file, always on; others have to be armed.  DPDK's driver for memif has none, nor
 * a socket that would report it: such a queue is polled.
 */
static bool sleeps_on_interrupts(const char *uri)
{
	static const char *const those[] = {"tap:", "vhost:", "pci:", "vdev:net_virtio_user"};

	for (unsigned i = 0; i < RTE_DIM(those); i++)
		if (strncmp(uri, those[i], strlen(those[i])) == 0)
			return true;
	return false;
}

/* The descriptors of a queue's interrupts; one that cannot be armed is not waited for. */
static void note_interrupts(struct device_port *port)
{
	port->arms = port->device.kind != DEVICE_TAP;
	for (unsigned i = 0; i < port->queues; i++) {
		if (port->arms && rte_eth_dev_rx_intr_enable(port->port_id, i) != 0)
			continue;
		device_disarm(port, i);
		port->waits_on[i] = rte_eth_dev_rx_intr_ctl_q_get_fd(port->port_id, i);
	}
}

void device_arm(const struct device_port *port, unsigned which)
{
	if (port->arms && device_receives(port) && port->waits_on[which] >= 0)
		rte_eth_dev_rx_intr_enable(port->port_id, which);
}

void device_disarm(const struct device_port *port, unsigned which)
{
	if (port->arms && device_receives(port))
		rte_eth_dev_rx_intr_disable(port->port_id, which);
}

/* Another pool, for a driver that has kept buffers of the old one for good, as DPDK's of AF_XDP does when it is closed.
 */
static bool renew_pool(struct device_port *port)
{
	struct rte_mempool *pool = make_pool(port);

	if (pool == NULL)
		return false;
	retire(port->pool);
	port->pool = pool;
	return true;
}

int device_port_check(const char *uri, struct device_error *error)
{
	struct bond_names bond;

	return bond_is_named(uri) ? bond_parse(uri, &bond, error) : device_check(uri, error);
}

static int open_device(struct device_port *port, const struct device_options *options, struct device_error *error)
{
	if (!bond_is_named(port->uri))
		return device_open(&port->device, port->uri, options, error);
	return bond_open(&port->bond, &port->device, port->uri, options, error);
}

int device_port_start(struct device_port *port, bool quietly, struct device_error *error)
{
	struct device_options options = {
		.queues = port->queues,
		.interrupts = sleeps_on_interrupts(port->uri),
		.jumbo = true,
		.offloads = true,
		.quiet = quietly,
	};
	uint64_t sockets[LONGEST_FD / 64];
	int rc;

	if (quietly && strncmp(port->uri, "xdp:", 4) == 0 && !rte_mempool_full(port->pool) && !renew_pool(port)) {
		snprintf(error->text, sizeof(error->text), "no memory for its packet buffers; start the switch again");
		return -ENOMEM;
	}
	options.pool = port->pool;
	find_sockets(sockets);
	rc = open_device(port, &options, error);
	/* Not every driver that could have interrupts can have them on this machine. */
	if (rc != 0 && options.interrupts && strncmp(port->uri, "pci:", 4) == 0) {
		options.interrupts = false;
		rc = device_open(&port->device, port->uri, &options, error);
	}
	if (rc != 0)
		return rc;
	port->port_id = port->device.port;
	for (unsigned i = 0; i < DEVICE_QUEUES; i++) {
		port->waits_on[i] = -1;
		atomic_store(&port->interrupted[i], false);
	}
	for (unsigned i = 0; i < port->device.nb_packets; i++)
		port->waits_on[i] = port->device.packets[i].wait_fd;
	if (port->device.kind == DEVICE_XDP)
		note_sockets(port, sockets);
	port->arms = false;
	if (options.interrupts)
		note_interrupts(port);
	port->losses = (struct device_losses){0};
	port->losses = device_losses_read(port);
	atomic_store(&port->taken_away, false);
	return 0;
}

static atomic_bool had_peers;

bool device_had_peers(void)
{
	return atomic_load(&had_peers);
}

static void note_peer(enum device_kind kind)
{
	/* What DPDK's words name may have one too. */
	if (kind != DEVICE_VHOST && kind != DEVICE_MEMIF && kind != DEVICE_VDEV)
		return;
	atomic_store(&had_peers, true);
	if (vring_on_wake != NULL)
		vring_on_wake();
}

void device_port_stop(struct device_port *port)
{
	if (port->bond != NULL) {
		bond_close(port->bond);
		port->bond = NULL;
		port->device.port = RTE_MAX_ETHPORTS;
	} else {
		device_close(&port->device);
	}
	port->port_id = RTE_MAX_ETHPORTS;
}

int device_port_open(struct device_port *port, const struct device_port_options *options, char *why, unsigned why_size)
{
	struct device_error error;
	int rc;

	memset(port, 0, sizeof(*port));
	memset(port->waits_on, -1, sizeof(port->waits_on));
	port->queues = options->queues;
	port->counters = options->counters;
	if (strlen(options->uri) >= sizeof(port->uri)) {
		snprintf(why, why_size, "the name is longer than %zu bytes", sizeof(port->uri) - 1);
		return -EINVAL;
	}
	if (strncmp(options->uri, "vhost-server:", strlen("vhost-server:")) == 0) {
		snprintf(why, why_size, "it would wait for a back end; use vhost: with a back end that listens");
		return -EINVAL;
	}
	strcpy(port->uri, options->uri);
	device_guard_unmapping();
	device_lock();
	free_retired();
	port->pool = make_pool(port);
	if (port->pool == NULL) {
		snprintf(why, why_size, DEVICE_NO_MEMORY, (device_port_memory(port->uri, port->queues) >> 20) + 1,
			 memory_left() >> 20);
		rc = -ENOMEM;
		goto unlock;
	}
	rc = device_port_start(port, options->awaited, &error);
	note_peer(port->device.kind);
	if (rc != 0 && options->awaited) {
		port->port_id = port->device.port = RTE_MAX_ETHPORTS;
		port->problem = error;
		rc = 0;
	}
	if (rc == 0) {
		atomic_store(&port->state, device_port_link_up(port) ? DEVICE_UP
					   : port->device.started    ? DEVICE_DOWN
								     : DEVICE_REMOVED);
		atomic_store(&port->since, time(NULL));
		rc = device_monitor_add(port);
		if (rc != 0) {
			snprintf(error.text, sizeof(error.text), "a thread to watch over it: %s", strerror(-rc));
			device_port_stop(port);
		}
	}
	if (rc != 0) {
		snprintf(why, why_size, "%s", error.text);
		rte_mempool_free(port->pool);
	}
unlock:
	device_unlock();
	return rc;
}

void device_port_close(struct device_port *port)
{
	device_lock();
	device_monitor_remove(port);
	device_port_stop(port);
	retire(port->pool);
	device_unlock();
}
