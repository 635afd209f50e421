/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/virtio_config.h>
#include <linux/virtio_net.h>

#include "port/device_io.h"
#include "steer/bridge.h"
#include "steer/follow.h"
#include "switch/pages.h"
#include "switch/ports.h"
#include "switch/trace.h"

static int open_guest(struct port *port, const struct port_model *model, struct control_error *error)
{
	struct guest_options options = {
		.name = model->name,
		.path = model->path,
		.client = model->client,
		.offloads = model->offloads,
		.memory = model->memory,
		.queues = model->queues,
		.socket_mode = model->socket_mode,
		.group = model->group,
	};
	char why[320];
	int rc;

	for (unsigned queue = 0; queue < model->queues; queue++)
		options.counters[queue] = port->queues[queue].counters;
	rc = guest_open(&port->guest, &options, why, sizeof(why));
	if (rc != 0)
		control_fail(error,
			     rc == -EADDRINUSE			    ? CONTROL_IN_USE
			     : rc == -EINVAL || rc == -ENAMETOOLONG ? CONTROL_INVALID_PARAMS
								    : CONTROL_FAILED,
			     "ports.%s: %s", model->name, why);
	return rc;
}

static int open_device(struct port *port, const struct port_model *model, bool awaited, struct control_error *error)
{
	char why[sizeof(((struct device_error *)0)->text)];
	int rc = device_port_open(&port->device,
				  &(struct device_port_options){
					  .uri = model->device,
					  .queues = model->queues,
					  .counters = port->queues[0].counters,
					  .awaited = awaited,
				  },
				  why, sizeof(why));

	if (rc != 0)
		control_fail(error, rc == -EBUSY ? CONTROL_IN_USE : CONTROL_FAILED, "ports.%s: %s", model->name, why);
	return rc;
}

static void close_slots(struct page *page, struct port *port)
{
	for (unsigned queue = 0; queue < port->nb_queues; queue++)
		page_slot_close(page, (uint64_t *)port->queues[queue].counters);
}

static int open_slots(struct page *page, struct port *port)
{
	for (unsigned queue = 0; queue < port->nb_queues; queue++) {
		char name[PORT_NAME + 12];

		snprintf(name, sizeof(name), "%s/%u", port->name, queue);
		port->queues[queue].counters = (struct queue_counters *)page_slot_open(page, PAGE_QUEUE, name);
		if (port->queues[queue].counters == NULL)
			return -ENOSPC;
		rte_spinlock_init(&port->queues[queue].lock);
	}
	return 0;
}

_Static_assert(MODEL_PORTS <= (int)BRIDGE_PORTS && MODEL_PORTS <= (int)FOLLOW_PORTS && MODEL_PORTS <= (int)TRACE_PORTS,
	       "they keep something for each port, by its number");

/* Numbers of ports that are open, a bit each. */
static uint64_t numbers[(MODEL_PORTS + 63) / 64 + 1];

static unsigned take_number(void)
{
	unsigned word = 0;

	while (numbers[word] == UINT64_MAX && word + 1 < RTE_DIM(numbers))
		word++;
	for (unsigned bit = 0; bit < 64; bit++)
		if (!(numbers[word] >> bit & 1)) {
			numbers[word] |= UINT64_C(1) << bit;
			return word * 64 + bit;
		}
	return UINT16_MAX; /* more ports than there may be: it is not traced */
}

static void give_number(unsigned number)
{
	if (number / 64 < RTE_DIM(numbers))
		numbers[number / 64] &= ~(UINT64_C(1) << number % 64);
}

void switch_port_follow(struct switch_port *port, const struct port_model *model)
{
	if (port->port.kind != PORT_GUEST)
		return;
	atomic_store_explicit(&port->port.guest.awaited, model->awaited, memory_order_relaxed);
	guest_count_unread(&port->port.guest, model->unread);
}

