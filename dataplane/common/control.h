/* SPDX-License-Identifier: Apache-2.0
 *
 * The control socket: JSON-RPC 2.0 over a Unix stream socket, one JSON text for each line, both ways.
 * Owns the socket's file, which goes when the server closes.  One thread serves; methods run in it, one
 * at a time, so that two callers never interleave.  Memory is bounded: callers and the length of a line are.
 * Source: https://www.jsonrpc.org/specification (batches are not taken).
 */
#ifndef TAILRACE_COMMON_CONTROL_H
#define TAILRACE_COMMON_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum {
	CONTROL_PARSE_ERROR = -32700,
	CONTROL_INVALID_REQUEST = -32600,
	CONTROL_METHOD_NOT_FOUND = -32601,
	CONTROL_INVALID_PARAMS = -32602,
	CONTROL_FAILED = -32000,   /* the thing was asked rightly and could not be done */
	CONTROL_UNKNOWN = -32001,  /* no port, chain, ... of this name */
	CONTROL_IN_USE = -32002,   /* the name, path or device is taken */
	CONTROL_CONFLICT = -32003, /* somebody else has changed it first */
};

struct control_error {
	int code;
	char message[512];
};

/*
 * A method gets its params (an object, never NULL, with no keys but those that it knows) and returns a new reference as
 * the result, or NULL after control_fail().
 */
typedef json_t *(*control_method_fn)(void *context, json_t *params, struct control_error *error);

struct control_method {
	const char *name;
	control_method_fn call;
	const char *const *params; /* the keys that it knows, ending with NULL; NULL: it looks at them itself */
};

#define CONTROL_PARAMS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CONTROL_NO_PARAMS   ((const char *const[]){NULL})

/* Fill in the error; returns NULL so that a method can end with `return control_fail(...)`. */
__attribute__((format(printf, 3, 4))) json_t *control_fail(struct control_error *error, int code, const char *format,
							   ...);

/*
 * Unpack params as json_unpack() does, refusing keys that the format does not name.
 * Returns 0, or -1 after filling in the error with the key at fault.
 */
int control_unpack(json_t *params, struct control_error *error, const char *format, ...);

struct control;

/*
 * Listen at `path` with mode 0600.  A socket file that nobody listens on is replaced.
 * `methods` must outlive the server.  Returns NULL after logging what failed and what to do.
 */
struct control *control_open(const char *path, const struct control_method *methods, size_t nb_methods, void *context);

/*
 * Have `call` called, in the serving thread and between two methods, whenever `fd` is readable; it reads what is there.
 * Before control_serve().  Returns 0 or -ENOSPC.
 */
int control_on_input(struct control *control, int fd, void (*call)(void *context), void *context);

/* For a method: who calls it. */
struct control_caller {
	int pid;
	unsigned uid;
};
struct control_caller control_caller(const struct control *control);

/* For a method: its caller is sent, from now on and after the answer, what control_notify() sends. */
void control_listen(struct control *control);

/* Does anybody listen? */
bool control_is_heard(const struct control *control);

/*
 * Send a notification to all who listen; takes the reference to its params.  Nobody is waited for: a listener that has
 * left so much unread that there is no room is dropped, and learns by that that it has missed something.
 */
void control_notify(struct control *control, const char *method, json_t *params);

/* Serve until `stop_fd` becomes readable, as the user that this process is when it is called.  Returns 0, or -errno. */
int control_serve(struct control *control, int stop_fd);

/* Close all connections and remove the socket's file. */
void control_close(struct control *control);

#endif
