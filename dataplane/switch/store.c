/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "switch/store.h"

static void beside(const struct config *config, char *path, size_t size)
{
	snprintf(path, size, "%s.new", config->path);
}

int store_read(struct config *config)
{
	json_t *stored, *document = NULL, *previous = NULL;
	const char *when = "";
	json_int_t version;
	json_error_t why;
	struct stat file;

	if (access(config->path, F_OK) != 0 && errno == ENOENT)
		return -ENOENT;
	if (stat(config->path, &file) == 0 && file.st_size == 0) {
		log_warning("%s is empty, as after a loss of power; the switch starts with nothing", config->path);
		return -ENOENT;
	}
	stored = json_load_file(config->path, JSON_REJECT_DUPLICATES, &why);
	if (stored == NULL) {
		log_error("%s: line %d: %s", config->path, why.line, why.text);
		return -EINVAL;
	}
	if (json_unpack_ex(stored, &why, JSON_STRICT, "{s:I, s:o, s:o, s:{s:i, s:i, s:s}}", "version", &version,
			   "config", &document, "previous", &previous, "author", "pid", &config->author.pid, "uid",
			   &config->author.uid, "when", &when) != 0 ||
	    !json_is_object(document) || version < 0) {
		log_error("%s: not a configuration kept by this program: %s", config->path, why.text);
		json_decref(stored);
		return -EINVAL;
	}
	snprintf(config->author.when, sizeof(config->author.when), "%s", when);
	config->version = version;
	json_decref(config->document);
	config->document = json_incref(document);
	config->previous = json_is_object(previous) ? json_incref(previous) : NULL;
	json_decref(stored);
	return 0;
}

static bool write_file(const struct config *config, const char *previous, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
	bool written;

	if (file == NULL) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	/* On disk before it takes the other's place, or a loss of power might leave neither. */
	written = fprintf(file,
			  "{\"version\":%" PRIu64
			  ",\"author\":{\"pid\":%d,\"uid\":%u,\"when\":\"%s\"},\n\"config\":%s,\n"
			  "\"previous\":%s}\n",
			  config->version, config->author.pid, config->author.uid, config->author.when, config->text,
			  previous ? previous : "null") > 0 &&
		  fflush(file) == 0 && fdatasync(fd) == 0;
	return fclose(file) == 0 && written;
}

int store_prepare(struct config *config, const char *previous, struct control_error *error)
{
	char path[PATH_MAX];

	if (config->path == NULL)
		return 0;
	config->text = json_dumps(config->document, JSON_COMPACT);
	if (config->text == NULL) {
		control_fail(error, CONTROL_FAILED, "out of memory");
		return -1;
	}
	beside(config, path, sizeof(path));
	if (write_file(config, previous, path))
		return 0;
	control_fail(error, CONTROL_FAILED, "the configuration cannot be kept in %s: %s", path, strerror(errno));
	return -1;
}

void store_commit(struct config *config)
{
	char path[PATH_MAX];

	if (config->path == NULL)
		return;
	beside(config, path, sizeof(path));
	if (rename(path, config->path) != 0)
		log_error("%s: %s; the configuration holds, and is not kept", config->path, strerror(errno));
	config->unsettled = true;
}

void store_abandon(struct config *config)
{
	char path[PATH_MAX];

	if (config->path == NULL)
		return;
	beside(config, path, sizeof(path));
	unlink(path);
	free(config->text);
	config->text = NULL;
}

/* The folder: which of the two files has the name. */
void store_settle(struct config *config)
{
	char folder[PATH_MAX];
	int fd;

	if (!config->unsettled)
		return;
	config->unsettled = false;
	snprintf(folder, sizeof(folder), "%s", config->path);
	fd = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) != 0)
		log_warning("%s: %s; the configuration is not on disk", config->path, strerror(errno));
	if (fd >= 0)
		close(fd);
}