struct switch_port *switch_port_open(struct page *page, const struct port_model *model, bool awaited,
				     struct control_error *error)
{
	struct switch_port *port = aligned_alloc(_Alignof(struct switch_port),
						 RTE_ALIGN(sizeof(*port), _Alignof(struct switch_port)));
	int rc;

	if (port == NULL) {
		control_fail(error, CONTROL_FAILED, "out of memory");
		return NULL;
	}
	memset(port, 0, sizeof(*port));
	strcpy(port->port.name, model->name);
	port->port.kind = model->kind;
	port->port.nb_queues = model->queues;
	port->port.number = take_number();
	rte_spinlock_init(&port->gate.lock);
	port->gate.mean = 1514;
	if (open_slots(page, &port->port) != 0) {
		control_fail(error, CONTROL_FAILED, "ports.%s: no slot is left on the counter page", model->name);
		goto fail;
	}
	rc = model->kind == PORT_GUEST ? open_guest(&port->port, model, error)
				       : open_device(&port->port, model, awaited, error);
	if (rc == 0) {
		switch_port_follow(port, model);
		return port;
	}
fail:
	give_number(port->port.number);
	close_slots(page, &port->port);
	free(port);
	return NULL;
}

void switch_port_close(struct page *page, struct switch_port *port)
{
	for (unsigned queue = 0; queue < port->port.nb_queues; queue++) {
		device_forget(&port->port, queue);
		device_forget_unread(&port->port, queue);
	}
	if (port->port.kind == PORT_GUEST)
		guest_close(&port->port.guest);
	else
		device_port_close(&port->port.device);
	give_number(port->port.number);
	close_slots(page, &port->port);
	free(port);
}

bool switch_port_stable(struct switch_port *port)
{
	const unsigned pairs = RTE_MIN(guest_pairs(&port->port.guest), (unsigned)port->port.nb_queues);
	const bool same = pairs == port->seen || port->port.nb_queues == 1;

	port->seen = pairs;
	port->stable = same ? pairs : 0;
	return same;
}

unsigned switch_port_pairs(const struct switch_port *port)
{
	unsigned pairs = port->port.kind == PORT_GUEST ? guest_pairs(&port->port.guest) : port->port.nb_queues;

	if (port->expected)
		return port->stable;
	return RTE_MIN(RTE_MAX(pairs, 1u), (unsigned)port->port.nb_queues);
}

bool switch_port_takes(const struct switch_port *port)
{
	return port->port.kind == PORT_GUEST ? guest_takes(&port->port.guest) : device_sends(&port->port.device);
}

static json_t *describe_queues(const struct switch_port *port)
{
	json_t *queues = json_array();

	for (unsigned queue = 0; queue < port->port.nb_queues; queue++)
		json_array_append_new(queues, json_pack("{s:i, s:f}", "worker", port->placed[queue].worker, "load",
							port->placed[queue].load));
	return queues;
}

json_t *switch_port_missing(const struct port_model *model)
{
	return json_pack("{s:s, s:s*, s:[], s:s, s:s, s:s}", "name", model->name,
			 model->role == ROLE_END ? "chain" : "owner", model->owner, "queues", "kind",
			 model->kind == PORT_GUEST ? "guest" : "device", "state", "gone", "reason",
			 "it was closed for a change that failed, and could not be opened again; apply the "
			 "configuration again when what it needs is back");
}

