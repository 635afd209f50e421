/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include "port/device.h"

enum { DEVICE_BUFFERS = 4095, DEVICE_CACHE = 256 };

int device_queue_open(struct device_queue *queue, const char *uri, char *why, unsigned why_size)
{
	static unsigned pools;
	struct device_error error;
	char name[RTE_MEMPOOL_NAMESIZE];
	int rc;

	memset(queue, 0, sizeof(*queue));
	if (strlen(uri) >= sizeof(queue->uri)) {
		snprintf(why, why_size, "the name is longer than %zu bytes", sizeof(queue->uri) - 1);
		return -EINVAL;
	}
	if (strncmp(uri, "vhost-server:", strlen("vhost-server:")) == 0) {
		snprintf(why, why_size, "it would wait for a back end; use vhost: with a back end that listens");
		return -EINVAL;
	}
	strcpy(queue->uri, uri);
	snprintf(name, sizeof(name), "device_%u", pools++);
	queue->pool = rte_pktmbuf_pool_create(name, DEVICE_BUFFERS, DEVICE_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
					      (int)rte_socket_id());
	if (queue->pool == NULL) {
		snprintf(why, why_size, "no memory for its packet buffers; start the switch with a larger --memory");
		return -ENOMEM;
	}
	rc = device_open(&queue->device, queue->uri, &(struct device_options){.pool = queue->pool}, &error);
	if (rc != 0) {
		snprintf(why, why_size, "%s", error.text);
		rte_mempool_free(queue->pool);
		return rc;
	}
	queue->port_id = queue->device.port;
	return 0;
}

bool device_queue_up(const struct device_queue *queue)
{
	return device_link_up(&queue->device);
}

void device_queue_close(struct device_queue *queue)
{
	rte_pktmbuf_free_bulk(queue->held, queue->nb_held);
	device_close(&queue->device);
	rte_mempool_free(queue->pool);
}
