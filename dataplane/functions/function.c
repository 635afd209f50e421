/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "function.h"

const struct function *const functions[] = {
	&skeleton, &impair, &router, &firewall, &nat, &balancer, &tunnel,
};
const size_t nb_functions = sizeof(functions) / sizeof(functions[0]);

const struct function *function_find(const char *name)
{
	for (size_t i = 0; i < nb_functions; i++)
		if (strcmp(functions[i]->name, name) == 0)
			return functions[i];
	return NULL;
}

void function_wake(const struct function_start *start, unsigned queue)
{
	const uint64_t one = 1;

	if (start->wake != NULL)
		start->wake(start->loop, queue);
	else
		(void)!write(start->wake_fd, &one, sizeof(one)); /* the counter cannot be full */
}

json_t *function_counters(const struct function_counter *counters, size_t nb_counters, size_t stride,
			  unsigned nb_queues)
{
	json_t *described = json_object();

	for (size_t i = 0; i < nb_counters; i++) {
		const char *at = (const char *)counters[i].first;
		json_int_t sum = 0;

		for (unsigned queue = 0; queue < nb_queues; queue++, at += stride)
			sum += (json_int_t)atomic_load_explicit((const _Atomic uint64_t *)at, memory_order_relaxed);
		json_object_set_new(described, counters[i].name, json_integer(sum));
	}
	return described;
}

const char *function_number(const char *value, uint32_t most, const char *expected, uint32_t *number)
{
	char *end;
	unsigned long read = strtoul(value, &end, 10);

	if (*value < '0' || *value > '9' || *end != '\0' || read == 0 || read > most)
		return expected;
	*number = (uint32_t)read;
	return NULL;
}