/* The features that matter to an operator, by the names that QEMU gives them. */
static json_t *describe_features(uint64_t features)
{
	static const struct {
		const char *name;
		unsigned bit;
	} names[] = {
		{"csum", VIRTIO_NET_F_CSUM},
		{"guest_csum", VIRTIO_NET_F_GUEST_CSUM},
		{"mtu", VIRTIO_NET_F_MTU},
		{"guest_tso4", VIRTIO_NET_F_GUEST_TSO4},
		{"guest_tso6", VIRTIO_NET_F_GUEST_TSO6},
		{"guest_ecn", VIRTIO_NET_F_GUEST_ECN},
		{"host_tso4", VIRTIO_NET_F_HOST_TSO4},
		{"host_tso6", VIRTIO_NET_F_HOST_TSO6},
		{"host_ecn", VIRTIO_NET_F_HOST_ECN},
		{"mrg_rxbuf", VIRTIO_NET_F_MRG_RXBUF},
		{"ctrl_vq", VIRTIO_NET_F_CTRL_VQ},
		{"ctrl_rx", VIRTIO_NET_F_CTRL_RX},
		{"guest_announce", VIRTIO_NET_F_GUEST_ANNOUNCE},
		{"mq", VIRTIO_NET_F_MQ},
		{"indirect_desc", VIRTIO_RING_F_INDIRECT_DESC},
		{"event_idx", VIRTIO_RING_F_EVENT_IDX},
		{"version_1", VIRTIO_F_VERSION_1},
		{"packed", VIRTIO_F_RING_PACKED},
		{"in_order", VIRTIO_F_IN_ORDER},
	};
	json_t *list = json_array();

	for (unsigned i = 0; i < RTE_DIM(names); i++)
		if (features & UINT64_C(1) << names[i].bit)
			json_array_append_new(list, json_string(names[i].name));
	return list;
}

/* Who is attached, or null. */
static json_t *describe_front_end(const struct guest *guest)
{
	const struct guest_facts facts = guest_facts(guest);
	json_t *rings = json_array();

	if (facts.since == 0) {
		json_decref(rings);
		return json_null();
	}
	for (unsigned i = 0; i < guest->pairs * GUEST_VRINGS_EACH; i += GUEST_VRINGS_EACH)
		if (facts.sizes[i + GUEST_RECEIVES] != 0 || facts.sizes[i + GUEST_SENDS] != 0)
			json_array_append_new(rings,
					      json_pack("{s:i, s:i}", "receive", (int)facts.sizes[i + GUEST_RECEIVES],
							"send", (int)facts.sizes[i + GUEST_SENDS]));
	return json_pack("{s:I, s:s, s:o, s:o, s:I, s:b}", "since", (json_int_t)facts.since, "layout",
			 facts.features & UINT64_C(1) << VIRTIO_F_RING_PACKED ? "packed" : "split", "rings", rings,
			 "features", describe_features(facts.features), "memory", (json_int_t)facts.memory, "logs",
			 facts.logs);
}

json_t *switch_port_describe(const struct switch_port *port, const struct port_model *model)
{
	static const char *const states[] = {
		[GUEST_WAITING] = "waiting", [GUEST_UP] = "up", [GUEST_QUARANTINED] = "quarantined"};
	json_t *text = json_pack("{s:s, s:s*, s:o}", "name", port->port.name,
				 model->role == ROLE_END ? "chain" : "owner", model->owner, "queues",
				 describe_queues(port));
	enum vring_fault fault;
	char why[320];
	bool unreached = false;

	if (port->port.kind == PORT_GUEST) {
		enum guest_state guest = guest_state(&port->port.guest, &fault);

		json_object_set_new(text, "kind", json_string("guest"));
		json_object_set_new(text, "path", json_string(port->port.guest.path));
		json_object_set_new(text, "mode", json_string(port->port.guest.client ? "client" : "server"));
		json_object_set_new(text, "memory", json_integer((json_int_t)guest_memory_most(&port->port.guest)));
		json_object_set_new(text, "pairs", json_integer(guest_pairs(&port->port.guest)));
		json_object_set_new(text, "attached", describe_front_end(&port->port.guest));
		json_object_set_new(text, "state", json_string(states[guest]));
		if (fault == VRING_FAULT_NONE && guest == GUEST_WAITING)
			unreached = guest_unreached(&port->port.guest, why, sizeof(why));
		json_object_set_new(text, "reason",
				    fault	? json_string(vring_fault_text(fault))
				    : unreached ? json_string(why)
						: json_null());
	} else {
		device_port_describe(&port->port.device, text);
	}
	return text;
}
