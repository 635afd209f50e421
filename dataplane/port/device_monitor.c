/* SPDX-License-Identifier: Apache-2.0 */
#define ALLOW_EXPERIMENTAL_API /* rte_dev_event_callback_register() */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

#include "common/grace.h"
#include "common/log.h"
#include "port/device_bond.h"
#include "port/device_losses.h"
#include "port/device_monitor.h"

enum {
	TICK_MS = 50,
	TICKS_TO_RETRY = 10,
	MESSAGES = 256, /* of Linux's, read at once */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_port *devices; /* that are open */
static pthread_t thread;
static int wake = -1;				 /* an eventfd: a driver has something to report */
static int links = -1;				 /* a socket: Linux has */
static atomic_bool asked_back[RTE_MAX_ETHPORTS]; /* by on_request() */
static atomic_bool ending;
static void (*notify_change)(void);

void device_lock(void)
{
	pthread_mutex_lock(&lock);
}

void device_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void device_on_change(void (*changed)(void))
{
	notify_change = changed;
}

static time_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec;
}

/* ------- what a driver reports, in DPDK's interrupt thread ------- */

static int on_link(uint16_t port_id, enum rte_eth_event_type type, void *argument, void *answer)
{
	eventfd_write(wake, 1);
	return 0;
}

static int on_removal(uint16_t port_id, enum rte_eth_event_type type, void *argument, void *answer)
{
	struct device_port *port = argument;

	atomic_store(&port->taken_away, true);
	eventfd_write(wake, 1);
	return 0;
}

static int on_reset(uint16_t port_id, enum rte_eth_event_type type, void *argument, void *answer)
{
	struct device_port *port = argument;

	atomic_store(&port->was_reset, true);
	eventfd_write(wake, 1);
	return 0;
}

/*
 * Linux asks for a device of vfio-pci back before it unplugs or unbinds it, and waits for as long as we have it.  Its
 * driver in DPDK hears nothing of that.  One callback for all devices, for good: DPDK 22.11 takes the others' back too
 * when one device's is.
 */
static void on_request(const char *name, enum rte_dev_event_type type, void *argument)
{
	uint16_t port_id;

	if (type == RTE_DEV_EVENT_REMOVE && rte_eth_dev_get_port_by_name(name, &port_id) == 0)
		atomic_store(&asked_back[port_id], true);
}

static void hear(struct device_port *port)
{
	atomic_store(&asked_back[port->port_id], false);
	atomic_store(&port->was_reset, false);
	rte_eth_dev_callback_register(port->port_id, RTE_ETH_EVENT_INTR_LSC, on_link, port);
	rte_eth_dev_callback_register(port->port_id, RTE_ETH_EVENT_INTR_RMV, on_removal, port);
	rte_eth_dev_callback_register(port->port_id, RTE_ETH_EVENT_INTR_RESET, on_reset, port);
}

static void hear_no_more(struct device_port *port)
{
	if (!rte_eth_dev_is_valid_port(port->port_id))
		return;
	rte_eth_dev_callback_unregister(port->port_id, RTE_ETH_EVENT_INTR_LSC, on_link, port);
	rte_eth_dev_callback_unregister(port->port_id, RTE_ETH_EVENT_INTR_RMV, on_removal, port);
	rte_eth_dev_callback_unregister(port->port_id, RTE_ETH_EVENT_INTR_RESET, on_reset, port);
}

/* ------- one device ------- */

static void enter_state(struct device_port *port, enum device_state state)
{
	static const char *const texts[] = {
		[DEVICE_UP] = "is up", [DEVICE_DOWN] = "has lost its link", [DEVICE_REMOVED] = "is gone"};

	atomic_store(&port->since, time(NULL));
	atomic_store(&port->state, state);
	if (state == DEVICE_UP)
		port->card_was_reset = false;
	log_within(&port->log, LOG_LEVEL_INFO, "device %s %s", port->uri, texts[state]);
	if (notify_change != NULL)
		notify_change();
}

