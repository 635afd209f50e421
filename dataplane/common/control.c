/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "accept.h"
#include "control.h"
#include "log.h"

enum {
	CONTROL_CALLERS = 32,
	CONTROL_LINE = 4 << 20,	     /* bytes of one request: room for a configuration of thousands of chains */
	CONTROL_SEND_TIMEOUT = 2000, /* ms that a caller may leave its answer unread */
	CONTROL_INPUTS = 8,	     /* descriptors of others */
};

struct caller {
	int fd;
	char *line;
	size_t used, size;
	bool listens; /* is sent notifications */
};

struct control {
	int listener, spare;
	char path[108];
	const struct control_method *methods;
	size_t nb_methods;
	void *context;
	struct caller callers[CONTROL_CALLERS];
	struct caller *serving; /* whose request it is */
	unsigned nb_inputs;
	struct input {
		int fd;
		void (*call)(void *context);
		void *context;
	} inputs[CONTROL_INPUTS];
};

/* Put question marks for the parts of characters that the cutting of a text has left: JSON cannot have them. */
static void mend_characters(char *text)
{
	while (*text != '\0') {
		const uint8_t first = (uint8_t)*text;
		unsigned length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4, whole = 1;

		while (whole < length && ((uint8_t)text[whole] & 0xc0) == 0x80)
			whole++;
		if (whole < length || (first & 0xc0) == 0x80)
			memset(text, '?', whole);
		text += whole;
	}
}

json_t *control_fail(struct control_error *error, int code, const char *format, ...)
{
	va_list arguments;

	error->code = code;
	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	mend_characters(error->message);
	return NULL;
}

int control_unpack(json_t *params, struct control_error *error, const char *format, ...)
{
	json_error_t why;
	va_list arguments;
	int rc;

	va_start(arguments, format);
	rc = json_vunpack_ex(params, &why, JSON_STRICT, format, arguments);
	va_end(arguments);
	if (rc != 0)
		control_fail(error, CONTROL_INVALID_PARAMS, "params: %s", why.text);
	return rc;
}

