/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void option_none(int argc, char *const argv[], const char *does)
{
	const bool help = argc == 2 && strcmp(argv[1], "--help") == 0;

	if (argc < 2)
		return;
	fprintf(help ? stdout : stderr, "usage: %s\n%s\n", program_invocation_short_name, does);
	exit(help ? 0 : 2);
}
