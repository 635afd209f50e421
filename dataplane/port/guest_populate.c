/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include <rte_common.h>

#include "common/mapping.h"
#include "port/guest_pages.h"
#include "port/guest_populate.h"

/* A mapping, and how much of it is done. */
struct job {
	struct job *next;
	void *base;
	size_t length, page, done;
	bool unmapped; /* meanwhile: it has to be, once the step that is under way ends */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct job *jobs; /* in turn; the first is the thread's, if there is one */
static bool runs;

/* With the lock: the place of the mapping's job in the list, or of its end. */
static struct job **find(const void *base)
{
	struct job **at = &jobs;

	while (*at != NULL && (*at)->base != base)
		at = &(*at)->next;
	return at;
}

/* Returns whether there is more to do. */
static bool take_step(struct job *job)
{
	const size_t length = RTE_MIN(GUEST_PAGES_STEP * job->page, job->length - job->done);

	guest_pages_map_present((uintptr_t)job->base + job->done, length, job->page);
	job->done += length;
	return job->done < job->length;
}

static void *run(void *unused)
{
	pthread_mutex_lock(&lock);
	while (jobs != NULL) {
		struct job *job = jobs;
		bool more;

		pthread_mutex_unlock(&lock);
		more = take_step(job);
		pthread_mutex_lock(&lock);
		jobs = job->next;
		job->next = NULL;
		if (more && !job->unmapped) {
			*find(NULL) = job;
			continue;
		}
		if (job->unmapped) {
			pthread_mutex_unlock(&lock);
			mapping_end(job->base, job->length, job->page);
			pthread_mutex_lock(&lock);
		}
		free(job);
	}
	runs = false;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* In the processors of the thread that asks, which are none of the workers'. */
static bool start(void)
{
	pthread_t thread;

	return pthread_create(&thread, NULL, run, NULL) == 0 && pthread_detach(thread) == 0;
}

void guest_populate(void *base, size_t length, size_t page)
{
	struct job *job = malloc(sizeof(*job));

	/* Whoever touches them will map them. */
	if (job == NULL)
		return;
	*job = (struct job){.base = base, .length = length, .page = page};
	pthread_mutex_lock(&lock);
	*find(NULL) = job;
	/* Without a thread they stay until there is one. */
	runs = runs || start();
	pthread_mutex_unlock(&lock);
}

void guest_populate_unmap(void *base, size_t length, size_t page)
{
	struct job **at, *job;

	pthread_mutex_lock(&lock);
	at = find(base);
	job = *at;
	if (job != NULL && job == jobs && runs) {
		job->unmapped = true;
		base = NULL;
	} else if (job != NULL) {
		*at = job->next;
		free(job);
	}
	pthread_mutex_unlock(&lock);
	if (base != NULL)
		mapping_end(base, length, page);
}
