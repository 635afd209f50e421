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
#include "switch/patch.h"
#include "switch/store.h"

/* Reading them again must take no part worth mention of the second in which guests resume. */
enum { PATCHES_MOST = 64 };

/* ------- reading ------- */

/* All of a file, which is not taken for shorter than it is.  NULL: see errno. */
static char *read_whole(const char *path, struct stat *now)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	int error;

	if (file == NULL)
		return NULL;
	errno = 0;
	if (fstat(fileno(file), now) == 0 && (text = malloc((size_t)now->st_size + 1)) != NULL &&
	    fread(text, 1, (size_t)now->st_size, file) != (size_t)now->st_size) {
		error = errno;
		free(text);
		text = NULL;
		errno = error != 0 ? error : EIO;
	}
	error = errno;
	fclose(file);
	errno = error;
	return text;
}

/* The file as this switch has left it, of which `size` bytes count; 0: it is to be written whole. */
static void note_left(struct config *config, const struct stat *file, size_t size)
{
	config->store.size = size;
	config->store.device = file->st_dev;
	config->store.inode = file->st_ino;
	config->store.changed = file->st_mtim;
}

static bool is_as_left(const struct config *config, const struct stat *file)
{
	const struct store *left = &config->store;

	return (size_t)file->st_size == left->size && file->st_dev == left->device && file->st_ino == left->inode &&
	       file->st_mtim.tv_sec == left->changed.tv_sec && file->st_mtim.tv_nsec == left->changed.tv_nsec;
}

/* Take over version, author and document, the reference to the latter, and what came before it becomes previous. */
static void take(struct config *config, json_int_t version, int pid, int uid, const char *when, json_t *document)
{
	config->version = (uint64_t)version;
	config->author.pid = pid;
	config->author.uid = (unsigned)uid;
	snprintf(config->author.when, sizeof(config->author.when), "%s", when);
	json_decref(config->previous);
	config->previous = config->document;
	config->document = document;
}

static int take_whole(struct config *config, json_t *stored, json_error_t *why)
{
	json_t *document, *previous;
	json_int_t version;
	const char *when;
	int pid, uid;

	if (json_unpack_ex(stored, why, JSON_STRICT, "{s:I, s:o, s:o, s:{s:i, s:i, s:s}}", "version", &version,
			   "config", &document, "previous", &previous, "author", "pid", &pid, "uid", &uid, "when",
			   &when) != 0 ||
	    !json_is_object(document) || version < 0)
		return -EINVAL;
	take(config, version, pid, uid, when, json_incref(document));
	json_decref(config->previous);
	config->previous = json_is_object(previous) ? json_incref(previous) : NULL;
	return 0;
}

static int take_patch(struct config *config, json_t *stored)
{
	json_t *patch, *merged;
	json_int_t version;
	const char *when;
	int pid, uid;

	if (json_unpack(stored, "{s:I, s:o, s:{s:i, s:i, s:s}!}", "version", &version, "patch", &patch, "author", "pid",
			&pid, "uid", &uid, "when", &when) != 0 ||
	    (uint64_t)version != config->version + 1)
		return -EINVAL;
	merged = patch_merge(config->document, patch);
	if (!json_is_object(merged)) {
		json_decref(merged);
		return -EINVAL;
	}
	take(config, version, pid, uid, when, merged);
	return 0;
}

/* What stands behind the last end of a line was never made. */
static size_t complete(const char *text, size_t size)
{
	const char *end = memrchr(text, '\n', size);

	return end ? (size_t)(end - text) + 1 : 0;
}

static void read_patches(struct config *config, const char *text, size_t size)
{
	while (config->store.size < size) {
		const char *line = text + config->store.size;
		size_t length = (size_t)((const char *)memchr(line, '\n', size - config->store.size) - line) + 1;
		json_t *stored = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
		int rc = take_patch(config, stored);

		json_decref(stored);
		if (rc != 0) {
			log_warning("%s: what stands behind version %" PRIu64
				    " is no change that follows it, as after a loss of power; it is left out",
				    config->path, config->version);
			return;
		}
		config->store.size += length;
		config->store.patches++;
	}
}

static int read_text(struct config *config, const char *text, size_t size)
{
	json_error_t why;
	json_t *stored = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &why);
	int rc;

	if (stored == NULL) {
		log_error("%s: line %d: %s", config->path, why.line, why.text);
		return -EINVAL;
	}
	config->store.size = (size_t)why.position;
	rc = take_whole(config, stored, &why);
	json_decref(stored);
	if (rc != 0) {
		log_error("%s: not a configuration kept by this program: %s", config->path, why.text);
		return rc;
	}
	if (config->store.size < size && text[config->store.size] == '\n')
		config->store.size++;
	read_patches(config, text, complete(text, size));
	return 0;
}

int store_read(struct config *config)
{
	struct stat file;
	char *text;
	int rc;

	if (access(config->path, F_OK) != 0 && errno == ENOENT)
		return -ENOENT;
	text = read_whole(config->path, &file);
	if (text == NULL) {
		log_error("%s: %s", config->path, strerror(errno));
		return -EINVAL;
	}
	if (file.st_size == 0) {
		log_warning("%s is empty, as after a loss of power; the switch starts with nothing", config->path);
		free(text);
		return -ENOENT;
	}
	rc = read_text(config, text, (size_t)file.st_size);
	free(text);
	note_left(config, &file, config->store.size);
	return rc;
}

/* ------- writing ------- */

static void beside(const struct config *config, char *path, size_t size)
{
	snprintf(path, size, "%s.new", config->path);
}

