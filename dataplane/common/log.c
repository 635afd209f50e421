/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

static const uint64_t SECOND = 1000000000;

static const char *log_program = "tailrace";
static enum log_level log_most = LOG_LEVEL_INFO;

void log_open(const char *program, enum log_level level)
{
	log_program = program;
	log_most = level;
}

/* The size of the file that lines go to; -1: they go elsewhere, to somebody who knows the time. */
static int64_t file_size(void)
{
	struct stat file;

	return fstat(STDERR_FILENO, &file) == 0 && S_ISREG(file.st_mode) ? (int64_t)file.st_size : -1;
}

static int put_time(char *line, size_t size)
{
	struct timespec now;
	struct tm parts;
	size_t length;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &parts);
	length = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &parts);
	return (int)length + snprintf(line + length, size - length, ".%03ldZ ", now.tv_nsec / 1000000);
}

__attribute__((format(printf, 3, 0))) static void write_line(enum log_level level, uint64_t left_out,
							     const char *format, va_list arguments)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	char line[1024];
	int length = file_size() >= 0 ? put_time(line, sizeof(line)) : 0;

	length += snprintf(line + length, sizeof(line) - length, "%s: %s: ", log_program, names[level]);
	length += vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
	if (left_out > 0 && length < (int)sizeof(line) - 2)
		length += snprintf(line + length, sizeof(line) - length - 1,
				   " (%" PRIu64 " lines before this one were left out)", left_out);
	if (length > (int)sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	/* One write, so that lines of several threads and processes never mix. */
	if (write(STDERR_FILENO, line, length) < 0)
		return;
}

void log_write(enum log_level level, const char *format, ...)
{
	va_list arguments;

	if (level > log_most)
		return;
	va_start(arguments, format);
	write_line(level, 0, format, arguments);
	va_end(arguments);
}

/* ------- budgets ------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t all_spent_until;

/* Whether one more fits: each takes `each` nanoseconds, and may be taken `burst` of them ahead. */
static bool fits(uint64_t spent_until, uint64_t now, uint64_t each, unsigned burst)
{
	return spent_until <= now + (burst - 1) * each;
}

static uint64_t spend(uint64_t spent_until, uint64_t now, uint64_t each)
{
	return (spent_until > now ? spent_until : now) + each;
}

/* Take a line of the budget, and what was left out before it.  False: there is no room. */
static bool take(struct log_budget *budget, uint64_t *left_out)
{
	const uint64_t all_each = SECOND / LOG_ALL_A_SECOND;
	struct timespec time;
	uint64_t now;
	bool room;

	clock_gettime(CLOCK_MONOTONIC, &time);
	now = time.tv_sec * SECOND + time.tv_nsec;
	pthread_mutex_lock(&lock);
	room = fits(budget->spent_until, now, SECOND, LOG_BURST) &&
	       fits(all_spent_until, now, all_each, LOG_BURST_ALL) && file_size() < LOG_FILE_MOST;
	if (room) {
		budget->spent_until = spend(budget->spent_until, now, SECOND);
		all_spent_until = spend(all_spent_until, now, all_each);
		*left_out = budget->left_out;
		budget->left_out = 0;
	}
	pthread_mutex_unlock(&lock);
	return room;
}

void log_within(struct log_budget *budget, enum log_level level, const char *format, ...)
{
	uint64_t left_out;
	va_list arguments;

	if (level > log_most)
		return;
	if (!take(budget, &left_out)) {
		__atomic_fetch_add(&budget->left_out, 1, __ATOMIC_RELAXED);
		return;
	}
	va_start(arguments, format);
	write_line(level, left_out, format, arguments);
	va_end(arguments);
}

void log_left_out(struct log_budget *budget, const char *who)
{
	uint64_t left_out;

	if (__atomic_load_n(&budget->left_out, __ATOMIC_RELAXED) > 0 && take(budget, &left_out))
		log_write(LOG_LEVEL_WARNING, "%s: %" PRIu64 " lines were left out", who, left_out);
}
