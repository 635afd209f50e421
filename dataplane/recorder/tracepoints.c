/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "recorder/tracepoints.h"

static const char *const places[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
static const char *tracefs;

int tracepoints_open(char *why, unsigned size)
{
	char path[64];
	int rc;

	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s/events", places[i]);
		if (access(path, R_OK | X_OK) == 0) {
			tracefs = places[i];
			return 0;
		}
	}
	if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	    mount("tracefs", places[0], "tracefs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0) {
		tracefs = places[0];
		return 0;
	}
	rc = -errno;
	snprintf(why, size, "tracefs cannot be mounted: %s", strerror(errno));
	return rc;
}

/* Find a line such as "\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;".  Returns the offset or -ENOENT. */
static int field_at(const char *format, const char *field)
{
	const size_t length = strlen(field);

	for (const char *line = strstr(format, "\tfield:"); line != NULL; line = strstr(line + 1, "\tfield:")) {
		const char *end = strchr(line, ';'), *name = end;

		if (end == NULL)
			break;
		if (end[-1] == ']')
			while (name > line && *name != '[')
				name--;
		if ((size_t)(name - line) > length && strncmp(name - length, field, length) == 0 &&
		    name[-(ptrdiff_t)length - 1] == ' ' && strncmp(end, ";\toffset:", 9) == 0)
			return atoi(end + 9);
	}
	return -ENOENT;
}

static int read_file(const char *name, const char *file, char *text, size_t size)
{
	char path[256];
	size_t length;
	FILE *stream;

	snprintf(path, sizeof(path), "%s/events/%s/%s", tracefs, name, file);
	stream = fopen(path, "re");
	if (stream == NULL)
		return -errno;
	length = fread(text, 1, size - 1, stream);
	text[length] = '\0';
	fclose(stream);
	return 0;
}

int tracepoint_read(const char *name, const char *const *fields, struct tracepoint *tracepoint)
{
	char text[8192];
	int rc = read_file(name, "id", text, sizeof(text));

	if (rc != 0)
		return rc;
	tracepoint->number = (uint32_t)strtoul(text, NULL, 10);
	rc = read_file(name, "format", text, sizeof(text));
	return rc == 0 ? tracepoint_parse(text, fields, tracepoint) : rc;
}

int tracepoint_parse(const char *format, const char *const *fields, struct tracepoint *tracepoint)
{
	for (unsigned i = 0; i < TRACEPOINT_FIELDS && fields[i] != NULL; i++) {
		int at = field_at(format, fields[i]);

		if (at < 0)
			return at;
		tracepoint->at[i] = (uint16_t)at;
	}
	return 0;
}
