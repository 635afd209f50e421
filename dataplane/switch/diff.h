/* SPDX-License-Identifier: Apache-2.0
 *
 * What a change of the configuration changes, for people and programs to read.
 */
#ifndef TAILRACE_SWITCH_DIFF_H
#define TAILRACE_SWITCH_DIFF_H

#include <jansson.h>

/* A new list of {"change": "add|remove|change", "what": "port|function|chain|bridge|mirror|trace|workers", "name"}. */
json_t *config_diff(json_t *before, json_t *after);

#endif
