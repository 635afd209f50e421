/* SPDX-License-Identifier: Apache-2.0
 *
 * The switch's one configuration: a JSON document with a version, what came before it, and who changed it last.  A
 * change is a whole new document: checked, prepared and swapped whole, or refused whole.  The control thread's.
 */
#ifndef TAILRACE_SWITCH_CONFIG_H
#define TAILRACE_SWITCH_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#include "common/control.h"

struct switch_state;

/* The file; see store.h. */
struct store {
	size_t size;	 /* bytes that count; 0: no file yet */
	size_t prepared; /* bytes that will */
	dev_t device;	 /* what was left there, and when: another's file is not written behind */
	ino_t inode;
	struct timespec changed;
	unsigned patches;      /* behind the whole configuration */
	int line;	       /* of the patch that is being made: the file, or -1 */
	bool patched, renamed; /* since it was certainly on disk */
};

struct config {
	uint64_t version;
	json_t *document, *previous; /* previous: what rolling back restores, or NULL */
	struct {
		int pid;
		unsigned uid;
		char when[32];
	} author;	  /* of the version */
	const char *path; /* of the file that keeps it, or NULL */
	struct store store;
};

/*
 * Would a switch with so many workers and so much of DPDK's memory take the document in a file?  Returns 0, or -EINVAL
 * after printing why not.
 */
int config_check(FILE *file, unsigned nb_workers, size_t memory_mib);

/* Begin with nothing, which is a configuration too.  Returns 0, or -1 after logging. */
int config_open(struct switch_state *state);

/*
 * Make what the file keeps hold, if there is one, and keep every change in it from now on.  Returns 0, or -1 after
 * logging what is wrong with the file or cannot be made so.
 */
int config_restore(struct switch_state *state, const char *path);
void config_close(struct switch_state *state);

/* Methods of the control socket. */
json_t *config_get(void *context, json_t *params, struct control_error *error);
json_t *config_plan(void *context, json_t *params, struct control_error *error);
json_t *config_apply(void *context, json_t *params, struct control_error *error);
json_t *config_rollback(void *context, json_t *params, struct control_error *error);

#endif
