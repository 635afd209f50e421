/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "port/guest_closer.h"

struct guest_closer {
	pthread_mutex_t lock;
	unsigned count;
	bool runs, ends;
	bool closes; /* one that is in no place of `fds` any more */
	int fds[GUEST_CLOSER_ROOM];
};

struct guest_closer *guest_closer_open(void)
{
	struct guest_closer *closer = calloc(1, sizeof(*closer));

	if (closer != NULL)
		pthread_mutex_init(&closer->lock, NULL);
	return closer;
}

/* With the lock, which is given back: whoever comes last frees it. */
static void leave(struct guest_closer *closer)
{
	const bool last = closer->ends && !closer->runs;

	pthread_mutex_unlock(&closer->lock);
	if (last)
		free(closer);
}

static void *run(void *context)
{
	struct guest_closer *closer = context;

	pthread_mutex_lock(&closer->lock);
	while (closer->count > 0) {
		const int fd = closer->fds[--closer->count];

		closer->closes = true;
		pthread_mutex_unlock(&closer->lock);
		close(fd);
		pthread_mutex_lock(&closer->lock);
		closer->closes = false;
	}
	closer->runs = false;
	leave(closer);
	return NULL;
}

/* In the processors of the thread that asks, which are none of the workers'. */
static bool start(struct guest_closer *closer)
{
	pthread_attr_t detached;
	pthread_t thread;
	int rc;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &detached, run, closer);
	pthread_attr_destroy(&detached);
	return rc == 0;
}

void guest_closer_give(struct guest_closer *closer, int fd)
{
	pthread_mutex_lock(&closer->lock);
	if (closer->count < GUEST_CLOSER_ROOM) {
		closer->fds[closer->count++] = fd;
		fd = -1;
	}
	/* Without a thread it stays until the next is given. */
	closer->runs = closer->runs || start(closer);
	pthread_mutex_unlock(&closer->lock);
	/* Nobody gives so much without asking. */
	if (fd >= 0)
		close(fd);
}

bool guest_closer_over(struct guest_closer *closer, unsigned most)
{
	bool over;

	pthread_mutex_lock(&closer->lock);
	over = closer->count + closer->closes > most;
	pthread_mutex_unlock(&closer->lock);
	return over;
}

void guest_closer_close(struct guest_closer *closer)
{
	pthread_mutex_lock(&closer->lock);
	closer->ends = true;
	leave(closer);
}