static void change_state(struct device_port *port, enum device_state state)
{
	if (atomic_load(&port->state) != (int)state)
		enter_state(port, state);
}

/* Frames that the device has lost since they were last counted. */
static void count_losses(struct device_port *port)
{
	const struct device_losses now = device_losses_read(port);

	device_losses_count(port->counters, &port->losses, &now);
	port->counted_at = seconds();
}

/* Take the device away from the workers. */
static void withdraw(struct device_port *port)
{
	count_losses(port);
	atomic_store(&port->state, DEVICE_REMOVED);
	grace_wait();
}

static void close_removed(struct device_port *port)
{
	count_losses(port);
	change_state(port, DEVICE_REMOVED);
	grace_wait();
	hear_no_more(port);
	device_port_stop(port);
	port->ticks = 0;
}

bool device_port_link_up(const struct device_port *port)
{
	return port->bond != NULL ? bond_link_up(port->bond) : device_link_up(&port->device);
}

/* Something that was there before and whose peer has gone comes back only if we go for it. */
static bool peer_must_be_sought(const struct device_port *port)
{
	return port->device.kind == DEVICE_VHOST ||
	       (port->device.kind == DEVICE_MEMIF && strstr(port->uri, "role=server") == NULL);
}

/* Is there any hope that the device can be opened?  Cheap, and without a word. */
static bool may_be_back(const struct device_port *port)
{
	const char *target = strchr(port->uri, ':') + 1;
	struct stat file;

	if (strncmp(port->uri, "if:", 3) == 0 || strncmp(port->uri, "xdp:", 4) == 0)
		return if_nametoindex(target) != 0;
	if (strncmp(port->uri, "vhost:", 6) == 0)
		return stat(target, &file) == 0;
	if (bond_is_named(port->uri))
		return true;
	return port->device.kind != DEVICE_PCI || device_exists(&port->device);
}

static void try_again(struct device_port *port)
{
	if (++port->ticks < TICKS_TO_RETRY || !may_be_back(port))
		return;
	port->ticks = 0;
	if (device_port_start(port, true, &port->problem) != 0)
		return;
	port->problem.text[0] = '\0';
	hear(port);
	change_state(port, device_port_link_up(port) ? DEVICE_UP : DEVICE_DOWN);
}

/* A client of memif connects when it is started. */
static void seek_peer(struct device_port *port)
{
	if (++port->ticks < TICKS_TO_RETRY)
		return;
	port->ticks = 0;
	if (port->device.kind == DEVICE_MEMIF) {
		withdraw(port);
		if (device_restart(&port->device))
			atomic_store(&port->state, DEVICE_DOWN);
	} else if (may_be_back(port)) {
		close_removed(port);
		port->ticks = TICKS_TO_RETRY;
	}
}

/*
 * A virtual function that its physical one has reset shows its link and moves no frame, until it is opened anew: the
 * other has forgotten its address and what it may receive.  Not every driver hears of that, but a physical function
 * that goes takes the link along, so one that has its link back is opened anew too.
 */
static bool open_anew(struct device_port *port, bool up)
{
	if (!atomic_exchange(&port->was_reset, false) &&
	    !(up && port->device.virtual_function && atomic_load(&port->state) == DEVICE_DOWN))
		return false;
	log_within(&port->log, LOG_LEVEL_INFO, "device %s is opened anew: its physical function may have reset it",
		   port->uri);
	withdraw(port);
	hear_no_more(port);
	device_port_stop(port);
	port->ticks = TICKS_TO_RETRY;
	try_again(port);
	if (atomic_load(&port->state) == DEVICE_REMOVED)
		enter_state(port, DEVICE_REMOVED);
	return true;
}

