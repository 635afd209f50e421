/* SPDX-License-Identifier: Apache-2.0
 *
 * What a function has of connections, as the records that it gives to another instance.
 */
#ifndef TAILRACE_TEST_HANDED_OVER_H
#define TAILRACE_TEST_HANDED_OVER_H

#include <string.h>

#include "functions/handover.h"

/* Returns how many there are; there is room for them. */
static inline uint32_t handed_over(const struct handover *handover, const struct connections *flows,
				   struct handover_record *records)
{
	struct connection flow;
	uint32_t count = 0;

	for (uint32_t number = 1; number <= flows->most; number++) {
		if (!connections_copy(flows, number, &flow))
			continue;
		records[count] = (struct handover_record){
			.seen = flow.seen, .state = flow.state, .opener = flow.opener, .port = flow.port};
		memcpy(records[count].key, flow.key, sizeof(flow.key));
		handover->fill(flows, &flow, &records[count++]);
	}
	return count;
}

#endif
