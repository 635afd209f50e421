/* SPDX-License-Identifier: Apache-2.0 */
#include "passing.h"

enum verdict passing_inspect(struct passing *passing, const struct rte_mbuf *mbuf)
{
	enum verdict verdict;

	passing->plain = NULL;
	passing->size = (uint16_t)inspect_copy(mbuf, passing->head);
	verdict = inspect(passing->head, passing->size, mbuf->pkt_len, &passing->frame);
	passing->words.event = passing->frame.event;
	return verdict;
}

void passing_fill(struct passing *passing)
{
	if (passing->plain == NULL || passing->filled)
		return;
	passing->filled = true;
	plain_fill(&passing->words, &passing->frame);
	passing->key = (struct connection_key){
		.words = {passing->ends[0], 0, passing->ends[1], 0, plain_kind(passing->words.protocol),
			  PLAIN_PORTS | passing->ports},
		.hash = passing->hash,
		.source = passing->source,
	};
}
