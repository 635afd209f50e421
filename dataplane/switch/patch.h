/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON merge patches (RFC 7386).  Documents are never changed: what a patch leaves alone is shared with the result,
 * so a small patch of a large document is cheap, and what did not change is known by its address.
 */
#ifndef TAILRACE_SWITCH_PATCH_H
#define TAILRACE_SWITCH_PATCH_H

#include <jansson.h>

/* The document as patched: a new reference, or NULL without memory.  `document` may be NULL: nothing. */
json_t *patch_merge(json_t *document, json_t *patch);

#endif
