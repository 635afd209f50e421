/* SPDX-License-Identifier: Apache-2.0
 *
 * Why the CPU of a machine was left for its host, by the numbers of Intel's and AMD's manuals as Linux's tracepoint
 * kvm_exit has them.
 */
#ifndef TAILRACE_RECORDER_EXITS_H
#define TAILRACE_RECORDER_EXITS_H

#include <stdint.h>

/* What Linux calls a reason, in capitals; "?" for one that it did not name.  `isa` is the tracepoint's. */
const char *exit_name(uint32_t isa, uint32_t reason);

#endif