/* A bond outlives its members. */
static void look_at_bond(struct device_port *port)
{
	const bool alone = bond_waits(port->bond);
	char members[BOND_MEMBERS * BOND_MEMBER_LONGEST];
	bool changed;

	if (alone) {
		atomic_store(&port->state, DEVICE_REMOVED);
		grace_wait();
	}
	changed = bond_watch(port->bond, &port->device, alone);
	if (alone)
		atomic_store(&port->state, DEVICE_DOWN);
	if (changed) {
		bond_show(port->bond, members, sizeof(members));
		log_within(&port->log, LOG_LEVEL_INFO, "device %s: frames leave by %s", port->uri, members);
	}
	change_state(port, bond_link_up(port->bond) ? DEVICE_UP : DEVICE_DOWN);
	if (changed && notify_change != NULL)
		notify_change();
}

/* Its card was reset, and its driver did not hear of it: not looked at each time, but before it is said to be down. */
static void look_at_card(struct device_port *port, bool up, bool seldom)
{
	enum device_reset reset;

	if (!seldom && (up || atomic_load(&port->state) != DEVICE_UP))
		return;
	reset = device_reset_of(&port->device);
	if (reset != DEVICE_NOT_RESET)
		port->card_was_reset = true;
	if (reset == DEVICE_WAS_RESET)
		atomic_store(&port->was_reset, true);
}

static void look(struct device_port *port)
{
	bool up, seldom;

	if (!rte_eth_dev_is_valid_port(port->port_id)) {
		try_again(port);
		return;
	}
	/* Some of it the kernel reports in files: not with every look. */
	seldom = seconds() != port->counted_at;
	if (seldom)
		count_losses(port);
	if (port->bond != NULL) {
		look_at_bond(port);
		return;
	}
	if (atomic_load(&port->taken_away) || atomic_load(&asked_back[port->port_id]) ||
	    !device_exists(&port->device)) {
		close_removed(port);
		return;
	}
	if (packet_check(port->device.packets, port->device.nb_packets))
		log_warning(
			"device %s: somebody sends long datagrams by it that Linux cannot hand over, and loses; from "
			"now on each frame is received by a system call, which is slower",
			port->uri);
	device_follow_mtu(&port->device);
	up = device_link_up(&port->device);
	look_at_card(port, up, seldom);
	if (open_anew(port, up))
		return;
	if (up) {
		change_state(port, DEVICE_UP);
		return;
	}
	if (port->device.started)
		change_state(port, DEVICE_DOWN);
	if (peer_must_be_sought(port))
		seek_peer(port);
}

/* ------- all of them ------- */

/* A socket that is told of every change of an interface of Linux's, or -1: changes are seen by looking. */
static int hear_linux(void)
{
	const struct sockaddr_nl all = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd >= 0 && bind(fd, (const struct sockaddr *)&all, sizeof(all)) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* That something has changed is all that is taken of it. */
static void forget_messages(int fd)
{
	char message[256];

	for (unsigned i = 0; i < MESSAGES; i++)
		if (recv(fd, message, sizeof(message), MSG_DONTWAIT) < 0 && errno != ENOBUFS)
			break;
}

static void *monitor(void *argument)
{
	struct pollfd events[] = {{.fd = wake, .events = POLLIN}, {.fd = links, .events = POLLIN}};
	eventfd_t count;

	while (!atomic_load(&ending)) {
		if (poll(events, RTE_DIM(events), TICK_MS) > 0) {
			eventfd_read(wake, &count);
			if (events[1].revents != 0)
				forget_messages(events[1].fd);
		}
		device_lock();
		for (struct device_port *port = devices; port != NULL; port = port->next)
			look(port);
		device_unlock();
	}
	return NULL;
}

static void close_sources(void)
{
	close(wake);
	if (links >= 0)
		close(links);
}

static int start_monitor(void)
{
	static bool hears_requests;
	int rc;

	if (!hears_requests)
		hears_requests = rte_dev_event_callback_register(NULL, on_request, NULL) == 0;
	wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake < 0)
		return -errno;
	links = hear_linux();
	atomic_store(&ending, false);
	rc = -pthread_create(&thread, NULL, monitor, NULL);
	if (rc != 0)
		close_sources();
	return rc;
}

