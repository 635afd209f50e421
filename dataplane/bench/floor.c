/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-floor: what a hop would cost if there were nothing to do but to copy.
 *
 * Two threads, each pinned to a core.  The first copies bursts of frames as the switch does between guests, by the same
 * routine and both ways.  No ring, no descriptor, no check, no address to translate, no counter: where each frame lies
 * is known.  The second plays both guests and hands frames over by one index for each direction and burst.
 *
 * What it costs depends on where the buffers' cache lines are, so they circulate as in `tailrace bench hop`.  There,
 * with rings of 1024 descriptors, 1040 buffers of a direction go round: a frame is read 512 frames after it was
 * written, most of which it waits in the ring that the guest sends by, and its buffer is written again 528 frames after
 * that, most of which it waits in the ring that the guest receives by (counted in the hop, by the addresses of 20
 * million frames of 1518 B).  `--ring N` is the same with other rings: the shorter, the fewer lines go round.
 *
 * What the guest does to a frame decides which lines move.  `--guest forward` (the load of `bench hop`: testpmd in io
 * mode) reads the network header of what it receives and sends the same buffer on.  `--guest rewrite` reads every byte
 * that it receives and writes every byte that it sends, as an endpoint would.
 *
 * `--copy` is how: as the hop copies (`hop`), by `rep movsb`, or with the lines of a frame asked for while the one
 * before it is copied (`next`, which the hop does with long frames), or two frames before, to the second cache
 * (`ahead`).  Both ends of a copy are aligned alike.
 *
 * Cycles are those of the rounds that found something to copy, as the switch counts them.
 */
#include <getopt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_pause.h>

#include "bench/duet.h"
#include "common/copy.h"
#include "common/log.h"

enum {
	WAYS = 2,
	RING = 1024,
	RING_LEAST = 256,
	RING_MOST = 4096,
	BURST = 64,		  /* as the hop's */
	BEYOND = 16 + 3,	  /* not a multiple of a page away, or else loads seem to depend on stores */
	STRIDE = 2048 + 256 + 64, /* of a packet buffer with its own header, as DPDK lays them out */
	HEADROOM = 256,		  /* to the frame's first byte */
	NETWORK_HEADER = 12,
	FCS = 4,
	FRAME_LEAST = 64,
	FRAME_MOST = 1518,
	LINE = 64,
	AHEAD = 2, /* frames */
	WARM_UP_MS = 300,
};

static struct {
	/* Frames copied and frames handed back, for each direction; each number has one writer. */
	struct {
		_Alignas(2 * LINE) _Atomic uint64_t number;
	} copied[WAYS], offered[WAYS];
	_Alignas(2 * LINE) atomic_bool stop;
} shared;

static uint8_t *buffers[WAYS];
static uint32_t length; /* of a frame in memory */
static double seconds = 3;
static bool rewrite;
static uint64_t waiting; /* frames between being copied and being copied on */
static uint64_t unused;	 /* buffers between being copied on and being copied to again */

static const char *const copies[] = {"hop", "movsb", "next", "ahead"};
static enum copy { COPY_HOP, COPY_MOVSB, COPY_NEXT, COPY_AHEAD } how;

static uint8_t *frame_at(unsigned way, uint64_t number)
{
	return buffers[way] + number % (waiting + unused) * STRIDE + HEADROOM;
}

/* ------- the guests ------- */

/* Look at a frame that has come, and make it one to send. */
static uint64_t take(uint8_t *frame)
{
	uint64_t seen;

	memcpy(&seen, frame - NETWORK_HEADER, sizeof(seen));
	if (!rewrite)
		return seen;
	for (uint32_t i = 0; i + sizeof(uint64_t) <= length; i += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, frame + i, sizeof(word));
		seen += word;
	}
	memset(frame, (int)seen, length);
	return seen;
}

