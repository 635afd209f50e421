/* SPDX-License-Identifier: Apache-2.0
 *
 * One line for each message on standard error: "tailrace-switch: warning: ...".  Where that is a file, the line begins
 * with the time: "2026-01-31T12:00:00.000Z tailrace-switch: warning: ...".
 * Never called from a polling loop.  Any thread may call it.
 */
#ifndef TAILRACE_COMMON_LOG_H
#define TAILRACE_COMMON_LOG_H

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Set the program's name and the most detailed level that is still written (INFO by default). */
void log_open(const char *program, enum log_level level);

__attribute__((format(printf, 2, 3))) void log_write(enum log_level level, const char *format, ...);

#define log_error(...)	 log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/*
 * For what somebody who is not trusted can cause to be logged: each has a budget, all zeros at first.  A burst of
 * LOG_BURST lines, then one a second; of all of them together LOG_BURST_ALL, then LOG_ALL_A_SECOND; and none once the
 * file has LOG_FILE_MOST bytes.  What was left out is counted, and reported with the next line.
 */
enum { LOG_BURST = 8, LOG_BURST_ALL = 64, LOG_ALL_A_SECOND = 4, LOG_FILE_MOST = 64 << 20 };

struct log_budget {
	uint64_t spent_until; /* nanoseconds */
	uint64_t left_out;    /* lines */
};

__attribute__((format(printf, 3, 4))) void log_within(struct log_budget *budget, enum log_level level,
						      const char *format, ...);

/* Tell of what was left out, if there is room for a line by now; `who` begins it. */
void log_left_out(struct log_budget *budget, const char *who);

#endif
