/* SPDX-License-Identifier: Apache-2.0
 *
 * What the switch gives up before it meets its guests.  It starts with whatever opens its devices; once its first
 * configuration is applied it becomes a user of its own, without capabilities, unable to gain any, and with a filter
 * of system calls: what it needs to serve guests is let pass, what an intruder would want ends the process, and
 * anything else fails with EPERM, so that an unforeseen call of a library costs that call and not everybody's traffic.
 *
 * All of it holds for every thread, those of DPDK included, and cannot be undone.
 */
#ifndef TAILRACE_SWITCH_PRIVILEGES_H
#define TAILRACE_SWITCH_PRIVILEGES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PRIVILEGES_GROUPS = 16 };

struct privileges {
	bool change_user;
	uid_t user;
	gid_t group;
	unsigned nb_groups;
	gid_t groups[PRIVILEGES_GROUPS]; /* beside `group`; a socket can be given to any of them */
	uint64_t keep;			 /* capabilities (bits of linux/capability.h) that stay */
};

/*
 * Options: `--user NAME`, `--user UID` or `--user UID:GID`; `--groups NAME,GID,...`; `--keep net_raw,...`.
 * A name brings the groups that it is a member of.  Returns 0, or -EINVAL after logging what is wrong.
 */
int privileges_user(struct privileges *privileges, const char *text);
int privileges_groups(struct privileges *privileges, const char *text);
int privileges_keep(struct privileges *privileges, const char *text);

/* The signal by which every thread is reached; none may block it. */
int privileges_signal(void);

/* Give up everything else, in all threads.  Returns 0, or -errno after logging what failed. */
int privileges_drop(const struct privileges *privileges);

#endif
