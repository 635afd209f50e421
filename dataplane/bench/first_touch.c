/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-first-touch: nanoseconds that a worker takes to write to a page of a guest's memory for the first time.  The
 * guest has written to all of it before, as one has that was up before the switch.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rte_launch.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "common/option.h"
#include "port/guest_backend.h"

enum { PAGE = 4096, PAGES = 1 << 16, REST_US = 1000000 };
#define USER (1ULL << 40)

static struct queue_counters counters;
static struct guest guest;
static struct guest_backend backend = {.guest = &guest, .counters = {&counters}, .memory.most = GUEST_MEMORY_MOST};

static double now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

struct touches {
	volatile uint8_t *memory;
	unsigned stride; /* from one page to the next */
	double ns;	 /* each */
};

static int touch(void *argument)
{
	struct touches *touches = argument;
	const double began = now_ns();

	for (unsigned i = 0; i < PAGES; i += touches->stride)
		touches->memory[(size_t)i * PAGE] = 1;
	touches->ns = (now_ns() - began) / (PAGES / touches->stride);
	return 0;
}

/* A guest that comes, is given `rest_us` before frames move, and leaves.  Returns a negative number when it cannot. */
static double measure(int fd, unsigned rest_us, unsigned stride)
{
	const struct guest_region_message region = {.guest = USER, .size = (uint64_t)PAGES * PAGE, .user = USER};
	struct touches touches = {.stride = stride};

	if (guest_memory_add(&backend.memory, &region, fd) != 0)
		return -1;
	usleep(rest_us);
	touches.memory = guest_memory_user(atomic_load(&backend.memory.table), USER, region.size);
	rte_eal_remote_launch(touch, &touches, eal_worker());
	rte_eal_wait_lcore(eal_worker());
	guest_memory_drop(&backend.memory);
	return touches.ns;
}

int main(int argc, char **argv)
{
	const int fd = memfd_create("guest", MFD_CLOEXEC);
	const size_t size = (size_t)PAGES * PAGE;
	uint8_t *own;

	option_none(argc, argv,
		    "How long a worker takes to write to a page of a guest's memory for the first time: ns a page.");
	log_open("tailrace-first-touch", LOG_LEVEL_WARNING);
	if (eal_start(&(struct eal_options){.program = "tailrace-first-touch", .core = -1, .memory_mib = 16}) != 0 ||
	    grace_open() != 0 || guest_survive_cuts() != 0 || ftruncate(fd, size) != 0)
		return 1;
	own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (own == MAP_FAILED)
		return 1;
	memset(own, 1, size);
	atomic_store(&guest_backends, &backend);
	for (unsigned round = 0; round < 3; round++) {
		printf("pages in turn: at once %5.0f ns, after a second %5.0f ns; ", measure(fd, 0, 1),
		       measure(fd, REST_US, 1));
		printf("each 16th: at once %5.0f ns, after a second %5.0f ns\n", measure(fd, 0, 16),
		       measure(fd, REST_US, 16));
	}
	return 0;
}
