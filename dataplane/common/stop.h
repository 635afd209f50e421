/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT and SIGTERM as a file descriptor, so that a daemon ends where it waits and nowhere else.
 * Call before any thread is made: threads inherit the blocked signals.
 */
#ifndef TAILRACE_COMMON_STOP_H
#define TAILRACE_COMMON_STOP_H

/* Return a descriptor that becomes readable at SIGINT or SIGTERM, or -errno.  SIGPIPE is ignored from here on. */
int stop_open(void);

#endif