/* Bind and listen; a stale file (nobody answers) is removed first.  Returns a descriptor or -errno. */
static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, probe, rc;
	mode_t mask;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (probe >= 0) {
		rc = connect(probe, (struct sockaddr *)&address, sizeof(address));
		if (rc != 0 && errno == ECONNREFUSED)
			unlink(path);
		close(probe);
	}
	mask = umask(0177);
	rc = bind(fd, (struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (rc != 0 || listen(fd, CONTROL_CALLERS) != 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

struct control *control_open(const char *path, const struct control_method *methods, size_t nb_methods, void *context)
{
	struct control *control;
	int fd = listen_at(path);

	if (fd == -ENAMETOOLONG) {
		log_error("control socket %s: the path is longer than %zu bytes; use a shorter one", path,
			  sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
		return NULL;
	}
	if (fd == -EADDRINUSE) {
		log_error("control socket %s is in use; stop the program that listens there or use another path", path);
		return NULL;
	}
	if (fd < 0) {
		log_error("control socket %s: %s", path, strerror(-fd));
		return NULL;
	}
	control = calloc(1, sizeof(*control));
	if (control == NULL) {
		close(fd);
		return NULL;
	}
	control->listener = fd;
	control->spare = accept_spare();
	strcpy(control->path, path);
	control->methods = methods;
	control->nb_methods = nb_methods;
	control->context = context;
	for (int i = 0; i < CONTROL_CALLERS; i++)
		control->callers[i].fd = -1;
	return control;
}

static void caller_close(struct caller *caller)
{
	close(caller->fd);
	free(caller->line);
	*caller = (struct caller){.fd = -1};
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Send all of the text, waiting for a slow reader for a bounded time only, however often it takes a little. */
static bool send_all(int fd, const char *text, size_t length)
{
	const int64_t deadline = now_ms() + CONTROL_SEND_TIMEOUT;

	while (length > 0) {
		ssize_t sent = send(fd, text, length, MSG_NOSIGNAL);

		if (sent < 0 && errno == EAGAIN) {
			struct pollfd ready = {.fd = fd, .events = POLLOUT};
			int64_t left = deadline - now_ms();

			if (left <= 0 || poll(&ready, 1, (int)left) != 1)
				return false;
			continue;
		}
		if (sent < 0)
			return false;
		text += sent;
		length -= sent;
	}
	return true;
}

static bool answer(struct caller *caller, json_t *id, json_t *result, const struct control_error *error)
{
	json_t *response;
	size_t length;
	char *line;
	bool sent;

	if (result != NULL)
		response = json_pack("{s:s, s:O, s:O}", "jsonrpc", "2.0", "result", result, "id", id);
	else
		response = json_pack("{s:s, s:{s:i, s:s}, s:O}", "jsonrpc", "2.0", "error", "code", error->code,
				     "message", error->message, "id", id);
	line = json_dumps(response, JSON_COMPACT);
	json_decref(response);
	if (line == NULL)
		return false;
	/* In one piece: a caller on this core is woken by the first one, and then others may have the core. */
	length = strlen(line);
	line[length] = '\n'; /* in place of its end, which is not sent */
	sent = send_all(caller->fd, line, length + 1);
	free(line);
	return sent;
}

/* Has the method no other params than those that it knows? */
static bool check_params(const struct control_method *method, json_t *params, struct control_error *error)
{
	const char *key;
	json_t *value;

	json_object_foreach (params, key, value) {
		const char *const *known = method->params;

		while (*known != NULL && strcmp(*known, key) != 0)
			known++;
		if (*known == NULL) {
			control_fail(error, CONTROL_INVALID_PARAMS, "%.64s: %s knows no such param", key, method->name);
			return false;
		}
	}
	return true;
}

static json_t *call(struct control *control, const char *name, json_t *params, struct control_error *error)
{
	for (size_t i = 0; i < control->nb_methods; i++) {
		const struct control_method *method = &control->methods[i];

		if (strcmp(method->name, name) != 0)
			continue;
		if (method->params != NULL && !check_params(method, params, error))
			return NULL;
		return method->call(control->context, params, error);
	}
	return control_fail(error, CONTROL_METHOD_NOT_FOUND, "no method '%s'", name);
}

/* Handle one line.  Returns false when the caller is to be dropped. */
static bool handle(struct control *control, struct caller *caller, const char *line, size_t length)
{
	struct control_error error = {0};
	json_t *request, *result = NULL, *id, *params, *empty = json_object();
	json_error_t why;
	const char *name;
	bool valid, keep = true;

	request = json_loadb(line, length, JSON_REJECT_DUPLICATES, &why);
	id = json_object_get(request, "id");
	params = json_object_get(request, "params");
	name = json_string_value(json_object_get(request, "method"));
	valid = name != NULL && (params == NULL || json_is_object(params));
	if (request == NULL)
		control_fail(&error, CONTROL_PARSE_ERROR, "column %d: %s", why.column, why.text);
	else if (!valid)
		control_fail(&error, CONTROL_INVALID_REQUEST,
			     "a request is an object with a string 'method' and, if any, an object 'params'");
	else {
		control->serving = caller;
		result = call(control, name, params ? params : empty, &error);
		control->serving = NULL;
	}

	/* A request without an id is a notification: it is not answered, unless it was no request at all. */
	if (id != NULL || !valid) {
		json_t *null = json_null();

		keep = answer(caller, id ? id : null, result, &error);
	}
	json_decref(result);
	json_decref(request);
	json_decref(empty);
	return keep;
}

/* For what callers can cause to be logged. */
static struct log_budget refusals;

static void caller_read(struct control *control, struct caller *caller)
{
	char *end;
	ssize_t got;

	if (caller->used == caller->size) {
		size_t size = caller->size ? caller->size * 2 : 4096;
		char *line = size <= CONTROL_LINE ? realloc(caller->line, size) : NULL;

		if (line == NULL) {
			log_within(&refusals, LOG_LEVEL_WARNING,
				   "control: a request longer than %d bytes; the caller is dropped", CONTROL_LINE);
			caller_close(caller);
			return;
		}
		caller->line = line;
		caller->size = size;
	}
	got = recv(caller->fd, caller->line + caller->used, caller->size - caller->used, 0);
	if (got < 0 && errno == EAGAIN)
		return;
	if (got <= 0) {
		caller_close(caller);
		return;
	}
	caller->used += got;
	while ((end = memchr(caller->line, '\n', caller->used)) != NULL) {
		size_t length = end - caller->line + 1;

		if (!handle(control, caller, caller->line, length - 1))
			caller_close(caller);
		if (caller->fd < 0) /* or it was dropped as a listener that does not read */
			return;
		caller->used -= length;
		memmove(caller->line, caller->line + length, caller->used);
	}
}

static void caller_accept(struct control *control)
{
	int fd = accept_next(control->listener, &control->spare);

	if (fd == -EMFILE || fd == -ENFILE)
		log_within(&refusals, LOG_LEVEL_WARNING,
			   "control: no file descriptor is left for a caller; it is turned away");
	if (fd < 0)
		return;
	for (int i = 0; i < CONTROL_CALLERS; i++)
		if (control->callers[i].fd < 0) {
			control->callers[i].fd = fd;
			return;
		}
	log_within(&refusals, LOG_LEVEL_WARNING, "control: more than %d callers at once; one is turned away",
		   CONTROL_CALLERS);
	close(fd);
}

int control_on_input(struct control *control, int fd, void (*call)(void *context), void *context)
{
	if (control->nb_inputs == CONTROL_INPUTS)
		return -ENOSPC;
	control->inputs[control->nb_inputs++] = (struct input){fd, call, context};
	return 0;
}

struct control_caller control_caller(const struct control *control)
{
	struct ucred peer = {.pid = -1};
	socklen_t size = sizeof(peer);

	if (control->serving != NULL)
		getsockopt(control->serving->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	return (struct control_caller){peer.pid, peer.uid};
}

void control_listen(struct control *control)
{
	if (control->serving != NULL)
		control->serving->listens = true;
}

bool control_is_heard(const struct control *control)
{
	for (int i = 0; i < CONTROL_CALLERS; i++)
		if (control->callers[i].fd >= 0 && control->callers[i].listens)
			return true;
	return false;
}

void control_notify(struct control *control, const char *method, json_t *params)
{
	json_t *message = json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params);
	char *line = json_dumps(message, JSON_COMPACT);
	const size_t length = line != NULL ? strlen(line) : 0;

	json_decref(message);
	if (line == NULL)
		return;
	line[length] = '\n';
	for (int i = 0; i < CONTROL_CALLERS; i++) {
		struct caller *caller = &control->callers[i];

		if (caller->fd < 0 || !caller->listens ||
		    send(caller->fd, line, length + 1, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length + 1)
			continue;
		log_within(&refusals, LOG_LEVEL_WARNING, "control: a listener reads too slowly and is dropped");
		caller_close(caller);
	}
	free(line);
}

int control_serve(struct control *control, int stop_fd)
{
	struct pollfd fds[CONTROL_CALLERS + 2 + CONTROL_INPUTS], *inputs = &fds[CONTROL_CALLERS + 2];

	/* SO_PEERCRED tells callers the user of the last listen(), and this process may be another user by now. */
	if (listen(control->listener, CONTROL_CALLERS) != 0)
		return -errno;
	for (;;) {
		fds[0] = (struct pollfd){.fd = stop_fd, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = control->listener, .events = POLLIN};
		for (int i = 0; i < CONTROL_CALLERS; i++)
			fds[i + 2] = (struct pollfd){.fd = control->callers[i].fd, .events = POLLIN};
		for (unsigned i = 0; i < control->nb_inputs; i++)
			inputs[i] = (struct pollfd){.fd = control->inputs[i].fd, .events = POLLIN};
		if (poll(fds, CONTROL_CALLERS + 2 + control->nb_inputs, -1) < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (fds[0].revents)
			return 0;
		for (unsigned i = 0; i < control->nb_inputs; i++)
			if (inputs[i].revents)
				control->inputs[i].call(control->inputs[i].context);
		for (int i = 0; i < CONTROL_CALLERS; i++)
			if (fds[i + 2].revents && control->callers[i].fd >= 0)
				caller_read(control, &control->callers[i]);
		if (fds[1].revents)
			caller_accept(control);
	}
}

void control_close(struct control *control)
{
	if (control == NULL)
		return;
	for (int i = 0; i < CONTROL_CALLERS; i++)
		if (control->callers[i].fd >= 0)
			caller_close(&control->callers[i]);
	close(control->listener);
	if (control->spare >= 0)
		close(control->spare);
	unlink(control->path);
	free(control);
}
