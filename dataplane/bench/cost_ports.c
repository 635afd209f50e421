/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "common/device.h"
#include "cost_ports.h"

enum { PORTS = 2, PATH = 64, PATIENCE = 10 /* seconds */ };

static struct rte_mempool *pool;
static bool over_vhost;
static char folder[] = "/tmp/tailrace-cost-XXXXXX";
static struct device near[PORTS], far[PORTS]; /* the function's; the other end */
static char near_uris[PORTS][PATH], far_uris[PORTS][PATH];

static int open_device(struct device *device, const char *uri)
{
	const struct device_options options = {.pool = pool};
	struct device_error error;

	if (device_open(device, uri, &options, &error) == 0)
		return 0;
	fprintf(stderr, "%s: %s\n", uri, error.text);
	return -1;
}

static void remove_folder(void)
{
	char path[PATH];

	for (unsigned port = 0; port < PORTS; port++) {
		snprintf(path, sizeof(path), "%s/%u", folder, port);
		unlink(path);
	}
	rmdir(folder);
}

int cost_ports_open(bool vhost, struct rte_mempool *with)
{
	pool = with;
	over_vhost = vhost;
	if (!vhost)
		return 0;
	if (mkdtemp(folder) == NULL) {
		perror(folder);
		return -1;
	}
	atexit(remove_folder); /* whatever goes wrong */
	for (unsigned port = 0; port < PORTS; port++) {
		snprintf(far_uris[port], PATH, "vdev:net_vhost%u,iface=%s/%u", port, folder, port);
		snprintf(near_uris[port], PATH, "vhost:%s/%u", folder, port);
		if (open_device(&far[port], far_uris[port]) != 0 || open_device(&near[port], near_uris[port]) != 0)
			return -1;
	}
	return 0;
}

void cost_ports_close(void)
{
	if (!over_vhost)
		return;
	for (unsigned port = 0; port < PORTS; port++) {
		device_close(&near[port]);
		device_close(&far[port]);
	}
}

static void end(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static void fill(struct rte_mbuf **burst, const struct frame *frames)
{
	if (rte_pktmbuf_alloc_bulk(pool, burst, COST_BURST) != 0)
		end("no packet buffers");
	for (unsigned i = 0; i < COST_BURST; i++)
		memcpy(rte_pktmbuf_append(burst[i], COST_LENGTH), frames[i].bytes, COST_LENGTH);
}

static void empty(struct rte_mbuf **burst, uint16_t nb, uint8_t (*received)[64])
{
	for (unsigned i = 0; i < nb; i++)
		memcpy(received[i], rte_pktmbuf_mtod(burst[i], void *), COST_LENGTH);
	rte_pktmbuf_free_bulk(burst, nb);
}

static uint64_t pass_memory(const struct function *function, uint16_t in, const struct frame *sent,
			    uint8_t (*received)[64], uint16_t *nb_out)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	const uint64_t began = rte_rdtsc();

	fill(burst, sent);
	*nb_out = function->process(burst, COST_BURST, in, 0);
	empty(burst, *nb_out, received);
	return rte_rdtsc() - began;
}

/*
 * DPDK's back end moves nothing while a thread of its own takes a message of the front end.  That may share this CPU,
 * so it is waited for: at the far ends, whose time is not counted.
 */
static void move_far(uint16_t (*move)(uint16_t, uint16_t, struct rte_mbuf **, uint16_t), const struct device *device,
		     struct rte_mbuf **burst, uint16_t nb_frames, const char *otherwise)
{
	const uint64_t end_of_patience = rte_rdtsc() + PATIENCE * rte_get_tsc_hz();
	uint16_t nb_moved = move(device->port, 0, burst, nb_frames);

	while (nb_moved < nb_frames) {
		if (rte_rdtsc() > end_of_patience)
			end(otherwise);
		sched_yield();
		nb_moved += move(device->port, 0, burst + nb_moved, nb_frames - nb_moved);
	}
}

static uint64_t pass_vhost(const struct function *function, uint16_t in, const struct frame *sent,
			   uint8_t (*received)[64], uint16_t *nb_out)
{
	struct rte_mbuf *burst[FUNCTION_ROOM];
	uint64_t began, ended;
	uint16_t nb;

	fill(burst, sent);
	move_far(rte_eth_tx_burst, &far[in], burst, COST_BURST, "the function's port takes no frames");
	began = rte_rdtsc();
	nb = device_receive(&near[in], 0, burst, COST_BURST);
	nb = function->process(burst, nb, in, 0);
	*nb_out = rte_eth_tx_burst(near[!in].port, 0, burst, nb);
	ended = rte_rdtsc();
	if (*nb_out != nb)
		end("the function's port does not send all");
	move_far(rte_eth_rx_burst, &far[!in], burst, nb, "not all that was sent has come");
	empty(burst, nb, received);
	return ended - began;
}

uint64_t cost_ports_pass(const struct function *function, uint16_t in, const struct frame *sent,
			 uint8_t (*received)[64], uint16_t *nb_out)
{
	return over_vhost ? pass_vhost(function, in, sent, received, nb_out)
			  : pass_memory(function, in, sent, received, nb_out);
}
