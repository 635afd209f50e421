/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "function.h"

const struct function *const functions[] = {
	&skeleton,
	&impair,
	&router,
	&firewall,
};
const size_t nb_functions = sizeof(functions) / sizeof(functions[0]);

const struct function *function_find(const char *name)
{
	for (size_t i = 0; i < nb_functions; i++)
		if (strcmp(functions[i]->name, name) == 0)
			return functions[i];
	return NULL;
}
