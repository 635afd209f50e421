/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_common.h>

#include "steer/counters.h"
#include "switch/pages.h"
#include "switch/worker.h"
#include "vring/counters.h"

/* The names of a struct's counters, by their places in it. */
#define PLACE(type, name)	offsetof(struct type, name) / sizeof(uint64_t)
#define WORKER_NAME(name, text) [PLACE(worker_counters, name)] = #name,
#define QUEUE_NAME(name, text)	[PLACE(queue_counters, name)] = #name,
#define MIRROR_NAME(name, text) [PLACE(hop_counters, name)] = #name,
#define HOP_NAMES(name, text)	[PLACE(hop, forward.name)] = "forward_" #name, [PLACE(hop, back.name)] = "back_" #name,

static const char *const worker_fields[] = {WORKER_COUNTERS(WORKER_NAME)};
static const char *const queue_fields[] = {QUEUE_COUNTERS(QUEUE_NAME)};
static const char *const hop_fields[] = {HOP_COUNTERS(HOP_NAMES)};
static const char *const mirror_fields[] = {HOP_COUNTERS(MIRROR_NAME)};

const struct page_kind page_kinds[PAGE_KINDS] = {
	[PAGE_WORKER] = {"worker", worker_fields, RTE_DIM(worker_fields)},
	[PAGE_QUEUE] = {"queue", queue_fields, RTE_DIM(queue_fields)},
	[PAGE_HOP] = {"hop", hop_fields, RTE_DIM(hop_fields)},
	[PAGE_MIRROR] = {"mirror", mirror_fields, RTE_DIM(mirror_fields)},
};
