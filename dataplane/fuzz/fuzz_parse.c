/* SPDX-License-Identifier: Apache-2.0
 *
 * A frame as it falls.  It lies in memory exactly as large as it is, so the address sanitizer sees a byte too far; the
 * checks below see a result that steering could not live with.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "steer/parse.h"

static void check_headers(const struct headers *headers, size_t size)
{
	static const uint8_t zero[12];

	check(headers->family == HEADERS_OTHER || headers->family == HEADERS_IPV4 || headers->family == HEADERS_IPV6);
	check((headers->family != HEADERS_OTHER) == (headers->network != 0));
	check(headers->network < size || headers->network == 0);
	check(headers->embedded <= PARSE_BYTES);
	check(headers->fragment != FRAGMENT_LATER || !headers->has_ports);
	check(headers->vlan == 0 || (headers->vlan & ~0xfff) == HEADERS_VLAN);
	check(headers->inner_vlan == 0 || headers->vlan != 0);
	/* A classifier compares whole words. */
	check(memcmp(headers->zero, zero, sizeof(headers->zero)) == 0);
	check(headers->family != HEADERS_IPV4 || memcmp(headers->source + 4, zero, 12) == 0);
	check(headers->family != HEADERS_IPV4 || memcmp(headers->destination + 4, zero, 12) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes = malloc(size + 1);
	struct headers headers;

	memcpy(bytes + 1, data, size);
	parse_frame(bytes + 1, size, &headers);
	check_headers(&headers, size);
	parse_embedded(bytes + 1, size, &headers);
	check(headers.family != HEADERS_IPV4 || memcmp(headers.source + 4, "\0\0\0\0\0\0\0\0\0\0\0", 12) == 0);
	free(bytes);
	return 0;
}