static void guests(void)
{
	uint64_t taken[WAYS] = {0};

	while (!atomic_load_explicit(&shared.stop, memory_order_relaxed)) {
		for (unsigned way = 0; way < WAYS; way++) {
			uint64_t ready = atomic_load_explicit(&shared.copied[way].number, memory_order_acquire);
			uint64_t sum = 0;

			if (ready - taken[way] < BURST)
				continue;
			for (unsigned i = 0; i < BURST; i++)
				sum += take(frame_at(way, taken[way]++));
			__asm__ volatile("" ::"r"(sum)); /* so that it is read */
			/* Copied number n was frame n, and is sent on as frame n + waiting. */
			atomic_store_explicit(&shared.offered[way].number, taken[way] + waiting, memory_order_release);
		}
	}
}

/* ------- the copy ------- */

static void copy_string(uint8_t *to, const uint8_t *from, size_t size)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size)::"memory");
}

/* All lines but the first, which has been asked for. */
static void prefetch_next(const uint8_t *to, const uint8_t *from)
{
	for (uint32_t at = LINE; at < length; at += LINE) {
		__builtin_prefetch(from + at);
		__builtin_prefetch(to + at, 1);
	}
}

static void prefetch_ahead(const uint8_t *to, const uint8_t *from)
{
	for (uint32_t at = LINE; at < length; at += LINE) {
		__builtin_prefetch(from + at, 0, 2);
		__builtin_prefetch(to + at, 0, 2);
	}
}

/* One burst of a direction, to where the burst before it lay. */
static void copy_burst(unsigned way, uint64_t number)
{
	const uint8_t *from[BURST];
	uint8_t *to[BURST];

	/* As in the hop, the misses of a whole burst are let overlap. */
	for (unsigned i = 0; i < BURST; i++) {
		from[i] = frame_at(way, number + unused + i);
		to[i] = frame_at(way, number + i);
		__builtin_prefetch(from[i]);
		__builtin_prefetch(to[i], 1);
	}
	for (unsigned i = 0; i < BURST; i++) {
		if (how == COPY_NEXT && i + 1 < BURST)
			prefetch_next(to[i + 1], from[i + 1]);
		if (how == COPY_AHEAD && i + AHEAD < BURST)
			prefetch_ahead(to[i + AHEAD], from[i + AHEAD]);
		if (how == COPY_MOVSB)
			copy_string(to[i], from[i], length);
		else
			copy_frame(to[i], from[i], length);
	}
}

static struct measured {
	uint64_t frames, cycles;
	double seconds;
} found;