static json_t *record(const struct config *config, const char *key, json_t *value)
{
	return json_pack("{s:I, s:{s:i, s:i, s:s}, s:O}", "version", (json_int_t)config->version, "author", "pid",
			 config->author.pid, "uid", (int)config->author.uid, "when", config->author.when, key, value);
}

/* Beside the file, and on disk before it takes the other's place, or a loss of power might leave neither. */
static int prepare_whole(struct config *config)
{
	json_t *whole = record(config, "config", config->document);
	char path[PATH_MAX];
	int fd, rc = -1;
	FILE *file;

	json_object_set_new(whole, "previous", config->previous ? json_incref(config->previous) : json_null());
	beside(config, path, sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	file = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (file != NULL) {
		rc = json_dumpf(whole, file, JSON_COMPACT) == 0 && fputc('\n', file) != EOF && fflush(file) == 0 &&
				     fdatasync(fd) == 0
			     ? 0
			     : -1;
		config->store.prepared = (size_t)ftello(file);
		if (fclose(file) != 0)
			rc = -1;
	} else if (fd >= 0) {
		close(fd);
	}
	if (rc != 0 && fd >= 0) {
		int error = errno;

		unlink(path);
		errno = error;
	}
	json_decref(whole);
	return rc;
}

/*
 * Behind what the file has, with a blank for the end of the line: to write over it takes no room on the disk, so it
 * does not fail.  Returns -1 where the file is not what this switch left, too.
 */
static int prepare_patch(struct config *config, json_t *patch)
{
	json_t *stored = record(config, "patch", patch);
	char *line = json_dumps(stored, JSON_COMPACT);
	size_t length = line ? strlen(line) : 0;
	int fd = open(config->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat now;

	json_decref(stored);
	if (line != NULL && fd >= 0 && fstat(fd, &now) == 0 && is_as_left(config, &now)) {
		line[length++] = ' ';
		if (pwrite(fd, line, length, (off_t)config->store.size) == (ssize_t)length) {
			config->store.line = fd;
			config->store.prepared = config->store.size + length;
			free(line);
			return 0;
		}
		if (ftruncate(fd, (off_t)config->store.size) != 0)
			log_warning("%s: %s", config->path, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	free(line);
	return -1;
}

int store_prepare(struct config *config, json_t *patch, struct control_error *error)
{
	config->store.line = -1;
	if (config->path == NULL || (patch != NULL && config->store.size > 0 && prepare_patch(config, patch) == 0) ||
	    prepare_whole(config) == 0)
		return 0;
	control_fail(error, CONTROL_FAILED, "the configuration cannot be kept in %s.new: %s", config->path,
		     strerror(errno));
	return -1;
}

static void commit_patch(struct config *config)
{
	struct stat file;

	if (pwrite(config->store.line, "\n", 1, (off_t)config->store.prepared - 1) != 1 ||
	    fstat(config->store.line, &file) != 0) {
		log_error("%s: %s; the configuration holds, and is not kept", config->path, strerror(errno));
		config->store.size = 0; /* what comes next must not stand on the same line */
	} else {
		note_left(config, &file, config->store.prepared);
	}
	close(config->store.line);
	config->store.line = -1;
	config->store.patches++;
	config->store.patched = true;
}

static void commit_whole(struct config *config)
{
	char path[PATH_MAX];
	struct stat file;

	beside(config, path, sizeof(path));
	if (rename(path, config->path) != 0 || stat(config->path, &file) != 0) {
		log_error("%s: %s; the configuration holds, and is not kept", config->path, strerror(errno));
		config->store.size = 0;
	} else {
		note_left(config, &file, config->store.prepared);
	}
	config->store.patches = 0;
	config->store.patched = false;
	config->store.renamed = true;
}

void store_commit(struct config *config)
{
	if (config->path == NULL)
		return;
	if (config->store.line >= 0)
		commit_patch(config);
	else
		commit_whole(config);
}

void store_abandon(struct config *config)
{
	char path[PATH_MAX];

	if (config->path == NULL)
		return;
	if (config->store.line >= 0) {
		/* If it cannot be, the next change finds the file longer than it was left, and writes it whole. */
		if (ftruncate(config->store.line, (off_t)config->store.size) != 0)
			log_warning("%s: %s", config->path, strerror(errno));
		close(config->store.line);
		return;
	}
	beside(config, path, sizeof(path));
	unlink(path);
}

static void write_again(struct config *config)
{
	config->store.line = -1;
	config->store.patches = 0; /* a disk that is full is asked again after as many */
	if (prepare_whole(config) == 0)
		store_commit(config);
	else
		log_warning("%s.new: %s; patches go on behind each other", config->path, strerror(errno));
}

static void sync_it(const char *path, int flags, int (*sync)(int fd))
{
	int fd = open(path, flags | O_CLOEXEC);

	if (fd < 0 || sync(fd) != 0)
		log_warning("%s: %s; the configuration is not on disk", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

void store_sync(struct config *config)
{
	char folder[PATH_MAX];

	if (config->store.patches >= PATCHES_MOST)
		write_again(config);
	if (config->store.patched)
		sync_it(config->path, O_WRONLY, fdatasync);
	if (config->store.renamed) {
		/* The folder: which of the two files has the name. */
		snprintf(folder, sizeof(folder), "%s", config->path);
		sync_it(dirname(folder), O_RDONLY | O_DIRECTORY, fsync);
	}
	config->store.patched = config->store.renamed = false;
}
