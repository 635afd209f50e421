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

const char *function_number(const char *value, uint32_t most, const char *expected, uint32_t *number)
{
	char *end;
	unsigned long read = strtoul(value, &end, 10);

	if (*value < '0' || *value > '9' || *end != '\0' || read == 0 || read > most)
		return expected;
	*number = (uint32_t)read;
	return NULL;
}