static void read_kernel(const struct device_port *port, uint64_t *sent, uint64_t *dropped)
{
	*sent = device_kernel_statistic(port->device.interface, "tx_packets");
	*dropped = device_kernel_statistic(port->device.interface, "tx_dropped");
}

int device_monitor_add(struct device_port *port)
{
	int rc = devices == NULL ? start_monitor() : 0;

	if (rc != 0)
		return rc;
	if (port->device.interface != 0)
		read_kernel(port, &port->kernel_sent, &port->kernel_dropped);
	if (rte_eth_dev_is_valid_port(port->port_id))
		hear(port);
	port->next = devices;
	devices = port;
	return 0;
}

void device_monitor_remove(struct device_port *port)
{
	struct device_port **place = &devices;

	while (*place != port)
		place = &(*place)->next;
	*place = port->next;
	hear_no_more(port);
	if (rte_eth_dev_is_valid_port(port->port_id))
		count_losses(port);
	if (devices != NULL)
		return;
	/* It may be waiting for the lock. */
	atomic_store(&ending, true);
	eventfd_write(wake, 1);
	device_unlock();
	pthread_join(thread, NULL);
	device_lock();
	close_sources();
}

static json_t *offloads_of(const struct device *device)
{
	static const struct {
		uint64_t transmits;
		const char *name;
	} known[] = {
		{RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM, "checksum"},
		{RTE_ETH_TX_OFFLOAD_TCP_TSO, "segmentation"},
		{RTE_ETH_TX_OFFLOAD_MULTI_SEGS, "scatter"},
	};
	json_t *list = json_array();

	for (unsigned i = 0; i < RTE_DIM(known); i++)
		if ((device->transmits & known[i].transmits) == known[i].transmits)
			json_array_append_new(list, json_string(known[i].name));
	return list;
}

void device_port_describe(const struct device_port *port, json_t *into)
{
	static const char *const states[] = {[DEVICE_UP] = "up", [DEVICE_DOWN] = "down", [DEVICE_REMOVED] = "removed"};
	uint64_t sent, dropped;
	enum device_state state;
	struct rte_ether_addr mac;
	char why[512];
	const char *reason = NULL;

	device_lock();
	state = atomic_load(&port->state);
	if (rte_eth_dev_is_valid_port(port->port_id) && !port->device.started)
		state = DEVICE_DOWN;
	if (port->bond != NULL) {
		json_object_set_new(into, "bond", bond_describe(port->bond));
		if (bond_why(port->bond, why, sizeof(why)))
			reason = why;
	} else if (state == DEVICE_DOWN) {
		device_why_down(&port->device, port->card_was_reset, why, sizeof(why));
		reason = why;
	}
	if (state == DEVICE_REMOVED)
		reason = port->problem.text[0] != '\0' ? port->problem.text : "it is not there any more";
	json_object_set_new(into, "kind", json_string("device"));
	json_object_set_new(into, "device", json_string(port->uri));
	json_object_set_new(into, "state", json_string(states[state]));
	json_object_set_new(into, "since", json_integer(atomic_load(&port->since)));
	json_object_set_new(into, "reason", reason != NULL ? json_string(reason) : json_null());
	json_object_set_new(into, "offloads", offloads_of(&port->device));
	if (port->device.kind == DEVICE_PCI && rte_eth_dev_is_valid_port(port->port_id) &&
	    rte_eth_macaddr_get(port->port_id, &mac) == 0)
		json_object_set_new(into, "mac", json_sprintf(DEVICE_MAC_FORMAT, RTE_ETHER_ADDR_BYTES(&mac)));
	if (state != DEVICE_REMOVED && port->device.interface != 0 && port->device.kind != DEVICE_PCI) {
		read_kernel(port, &sent, &dropped);
		json_object_set_new(into, "kernel",
				    json_pack("{s:I, s:I}", "sent", (json_int_t)(sent - port->kernel_sent), "dropped",
					      (json_int_t)(dropped - port->kernel_dropped)));
	}
	device_unlock();
}
