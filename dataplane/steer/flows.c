/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <sys/random.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "common/resident.h"
#include "steer/flows.h"

struct flows *flows_new(unsigned buckets, unsigned ageing_seconds)
{
	struct flows *flows = calloc(1, sizeof(*flows));

	if (flows == NULL)
		return NULL;
	flows->buckets = resident_zeros((size_t)buckets * sizeof(struct flow_bucket));
	if (flows->buckets == NULL) {
		free(flows);
		return NULL;
	}
	if (getrandom(flows->secret, sizeof(flows->secret), GRND_NONBLOCK) != sizeof(flows->secret))
		flows->secret[0] = rte_rdtsc();
	flows->secret[1] |= 1;
	flows->bucket_mask = buckets - 1;
	flows_set_ageing(flows, ageing_seconds);
	return flows;
}

void flows_set_ageing(struct flows *flows, unsigned seconds)
{
	const uint64_t ticks = (rte_get_tsc_hz() * seconds >> FLOWS_TICK_SHIFT) + 1;

	/* Half of what a tick's 16 bits can tell apart. */
	__atomic_store_n(&flows->ageing, (uint16_t)RTE_MIN(ticks, (uint64_t)UINT16_MAX / 2), __ATOMIC_RELAXED);
}

void flows_free(struct flows *flows)
{
	if (flows == NULL)
		return;
	resident_free(flows->buckets, ((size_t)flows->bucket_mask + 1) * sizeof(struct flow_bucket));
	free(flows);
}

/* How much an entry is missed when it gives way: the less the better. */
static uint32_t worth(const struct flows *flows, uint64_t entry, uint16_t tick, uint64_t kept)
{
	uint32_t youth;

	if (!(entry & FLOW_USED))
		return 0;
	if (!flow_fresh(flows, entry, tick))
		return 1;
	if (kept & UINT64_C(1) << flow_replica(entry))
		return UINT32_MAX;
	youth = UINT16_MAX - flow_age(entry, tick);
	return 2 + youth + (entry & FLOW_LASTING ? 1u << 17 : 0);
}

void flows_add(struct flows *flows, struct flow_bucket *bucket, uint64_t entry, uint16_t tick, uint64_t kept)
{
	uint32_t least = UINT32_MAX;
	uint64_t *slot = NULL;

	for (unsigned i = 0; i < FLOWS_BUCKET && least > 0; i++) {
		uint32_t here = worth(flows, flow_read(&bucket->entries[i]), tick, kept);

		if (here < least) {
			least = here;
			slot = &bucket->entries[i];
		}
	}
	if (least > 1)
		__atomic_fetch_add(&flows->crowded, 1, __ATOMIC_RELAXED);
	if (slot != NULL)
		flow_write(slot, entry);
}

void flows_count(const struct flows *flows, uint16_t tick, uint64_t counts[FLOWS_REPLICAS])
{
	for (unsigned i = 0; i < FLOWS_REPLICAS; i++)
		counts[i] = 0;
	for (uint32_t b = 0; b <= flows->bucket_mask; b++)
		for (unsigned i = 0; i < FLOWS_BUCKET; i++) {
			uint64_t entry = flow_read(&flows->buckets[b].entries[i]);

			if ((entry & FLOW_USED) && flow_fresh(flows, entry, tick))
				counts[flow_replica(entry) % FLOWS_REPLICAS]++;
		}
}

void flows_sweep(struct flows *flows, uint16_t tick, unsigned part, unsigned parts)
{
	const uint64_t buckets = (uint64_t)flows->bucket_mask + 1;

	for (uint64_t b = buckets * part / parts; b < buckets * (part + 1) / parts; b++)
		for (unsigned i = 0; i < FLOWS_BUCKET; i++) {
			uint64_t *slot = &flows->buckets[b].entries[i], entry = flow_read(slot);

			/* Unless a worker has just seen it. */
			if ((entry & FLOW_USED) && !flow_fresh(flows, entry, tick))
				__atomic_compare_exchange_n(slot, &entry, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
}

void flows_forget(struct flows *flows, uint64_t replicas)
{
	for (uint32_t b = 0; b <= flows->bucket_mask; b++)
		for (unsigned i = 0; i < FLOWS_BUCKET; i++) {
			uint64_t entry = flow_read(&flows->buckets[b].entries[i]);

			if ((entry & FLOW_USED) && (replicas & UINT64_C(1) << flow_replica(entry) % FLOWS_REPLICAS))
				flow_write(&flows->buckets[b].entries[i], 0);
		}
}
