/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <rte_cycles.h>

#include "common/log.h"
#include "homes.h"

int homes_open(struct homes *homes, unsigned nb_queues)
{
	homes->nb_queues = nb_queues;
	if (fragments_open(&homes->fragments) == 0)
		return 0;
	log_error("no memory for fragments; use a larger --memory");
	return -ENOMEM;
}

void homes_close(struct homes *homes)
{
	fragments_close(&homes->fragments);
}

unsigned homes_find_any(struct homes *homes, const struct rte_mbuf *mbuf, uint16_t in, unsigned queue,
			const struct homes_by *by)
{
	const uint64_t tsc = rte_rdtsc();
	uint8_t head[PARSE_BYTES];
	const uint32_t size = inspect_copy(mbuf, head);
	struct inspected frame, quoted;
	struct fragment_way way = {0};

	switch (inspect(head, size, mbuf->pkt_len, &frame)) {
	case VERDICT_FLOW:
		way.mark = (uint16_t)by->any(&frame.headers, false, in, queue, homes->nb_queues);
		if (frame.headers.fragment == FRAGMENT_FIRST)
			fragments_add(&homes->fragments, &frame, tsc, &way);
		return way.mark;
	case VERDICT_LATER:
		way.mark = (uint16_t)queue;
		fragments_mark(&homes->fragments, &frame, tsc, &way.mark);
		return way.mark;
	case VERDICT_ERROR:
		return inspect_quoted(head, size, &frame, &quoted)
			       ? by->any(&quoted.headers, true, in, queue, homes->nb_queues)
			       : queue;
	default:
		return queue;
	}
}
