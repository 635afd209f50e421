/* SPDX-License-Identifier: Apache-2.0
 *
 * The file that keeps the configuration, so that a switch that is started again after any end is what it was.  It is
 * replaced whole, and is never half of one and half of another: what takes its place is on disk before.  That it has
 * taken its place is on disk within a second: only after the machine itself has failed, when nothing is left to be
 * taken up, may the file be the one of a second before.
 */
#ifndef TAILRACE_SWITCH_STORE_H
#define TAILRACE_SWITCH_STORE_H

#include "switch/config.h"

/* Read version, configuration, what came before it and who made it.  Returns 0; -ENOENT; another -errno, logged. */
int store_read(struct config *config);

/*
 * Write it beside the file, `previous` being the document before as a text or NULL.  Fills in `config->text`.
 * Returns 0, or -1 after filling in the error.
 */
int store_prepare(struct config *config, const char *previous, struct control_error *error);

/* Put what was prepared in the file's place; or throw it away. */
void store_commit(struct config *config);
void store_abandon(struct config *config);

/* Have it on disk. */
void store_settle(struct config *config);

#endif
