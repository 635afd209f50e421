/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "log.h"

static const char *log_program = "tailrace";
static enum log_level log_most = LOG_LEVEL_INFO;

void log_open(const char *program, enum log_level level)
{
	log_program = program;
	log_most = level;
}

void log_write(enum log_level level, const char *format, ...)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	char line[1024];
	va_list arguments;
	int length;

	if (level > log_most)
		return;
	length = snprintf(line, sizeof(line), "%s: %s: ", log_program, names[level]);
	va_start(arguments, format);
	length += vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
	va_end(arguments);
	if (length > (int)sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	/* One write, so that lines of several threads and processes never mix. */
	if (write(STDERR_FILENO, line, length) < 0)
		return;
}
