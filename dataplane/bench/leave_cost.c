/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-leave-cost: how long a worker waits that touches memory that one guest has cut, alone and while another
 * guest leaves, which has shared so many MiB and had all of them mapped.
 */
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "common/mapping.h"
#include "common/option.h"
#include "port/guest_backend.h"

enum { MOST_MIB = 1 << 16, ALONE = 200, TOUCHES = 1 << 15, PAUSE_US = 200 };

static struct queue_counters counters[2];
static struct guest guests[2];
static struct guest_backend leaves = {
	.guest = &guests[0], .counters = {&counters[0]}, .memory.most = GUEST_MEMORY_MOST};
static struct guest_backend cuts = {
	.guest = &guests[1], .counters = {&counters[1]}, .memory.most = GUEST_MEMORY_MOST, .next = &leaves};

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Returns the guest's memory as the switch has mapped it, or NULL. */
static uint8_t *share(struct guest_backend *backend, size_t size, int *fd)
{
	const struct guest_region_message region = {.guest = 1ULL << 32, .size = size, .user = 1ULL << 40};

	*fd = memfd_create("guest", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, (off_t)size) != 0 || guest_memory_set(&backend->memory, &region, fd, 1) != 0)
		return NULL;
	return guest_memory_user(atomic_load(&backend->memory.table), 1ULL << 40, size);
}

static atomic_bool left;
static double leaving_ms;

static void *leave(void *unused)
{
	leaving_ms = now_ms();
	guest_memory_drop(&leaves.memory);
	leaving_ms = now_ms() - leaving_ms;
	atomic_store(&left, true);
	return NULL;
}

/* Touch cut memory at the next place, again and again.  Returns the longest touch in ms. */
static double touch(volatile uint8_t *memory, unsigned *next, unsigned most)
{
	const struct timespec pause = {.tv_nsec = PAUSE_US * 1000};
	double worst = 0;

	for (unsigned i = 0; i < most && *next < TOUCHES && !atomic_load(&left); i++) {
		double began;

		nanosleep(&pause, NULL);
		began = now_ms();
		memory[(size_t)++ * next * MAPPING_PIECE] = 1;
		began = now_ms() - began;
		worst = began > worst ? began : worst;
	}
	return worst;
}

static const char usage[] = "usage: tailrace-leave-cost [--mib N]\n"
			    "A guest of 1024 MiB leaves, or of N: who waits, and for how long.\n";

/* The guest writes to all of it.  Returns whether the machine has so much, as Linux would find it by ending programs.
 */
static bool there_is(size_t mib)
{
	unsigned long long available = 0;
	char line[256];
	FILE *file = fopen("/proc/meminfo", "r");

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "MemAvailable: %llu kB", &available) == 1)
			break;
	if (file != NULL)
		fclose(file);
	available >>= 10;
	if (mib < available)
		return true;
	log_error("--mib %zu: this machine has %llu MiB of memory to spare; say less", mib, available);
	return false;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"mib", required_argument, NULL, 'm'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	size_t mib = 1024;
	unsigned next = 0, before;
	uint8_t *mapped, *cut;
	double alone, meanwhile;
	pthread_t leaver;
	int fds[2], option;

	log_open("tailrace-leave-cost", LOG_LEVEL_WARNING);
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1)
		switch (option) {
		case 'm':
			mib = (size_t)option_number("mib", optarg, 1, MOST_MIB);
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (optind < argc) {
		fputs(usage, stderr);
		return 2;
	}
	if (!there_is(mib))
		return 1;
	if (eal_start(&(struct eal_options){.program = "tailrace-leave-cost", .core = -1, .memory_mib = 16}) != 0 ||
	    grace_open() != 0 || guest_survive_cuts() != 0)
		return 1;
	mapped = share(&leaves, mib << 20, &fds[0]);
	cut = share(&cuts, (size_t)(TOUCHES + 1) * MAPPING_PIECE, &fds[1]);
	if (mapped == NULL || cut == NULL || ftruncate(fds[1], MAPPING_PAGE) != 0)
		return 1;
	atomic_store(&guest_backends, &cuts);
	memset(mapped, 1, mib << 20);
	alone = touch(cut, &next, ALONE);
	before = next;
	if (pthread_create(&leaver, NULL, leave, NULL) != 0)
		return 1;
	meanwhile = touch(cut, &next, TOUCHES);
	pthread_join(leaver, NULL);
	printf("%zu MiB given back in %.1f ms; a touch of cut memory takes at most %.2f ms before that (of %u), and "
	       "%.2f ms "
	       "meanwhile (of %u)\n",
	       mib, leaving_ms, alone, before, meanwhile, next - before);
	guest_memory_drop(&cuts.memory);
	return 0;
}
