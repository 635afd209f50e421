/* SPDX-License-Identifier: Apache-2.0
 *
 * The file that keeps the configuration, so that a switch that is started again after any end is what it was.  First
 * stands a whole configuration with the one before it; behind it, a line for each patch made since.  A patch costs
 * what it says, and not what there is.
 *
 * Whatever moment the switch ends at, the file says what held.  A whole configuration takes the file's place when it is
 * on disk.  A patch is written before it is made, and counts when it was: its line ends.  Both are on disk within a
 * second: only after the machine itself has failed, when nothing is left to be taken up, may the file be the one of a
 * second before.
 */
#ifndef TAILRACE_SWITCH_STORE_H
#define TAILRACE_SWITCH_STORE_H

#include "switch/config.h"

/* Read version, configuration, what came before it and who made it.  Returns 0; -ENOENT; another -errno, logged. */
int store_read(struct config *config);

/*
 * Write what is going to hold, so that a disk that is full refuses it: as the patch that makes `config->document` of
 * `config->previous`, or whole if `patch` is NULL.  `config->store` is as the store left it with the version before.
 * Returns 0, or -1 after filling in the error, and nothing is left to do.
 */
int store_prepare(struct config *config, json_t *patch, struct control_error *error);

/* Have what was prepared count; or throw it away. */
void store_commit(struct config *config);
void store_abandon(struct config *config);

/* Have it on disk, and write it whole where patches have become many: for times when nobody waits. */
void store_sync(struct config *config);

#endif
