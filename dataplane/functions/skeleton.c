/* SPDX-License-Identifier: Apache-2.0
 *
 * The least that a function can be: each frame leaves by the other port as it came.  What a chain of these costs
 * is the cost of the chain.
 */
#include "function.h"

static uint16_t skeleton_process(struct rte_mbuf **burst, uint16_t nb_frames, uint16_t in, uint16_t queue)
{
	return nb_frames;
}

const struct function skeleton = {
	.name = "skeleton",
	.help = "forward between the two ports, and nothing else",
	.process = skeleton_process,
	.several = true,
};
