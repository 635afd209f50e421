/* SPDX-License-Identifier: Apache-2.0 */
#include "passing.h"

enum verdict passing_inspect(struct passing *passing, const struct rte_mbuf *mbuf)
{
	passing->plain = NULL;
	passing->size = (uint16_t)inspect_copy(mbuf, passing->head);
	return inspect(passing->head, passing->size, mbuf->pkt_len, &passing->frame);
}
