/* SPDX-License-Identifier: Apache-2.0
 *
 * The other end of a function's control socket (report.h), for where no other program can be that end: in a machine
 * (tailrace/functions/agent.py).
 */
#ifndef TAILRACE_FUNCTIONS_ASK_H
#define TAILRACE_FUNCTIONS_ASK_H

enum { ASK_SECONDS = 20 };

/*
 * Send the line that comes from standard input to the control socket at `path`, and write the line that comes back to
 * standard output.  Nobody is waited for longer than ASK_SECONDS at a time.  Returns the exit status: 0, or 1 after
 * logging.
 */
int ask(const char *path);

#endif
