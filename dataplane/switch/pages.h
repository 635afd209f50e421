/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands on the switch's page of counters: kinds of slots, and room for them.
 */
#ifndef TAILRACE_SWITCH_PAGES_H
#define TAILRACE_SWITCH_PAGES_H

#include "common/page.h"

enum { PAGE_WORKER, PAGE_QUEUE, PAGE_HOP, PAGE_MIRROR, PAGE_KINDS };

enum { PAGE_SLOTS = 16384 }; /* memory is taken by those in use */

extern const struct page_kind page_kinds[PAGE_KINDS];

#endif
