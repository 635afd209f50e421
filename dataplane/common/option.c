/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "log.h"
#include "option.h"

long option_number(const char *option, const char *text, long least, long most)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno == 0 && *text != '\0' && *end == '\0' && value >= least && value <= most)
		return value;
	log_error("--%s %s: expected an integer from %ld to %ld", option, text, least, most);
	exit(2);
}

void option_wrong(int returned, const char *argument)
{
	log_error("%s: %s; see --help", argument, returned == ':' ? "its value is missing" : "no such option");
	exit(2);
}
