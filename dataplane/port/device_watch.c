/* SPDX-License-Identifier: Apache-2.0 */
#define ALLOW_EXPERIMENTAL_API /* rte_dev_event_callback_register() */
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

#include "common/grace.h"
#include "common/log.h"
#include "port/device_losses.h"
#include "port/device_watch.h"

enum {
	TICK_MS = 50,
	TICKS_TO_RETRY = 10,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_queue *devices; /* that are open */
static pthread_t thread;
static int wake = -1;				 /* an eventfd: a driver has something to report */
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
	struct device_queue *queue = argument;

	atomic_store(&queue->taken_away, true);
	eventfd_write(wake, 1);
	return 0;
}

static int on_reset(uint16_t port_id, enum rte_eth_event_type type, void *argument, void *answer)
{
	struct device_queue *queue = argument;

	atomic_store(&queue->was_reset, true);
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

static void hear(struct device_queue *queue)
{
	atomic_store(&asked_back[queue->port_id], false);
	atomic_store(&queue->was_reset, false);
	rte_eth_dev_callback_register(queue->port_id, RTE_ETH_EVENT_INTR_LSC, on_link, queue);
	rte_eth_dev_callback_register(queue->port_id, RTE_ETH_EVENT_INTR_RMV, on_removal, queue);
	rte_eth_dev_callback_register(queue->port_id, RTE_ETH_EVENT_INTR_RESET, on_reset, queue);
}

static void hear_no_more(struct device_queue *queue)
{
	if (!rte_eth_dev_is_valid_port(queue->port_id))
		return;
	rte_eth_dev_callback_unregister(queue->port_id, RTE_ETH_EVENT_INTR_LSC, on_link, queue);
	rte_eth_dev_callback_unregister(queue->port_id, RTE_ETH_EVENT_INTR_RMV, on_removal, queue);
	rte_eth_dev_callback_unregister(queue->port_id, RTE_ETH_EVENT_INTR_RESET, on_reset, queue);
}

/* ------- one device ------- */

static void enter_state(struct device_queue *queue, enum device_state state)
{
	static const char *const texts[] = {
		[DEVICE_UP] = "is up", [DEVICE_DOWN] = "has lost its link", [DEVICE_REMOVED] = "is gone"};

	atomic_store(&queue->since, time(NULL));
	atomic_store(&queue->state, state);
	log_within(&queue->log, LOG_LEVEL_INFO, "device %s %s", queue->uri, texts[state]);
	if (notify_change != NULL)
		notify_change();
}

static void change_state(struct device_queue *queue, enum device_state state)
{
	if (atomic_load(&queue->state) != (int)state)
		enter_state(queue, state);
}

/* Frames that the device has lost since they were last counted. */
static void count_losses(struct device_queue *queue)
{
	const struct device_losses now = device_losses_read(queue);

	device_losses_count(queue->counters, &queue->losses, &now);
	queue->counted_at = seconds();
}

/* Take the device away from the workers. */
static void withdraw(struct device_queue *queue)
{
	count_losses(queue);
	atomic_store(&queue->state, DEVICE_REMOVED);
	grace_wait();
}

static void close_removed(struct device_queue *queue)
{
	count_losses(queue);
	change_state(queue, DEVICE_REMOVED);
	grace_wait();
	hear_no_more(queue);
	device_queue_stop(queue);
	queue->ticks = 0;
}

/* Something that was there before and whose peer has gone comes back only if we go for it. */
static bool peer_must_be_sought(const struct device_queue *queue)
{
	return queue->device.kind == DEVICE_VHOST ||
	       (queue->device.kind == DEVICE_MEMIF && strstr(queue->uri, "role=server") == NULL);
}

/* Is there any hope that the device can be opened?  Cheap, and without a word. */
static bool may_be_back(const struct device_queue *queue)
{
	const char *target = strchr(queue->uri, ':') + 1;
	struct stat file;

	if (strncmp(queue->uri, "if:", 3) == 0 || strncmp(queue->uri, "xdp:", 4) == 0)
		return if_nametoindex(target) != 0;
	if (strncmp(queue->uri, "vhost:", 6) == 0)
		return stat(target, &file) == 0;
	return queue->device.kind != DEVICE_PCI || device_exists(&queue->device);
}

static void try_again(struct device_queue *queue)
{
	if (++queue->ticks < TICKS_TO_RETRY || !may_be_back(queue))
		return;
	queue->ticks = 0;
	if (device_queue_start(queue, true, &queue->problem) != 0)
		return;
	queue->problem.text[0] = '\0';
	hear(queue);
	change_state(queue, device_link_up(&queue->device) ? DEVICE_UP : DEVICE_DOWN);
}

/* A client of memif connects when it is started. */
static void seek_peer(struct device_queue *queue)
{
	if (++queue->ticks < TICKS_TO_RETRY)
		return;
	queue->ticks = 0;
	if (queue->device.kind == DEVICE_MEMIF) {
		withdraw(queue);
		if (device_restart(&queue->device))
			atomic_store(&queue->state, DEVICE_DOWN);
	} else if (may_be_back(queue)) {
		close_removed(queue);
		queue->ticks = TICKS_TO_RETRY;
	}
}

/*
 * A virtual function that its physical one has reset shows its link and moves no frame, until it is opened anew: the
 * other has forgotten its address and what it may receive.  Not every driver hears of that, but a physical function
 * that goes takes the link along, so one that has its link back is opened anew too.
 */
static bool open_anew(struct device_queue *queue, bool up)
{
	if (!atomic_exchange(&queue->was_reset, false) &&
	    !(up && queue->device.virtual_function && atomic_load(&queue->state) == DEVICE_DOWN))
		return false;
	log_within(&queue->log, LOG_LEVEL_INFO, "device %s is opened anew: its physical function may have reset it",
		   queue->uri);
	withdraw(queue);
	hear_no_more(queue);
	device_queue_stop(queue);
	queue->ticks = TICKS_TO_RETRY;
	try_again(queue);
	if (atomic_load(&queue->state) == DEVICE_REMOVED)
		enter_state(queue, DEVICE_REMOVED);
	return true;
}

static void look(struct device_queue *queue)
{
	bool up;

	if (!rte_eth_dev_is_valid_port(queue->port_id)) {
		try_again(queue);
		return;
	}
	/* Some of it the kernel reports in files: not with every look. */
	if (seconds() != queue->counted_at)
		count_losses(queue);
	if (atomic_load(&queue->taken_away) || atomic_load(&asked_back[queue->port_id]) ||
	    !device_exists(&queue->device)) {
		close_removed(queue);
		return;
	}
	if (packet_watch(queue->device.packets, queue->device.nb_packets))
		log_warning(
			"device %s: somebody sends long datagrams by it that Linux cannot hand over, and loses; from "
			"now on each frame is received by a system call, which is slower",
			queue->uri);
	device_follow_mtu(&queue->device);
	up = device_link_up(&queue->device);
	if (open_anew(queue, up))
		return;
	if (up) {
		change_state(queue, DEVICE_UP);
		return;
	}
	if (queue->device.started)
		change_state(queue, DEVICE_DOWN);
	if (peer_must_be_sought(queue))
		seek_peer(queue);
}

/* ------- all of them ------- */

static void *watch(void *argument)
{
	struct pollfd events = {.fd = wake, .events = POLLIN};
	eventfd_t count;

	while (!atomic_load(&ending)) {
		if (poll(&events, 1, TICK_MS) > 0)
			eventfd_read(wake, &count);
		device_lock();
		for (struct device_queue *queue = devices; queue != NULL; queue = queue->next)
			look(queue);
		device_unlock();
	}
	return NULL;
}

static int start_watching(void)
{
	static bool hears_requests;
	int rc;

	if (!hears_requests)
		hears_requests = rte_dev_event_callback_register(NULL, on_request, NULL) == 0;
	wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake < 0)
		return -errno;
	atomic_store(&ending, false);
	rc = -pthread_create(&thread, NULL, watch, NULL);
	if (rc != 0)
		close(wake);
	return rc;
}

