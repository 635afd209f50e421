/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "switch/following.h"

struct follow *follow_open(struct classifier *match, unsigned frames, unsigned nb_workers)
{
	struct follow *follow = calloc(1, sizeof(*follow));

	if (follow == NULL) {
		free(match);
		return NULL;
	}
	follow->match = match;
	follow->nb_workers = nb_workers;
	for (unsigned i = 0; i < FOLLOW_PORTS; i++)
		atomic_init(&follow->left[i], (int)frames);
	for (unsigned i = 0; i < nb_workers; i++) {
		follow->rings[i] = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(struct note_ring), 64));
		if (follow->rings[i] == NULL) {
			follow_close(follow);
			return NULL;
		}
		memset(follow->rings[i], 0, sizeof(struct note_ring));
	}
	return follow;
}

/* The ring whose next note is the oldest, or NULL. */
static struct note_ring *oldest(struct follow *follow)
{
	struct note_ring *found = NULL;
	uint64_t time = 0;

	for (unsigned i = 0; i < follow->nb_workers; i++) {
		struct note_ring *ring = follow->rings[i];
		uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
		const struct note *note = &ring->notes[tail % FOLLOW_NOTES];

		if (tail == atomic_load_explicit(&ring->head, memory_order_acquire))
			continue;
		if (found == NULL || (int64_t)(note->time - time) < 0) {
			found = ring;
			time = note->time;
		}
	}
	return found;
}

json_t *follow_read(struct follow *follow, unsigned most)
{
	json_t *notes = json_array();
	struct note_ring *ring;
	uint64_t lost = 0;

	while (json_array_size(notes) < most && (ring = oldest(follow)) != NULL) {
		uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
		const struct note *note = &ring->notes[tail % FOLLOW_NOTES];

		json_array_append_new(notes,
				      json_pack("{s:I, s:I, s:I, s:i, s:s}", "time", (json_int_t)note->time, "sighting",
						(json_int_t)note->sighting, "mark", (json_int_t)note->mark, "length",
						note->length, "text", note->text));
		atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
	}
	for (unsigned i = 0; i < follow->nb_workers; i++)
		lost += atomic_load_explicit(&follow->rings[i]->lost, memory_order_relaxed);
	return json_pack("{s:o, s:I}", "notes", notes, "lost", (json_int_t)lost);
}

void follow_close(struct follow *follow)
{
	if (follow == NULL)
		return;
	for (unsigned i = 0; i < follow->nb_workers; i++)
		free(follow->rings[i]);
	free(follow->match);
	free(follow);
}
