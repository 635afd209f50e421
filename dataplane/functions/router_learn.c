/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_lcore.h>

#include "common/eal.h"
#include "common/log.h"
#include "router_learn.h"

enum { BUFFERS = 8 }; /* that are read ahead, at most */

struct part {
	ssize_t size; /* -1: news were lost */
	uint8_t bytes[ROUTER_KERNEL_BUFFER] __attribute__((aligned(MNL_ALIGNTO)));
};

struct reading {
	const struct router_kernel *kernel;
	pthread_t thread;
	sem_t empty, full;
	int end_fd;
	unsigned taken;
	struct part parts[BUFFERS];
};

/* ------- the thread that reads ------- */

/* Wait for a message.  Returns false if this is the end. */
static bool wait_for_news(const struct reading *reading)
{
	struct pollfd fds[] = {{.fd = router_kernel_fd(reading->kernel), .events = POLLIN},
			       {.fd = reading->end_fd, .events = POLLIN}};

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		;
	return fds[1].revents == 0;
}

static void *read_parts(void *context)
{
	struct reading *reading = context;
	/* The forwarding thread, which waits for all of this, does not use its CPU yet. */
	const rte_cpuset_t cpus = rte_lcore_cpuset(eal_worker());

	(void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	for (unsigned i = 0;; i++) {
		struct part *part = &reading->parts[i % BUFFERS];

		while (sem_wait(&reading->empty) != 0)
			;
		do
			if (!wait_for_news(reading))
				return NULL;
		while ((part->size = router_kernel_receive(reading->kernel, part->bytes)) == 0);
		sem_post(&reading->full);
	}
}

/* ------- the thread that takes ------- */

/* Wait for a part that was read, for some ms; -1: without limit.  Returns whether there is one. */
static bool wait_for_part(struct reading *reading, int ms)
{
	struct timespec until;

	if (ms < 0) {
		while (sem_wait(&reading->full) != 0)
			;
		return true;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	return sem_clockwait(&reading->full, CLOCK_MONOTONIC, &until) == 0;
}

static void take_part(struct reading *reading, struct router_kernel *kernel)
{
	const struct part *part = &reading->parts[reading->taken++ % BUFFERS];

	router_kernel_take_received(kernel, part->bytes, part->size);
	sem_post(&reading->empty);
}

static void take_all(struct reading *reading, struct router_kernel *kernel)
{
	const uint64_t one = 1;

	while (!router_kernel_complete(kernel))
		if (wait_for_part(reading, router_kernel_ask(kernel)))
			take_part(reading, kernel);
	(void)!write(reading->end_fd, &one, sizeof(one));
	sem_post(&reading->empty);
	pthread_join(reading->thread, NULL);
	while (sem_trywait(&reading->full) == 0) /* news that it has read since */
		take_part(reading, kernel);
}

int router_learn(struct router_kernel *kernel)
{
	const uint64_t began = rte_rdtsc();
	struct reading *reading = malloc(sizeof(*reading));
	int rc = ENOMEM;

	if (reading == NULL)
		goto failed;
	reading->kernel = kernel;
	reading->taken = 0;
	reading->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (reading->end_fd < 0) {
		rc = errno;
		goto failed;
	}
	sem_init(&reading->empty, 0, BUFFERS);
	sem_init(&reading->full, 0, 0);
	rc = pthread_create(&reading->thread, NULL, read_parts, reading);
	if (rc == 0)
		take_all(reading, kernel);
	sem_destroy(&reading->empty);
	sem_destroy(&reading->full);
	close(reading->end_fd);
failed:
	free(reading);
	if (rc != 0)
		log_error("the kernel's tables cannot be read: %s", strerror(rc));
	else
		log_info("the kernel's tables are known after %.2f s",
			 (double)(rte_rdtsc() - began) / (double)rte_get_tsc_hz());
	return -rc;
}
