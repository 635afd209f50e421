/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter of system calls of a switch that runs (privileges.h).
 */
#ifndef TAILRACE_SWITCH_FILTER_H
#define TAILRACE_SWITCH_FILTER_H

#include <stdint.h>

/*
 * Install the filter in all threads, and bar the process from ever gaining privileges.  `keep`: capabilities that
 * stay, some of which need calls of their own.  Returns 0 or -errno.
 */
int filter_install(uint64_t keep);

#endif
