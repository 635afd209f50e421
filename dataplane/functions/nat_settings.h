/* SPDX-License-Identifier: Apache-2.0
 *
 * What a NAT is told when it starts, as NAME=VALUE.
 */
#ifndef TAILRACE_FUNCTIONS_NAT_SETTINGS_H
#define TAILRACE_FUNCTIONS_NAT_SETTINGS_H

#include "nat_table.h"

#define NAT_SETTINGS_DEFAULT                                        \
	{                                                           \
		.block = 512, .blocks = 4, .host_connections = 8192 \
	}

/* Returns NULL, or what was expected. */
const char *nat_settings_take(struct nat_settings *settings, const char *name, const char *value);

/* What is missing or contradicts itself; NULL: nothing. */
const char *nat_settings_wrong(const struct nat_settings *settings);

#endif
