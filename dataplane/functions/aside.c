/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "aside.h"
#include "common/log.h"

void aside_notify(int wake_fd)
{
	const uint64_t one = 1;

	(void)!write(wake_fd, &one, sizeof(one)); /* the counter cannot be full */
}

static uint64_t milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void *run(void *context)
{
	struct aside *aside = context;

	while (!atomic_load(&aside->quit)) {
		struct pollfd woken = {.fd = aside->wake_fd, .events = POLLIN};
		const uint32_t wait = aside->step(aside->context, milliseconds());
		uint64_t count;

		atomic_store(&aside->sleeps, true);
		atomic_thread_fence(memory_order_seq_cst);
		if (rte_ring_empty(aside->frames) && !atomic_load(&aside->quit))
			poll(&woken, 1, (int)wait);
		atomic_store(&aside->sleeps, false);
		(void)!read(aside->wake_fd, &count, sizeof(count));
	}
	return NULL;
}

int aside_open(struct aside *aside)
{
	int rc;

	aside->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (aside->wake_fd < 0) {
		rc = errno;
		log_error("eventfd: %s", strerror(rc));
		return -rc;
	}
	aside->runs = true;
	rc = pthread_create(&aside->thread, NULL, run, aside);
	if (rc != 0) {
		aside->runs = false;
		close(aside->wake_fd);
		log_error("no thread beside those that forward: %s", strerror(rc));
	}
	return -rc;
}

void aside_close(struct aside *aside)
{
	if (!aside->runs)
		return;
	atomic_store(&aside->quit, true);
	aside_notify(aside->wake_fd);
	pthread_join(aside->thread, NULL);
	close(aside->wake_fd);
	aside->runs = false;
}

bool aside_give(struct aside *aside, struct rte_mbuf *mbuf)
{
	if (rte_ring_enqueue(aside->frames, mbuf) != 0)
		return false;
	/* Either the thread sees the frame before it sleeps, or this one sees that it sleeps. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&aside->sleeps, memory_order_relaxed) && atomic_exchange(&aside->sleeps, false))
		aside_notify(aside->wake_fd);
	return true;
}

void aside_wake(const struct aside *aside)
{
	if (aside->runs)
		aside_notify(aside->wake_fd);
}