static void read_kernel(const struct device_queue *queue, uint64_t *sent, uint64_t *dropped)
{
	*sent = device_kernel_statistic(queue->device.interface, "tx_packets");
	*dropped = device_kernel_statistic(queue->device.interface, "tx_dropped");
}

int device_watch(struct device_queue *queue)
{
	int rc = devices == NULL ? start_watching() : 0;

	if (rc != 0)
		return rc;
	if (queue->device.interface != 0)
		read_kernel(queue, &queue->kernel_sent, &queue->kernel_dropped);
	if (rte_eth_dev_is_valid_port(queue->port_id))
		hear(queue);
	queue->next = devices;
	devices = queue;
	return 0;
}

void device_unwatch(struct device_queue *queue)
{
	struct device_queue **place = &devices;

	while (*place != queue)
		place = &(*place)->next;
	*place = queue->next;
	hear_no_more(queue);
	if (rte_eth_dev_is_valid_port(queue->port_id))
		count_losses(queue);
	if (devices != NULL)
		return;
	/* It may be waiting for the lock. */
	atomic_store(&ending, true);
	eventfd_write(wake, 1);
	device_unlock();
	pthread_join(thread, NULL);
	device_lock();
	close(wake);
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

void device_queue_describe(const struct device_queue *queue, json_t *into)
{
	static const char *const states[] = {[DEVICE_UP] = "up", [DEVICE_DOWN] = "down", [DEVICE_REMOVED] = "removed"};
	uint64_t sent, dropped;
	enum device_state state;
	struct rte_ether_addr mac;
	char why[IF_NAMESIZE + 80];
	const char *reason = NULL;

	device_lock();
	state = atomic_load(&queue->state);
	if (rte_eth_dev_is_valid_port(queue->port_id) && !queue->device.started)
		state = DEVICE_DOWN;
	if (state == DEVICE_DOWN) {
		device_why_down(&queue->device, why, sizeof(why));
		reason = why;
	}
	if (state == DEVICE_REMOVED)
		reason = queue->problem.text[0] != '\0' ? queue->problem.text : "it is not there any more";
	json_object_set_new(into, "kind", json_string("device"));
	json_object_set_new(into, "device", json_string(queue->uri));
	json_object_set_new(into, "state", json_string(states[state]));
	json_object_set_new(into, "since", json_integer(atomic_load(&queue->since)));
	json_object_set_new(into, "reason", reason != NULL ? json_string(reason) : json_null());
	json_object_set_new(into, "offloads", offloads_of(&queue->device));
	if (queue->device.kind == DEVICE_PCI && rte_eth_dev_is_valid_port(queue->port_id) &&
	    rte_eth_macaddr_get(queue->port_id, &mac) == 0)
		json_object_set_new(into, "mac", json_sprintf(DEVICE_MAC_FORMAT, RTE_ETHER_ADDR_BYTES(&mac)));
	if (state != DEVICE_REMOVED && queue->device.interface != 0 && queue->device.kind != DEVICE_PCI) {
		read_kernel(queue, &sent, &dropped);
		json_object_set_new(into, "kernel",
				    json_pack("{s:I, s:I}", "sent", (json_int_t)(sent - queue->kernel_sent), "dropped",
					      (json_int_t)(dropped - queue->kernel_dropped)));
	}
	device_unlock();
}