/* TSC ticks a second. */
static double tsc_rate(void)
{
	const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
	struct timespec begin, end;
	const uint64_t start = rte_rdtsc();

	clock_gettime(CLOCK_MONOTONIC, &begin);
	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (double)(rte_rdtsc() - start) /
	       ((double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
}

static struct measured copy_for(double time, uint64_t copied[WAYS])
{
	const double rate = tsc_rate();
	const uint64_t start = rte_rdtsc(), end = start + (uint64_t)(time * rate);
	struct measured sum = {0};
	uint64_t now = start;

	while (now < end) {
		bool any = false;

		for (unsigned way = 0; way < WAYS; way++) {
			if (atomic_load_explicit(&shared.offered[way].number, memory_order_acquire) - copied[way] <
			    BURST)
				continue;
			copy_burst(way, copied[way]);
			copied[way] += BURST;
			atomic_store_explicit(&shared.copied[way].number, copied[way], memory_order_release);
			sum.frames += BURST;
			any = true;
		}
		const uint64_t then = now;

		now = rte_rdtsc();
		if (any)
			sum.cycles += now - then;
		else
			rte_pause();
	}
	sum.seconds = (double)(now - start) / rate;
	return sum;
}

/* The first copies are not measured. */
static void copier(void)
{
	uint64_t copied[WAYS] = {0};

	copy_for(WARM_UP_MS / 1e3, copied);
	found = copy_for(seconds, copied);
	atomic_store(&shared.stop, true);
}

/* ------- the program ------- */

/* A set of buffers in huge pages if there are any, as guests' are. */
static uint8_t *allocate(void)
{
	const size_t huge = 2 << 20, size = RTE_ALIGN((waiting + unused) * STRIDE, huge);
	uint8_t *set = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (set == MAP_FAILED) {
		set = aligned_alloc(huge, size);
		if (set == NULL)
			return NULL;
		madvise(set, size, MADV_HUGEPAGE);
	}
	memset(set, 0, size);
	return set;
}

static int usage(FILE *stream, int status)
{
	fprintf(stream,
		"usage: tailrace-floor --cores COPIER,GUESTS [--frame BYTES] [--seconds S] [--guest forward|rewrite]\n"
		"                      [--copy hop|movsb|next|ahead] [--ring N] [--json]\n"
		"Cycles that the bare copy of a frame takes between two guests' buffers.\n");
	return status;
}

static void print(unsigned frame, const int cores[2], bool json)
{
	const double cycles = (double)found.cycles / (double)found.frames;
	const double mpps = (double)found.frames / found.seconds / 1e6;

	if (json)
		printf("{\"frame\": %u, \"cycles_per_packet\": %.2f, \"mpps\": %.3f, \"seconds\": %.3f, "
		       "\"guest\": \"%s\", \"copy\": \"%s\", \"ring\": %u, \"cores\": [%d, %d]}\n",
		       frame, cycles, mpps, found.seconds, rewrite ? "rewrite" : "forward", copies[how],
		       (unsigned)waiting * 2, cores[0], cores[1]);
	else
		printf("%u B: %.1f cycles a frame, %.2f Mpps\n", frame, cycles, mpps);
}

/* Returns whether it is one. */
static bool read_copy(const char *name)
{
	for (how = COPY_HOP; how <= COPY_AHEAD; how++)
		if (strcmp(name, copies[how]) == 0)
			return true;
	log_error("--copy %s: expected hop, movsb, next or ahead", name);
	return false;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"cores", required_argument, NULL, 'c'},
		{"frame", required_argument, NULL, 'f'},
		{"seconds", required_argument, NULL, 's'},
		{"guest", required_argument, NULL, 'g'},
		{"copy", required_argument, NULL, 'm'},
		{"ring", required_argument, NULL, 'r'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct duet duet = {.cores = {-1, -1}, .first = copier, .second = guests};
	double frame = FRAME_MOST, ring = RING;
	int option, status;
	bool json = false;

	log_open("tailrace-floor", LOG_LEVEL_INFO);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			if (!duet_parse(optarg, duet.cores))
				return 2;
			break;
		case 'f':
			if (!duet_number(optarg, FRAME_LEAST, FRAME_MOST, &frame) || frame != (unsigned)frame) {
				log_error("--frame %s: expected a frame size from %d to %d bytes, FCS included", optarg,
					  FRAME_LEAST, FRAME_MOST);
				return 2;
			}
			break;
		case 's':
			if (!duet_seconds(optarg, &seconds))
				return 2;
			break;
		case 'g':
			if (strcmp(optarg, "forward") != 0 && strcmp(optarg, "rewrite") != 0) {
				log_error("--guest %s: expected forward or rewrite", optarg);
				return 2;
			}
			rewrite = optarg[0] == 'r';
			break;
		case 'm':
			if (!read_copy(optarg))
				return 2;
			break;
		case 'r':
			if (!duet_number(optarg, RING_LEAST, RING_MOST, &ring) || ring != (unsigned)ring) {
				log_error("--ring %s: expected %d to %d descriptors", optarg, RING_LEAST, RING_MOST);
				return 2;
			}
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			return usage(stdout, 0);
		default:
			return usage(stderr, 2);
		}
	}
	if (duet.cores[0] < 0 || optind != argc)
		return usage(stderr, 2);
	length = (uint32_t)frame - FCS;
	waiting = (uint64_t)ring / 2;
	unused = waiting + BEYOND;
	for (unsigned way = 0; way < WAYS; way++) {
		buffers[way] = allocate();
		if (buffers[way] == NULL) {
			log_error("no memory for %u buffers", (unsigned)(waiting + unused));
			return 1;
		}
		atomic_store(&shared.offered[way].number, waiting);
	}
	status = duet_run(&duet);
	if (status != 0)
		return status;
	print((unsigned)frame, duet.cores, json);
	return 0;
}
