/* SPDX-License-Identifier: Apache-2.0
 *
 * One line for each message on standard error: "tailrace-switch: warning: ...".
 * Never called from a polling loop.  Any thread may call it.
 */
#ifndef TAILRACE_COMMON_LOG_H
#define TAILRACE_COMMON_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Set the program's name and the most detailed level that is still written (INFO by default). */
void log_open(const char *program, enum log_level level);

__attribute__((format(printf, 2, 3))) void log_write(enum log_level level, const char *format, ...);

#define log_error(...)	 log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
