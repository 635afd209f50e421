/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages as if they came from the kernel: whole ones of any content, one after another, into a table that others have
 * filled before.  Lookups then find what is there.
 */
#include "fuzz/fuzz.h"

#include "common/grace.h"
#include "functions/router_kernel.h"

static struct router_kernel kernel = {.interfaces = {7, 8}, .asking = 4};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const uint32_t routes[ROUTER_FAMILIES] = {200, 200};

	check(start_dpdk(256) == 0);
	check(grace_open() == 0 && router_table_open(routes) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct router_address address6 = {{0}};
	uint32_t address4 = 0;
	uint64_t found;
	char *bytes = malloc(size); /* exactly as large, for the sanitizer */

	memcpy(bytes, data, size);
	router_kernel_take(&kernel, bytes, size);
	memcpy(&address4, data, RTE_MIN(size, sizeof(address4)));
	memcpy(address6.bytes, data, RTE_MIN(size, sizeof(address6)));
	router_lookup4(&address4, &found, 1);
	check(found < ROUTER_HOPS);
	check(found < ROUTE_FIRST_HOP || router_table.ways[found].nb > 0);
	router_lookup6(&address6, &found, 1);
	check(found < ROUTER_HOPS);
	check(found < ROUTE_FIRST_HOP || router_table.ways[found].nb > 0);
	free(bytes);
	return 0;
}
