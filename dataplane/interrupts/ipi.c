/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "interrupts/ipi.h"
#include "interrupts/moment.h"

enum { TEXT_BYTES = 1 << 16 };

struct pair {
	struct interrupt_page *page;
	int event;
	uint64_t number;	   /* of the last that was waked for */
	_Atomic uint64_t come;	   /* the number of the last that has come */
	_Atomic uint64_t waked_at; /* cycles */
	_Atomic uint64_t held;	   /* moments before it at which none was waked for */
	_Atomic bool ended;
};

static void wake(struct pair *pair)
{
	const uint64_t one = 1;

	(void)!write(pair->event, &one, sizeof(one));
}

static void *wake_other(void *argument)
{
	struct pair *pair = argument;
	struct interrupt_page *page = pair->page;
	uint64_t period = atomic_load_explicit(&page->period_ns, memory_order_relaxed);
	uint64_t due = moment_now(), held = 0, late;

	prctl(PR_SET_TIMERSLACK, 1);
	while (atomic_load_explicit(&page->phase, memory_order_acquire) == PHASE_IPI) {
		due += period;
		moment_sleep_until(due);
		late = (moment_now() - due) / period;
		due += late * period;
		held += late;
		if (atomic_load_explicit(&pair->come, memory_order_acquire) != pair->number) {
			held++;
			continue;
		}
		atomic_store_explicit(&pair->held, held, memory_order_relaxed);
		held = 0;
		pair->number++;
		atomic_store_explicit(&pair->waked_at, __rdtsc(), memory_order_release);
		wake(pair);
	}
	atomic_store(&pair->ended, true);
	wake(pair);
	return NULL;
}

static int start(struct pair *pair, int from, pthread_t *thread)
{
	pthread_attr_t how;
	cpu_set_t cpus;
	int error;

	CPU_ZERO(&cpus);
	CPU_SET(from, &cpus);
	pthread_attr_init(&how);
	pthread_attr_setaffinity_np(&how, sizeof(cpus), &cpus);
	error = pthread_create(thread, &how, wake_other, pair);
	pthread_attr_destroy(&how);
	return -error;
}

uint64_t ipi_counted(const char *text, unsigned cpu)
{
	uint64_t sum = 0;
	unsigned column = 0;
	const char *at = text, *line;
	char *end;

	/* Which columns there are is said in the first line: CPU0 CPU1 ... */
	for (bool found = false; !found; column += !found) {
		at += strcspn(at, "C\n");
		if (*at != 'C')
			return 0;
		at += strlen("CPU");
		found = strtoul(at, &end, 10) == cpu;
		at = end;
	}
	for (line = strchr(text, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
		at = line + 1 + strspn(line + 1, " ");
		if (strncmp(at, "RES:", 4) != 0 && strncmp(at, "CAL:", 4) != 0)
			continue;
		at += 4;
		for (unsigned i = 0; i < column && isdigit((unsigned char)at[strspn(at, " ")]); i++) {
			strtoull(at, &end, 10);
			at = end;
		}
		sum += strtoull(at, NULL, 10);
	}
	return sum;
}

static uint64_t counted_here(void)
{
	char *text = malloc(TEXT_BYTES);
	FILE *file = fopen("/proc/interrupts", "re");
	uint64_t found = 0;
	size_t length;

	if (text != NULL && file != NULL) {
		length = fread(text, 1, TEXT_BYTES - 1, file);
		text[length] = '\0';
		found = ipi_counted(text, (unsigned)sched_getcpu());
	}
	if (file != NULL)
		fclose(file);
	free(text);
	return found;
}

/* Returns 0 or -errno. */
static int receive(struct pair *pair)
{
	struct interrupt_page *page = pair->page;
	uint64_t number = atomic_load_explicit(&page->raised, memory_order_relaxed);
	uint64_t count, now;
	ssize_t got;

	for (;;) {
		struct interrupt_wakeup *one = &page->wakeups[++number % INTERRUPT_PAGE_WAKEUPS];

		do
			got = read(pair->event, &count, sizeof(count));
		while (got < 0 && errno == EINTR);
		now = __rdtsc();
		if (got < 0)
			return -errno;
		if (atomic_load(&pair->ended))
			return 0;
		atomic_store_explicit(&one->at, now, memory_order_relaxed);
		atomic_store_explicit(&one->late, now - atomic_load_explicit(&pair->waked_at, memory_order_acquire),
				      memory_order_relaxed);
		atomic_store_explicit(&one->held, atomic_load_explicit(&pair->held, memory_order_relaxed),
				      memory_order_relaxed);
		atomic_store_explicit(&page->arrived, number, memory_order_release);
		atomic_fetch_add_explicit(&pair->come, 1, memory_order_release);
	}
}

int ipi_receive(struct interrupt_page *page, int from)
{
	struct pair pair = {.page = page, .event = eventfd(0, EFD_CLOEXEC)};
	uint64_t before = counted_here();
	pthread_t thread;
	int error = pair.event < 0 ? -errno : start(&pair, from, &thread);

	if (error == 0) {
		error = receive(&pair);
		pthread_join(thread, NULL);
		atomic_store_explicit(&page->ipis, counted_here() - before, memory_order_relaxed);
	}
	if (pair.event >= 0)
		close(pair.event);
	return error;
}
