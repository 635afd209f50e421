/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rte_common.h>

#include "common/log.h"
#include "switch/filter.h"
#include "switch/privileges.h"

enum {
	THREAD_WAIT_MS = 2000, /* that a thread may take to answer; they all do within microseconds */
	THREADS = 1024,	       /* of this program, at most */
};

/* A number that is the whole text, or -1. */
static long number(const char *text, const char *end)
{
	char *stop;
	long value = strtol(text, &stop, 10);

	return stop != text && stop == end && value >= 0 && value < UINT32_MAX ? value : -1;
}

int privileges_user(struct privileges *privileges, const char *text)
{
	const char *colon = strchrnul(text, ':');
	long user = number(text, colon);
	const struct passwd *entry;

	if (user >= 0) {
		long group = *colon == ':' ? number(colon + 1, colon + strlen(colon)) : user;

		if (group < 0) {
			log_error("--user %s: the group after the colon is no number", text);
			return -EINVAL;
		}
		privileges->user = user;
		privileges->group = group;
	} else {
		gid_t groups[PRIVILEGES_GROUPS];
		int count = PRIVILEGES_GROUPS;

		entry = getpwnam(text);
		if (entry == NULL) {
			log_error("--user %s: no such user; 'useradd --system %s' makes one, or give a number", text,
				  text);
			return -EINVAL;
		}
		privileges->user = entry->pw_uid;
		privileges->group = entry->pw_gid;
		if (getgrouplist(text, entry->pw_gid, groups, &count) < 0)
			count = PRIVILEGES_GROUPS;
		for (int i = 0; i < count && privileges->nb_groups < PRIVILEGES_GROUPS; i++)
			privileges->groups[privileges->nb_groups++] = groups[i];
	}
	if (privileges->user == 0) {
		log_error("--user %s: that is root; name another user", text);
		return -EINVAL;
	}
	privileges->change_user = true;
	return 0;
}

int privileges_groups(struct privileges *privileges, const char *text)
{
	while (*text != '\0') {
		const char *end = strchrnul(text, ',');
		char *name = strndup(text, end - text);
		long group = name != NULL ? number(name, name + strlen(name)) : -1;
		const struct group *entry = name != NULL && group < 0 ? getgrnam(name) : NULL;

		if (group < 0 && entry == NULL) {
			log_error("--groups: no group '%s'", name ? name : "");
			free(name);
			return -EINVAL;
		}
		free(name);
		if (privileges->nb_groups == PRIVILEGES_GROUPS) {
			log_error("--groups: at most %d groups", PRIVILEGES_GROUPS);
			return -EINVAL;
		}
		privileges->groups[privileges->nb_groups++] = entry != NULL ? entry->gr_gid : (gid_t)group;
		text = *end == ',' ? end + 1 : end;
	}
	return 0;
}

int privileges_keep(struct privileges *privileges, const char *text)
{
	/* What a device may need (common/device_uri.c); no other has a use here. */
	static const struct {
		const char *name;
		unsigned capability;
	} known[] = {{"net_raw", CAP_NET_RAW},	   {"net_admin", CAP_NET_ADMIN}, {"sys_admin", CAP_SYS_ADMIN},
		     {"sys_rawio", CAP_SYS_RAWIO}, {"ipc_lock", CAP_IPC_LOCK},	 {"dac_override", CAP_DAC_OVERRIDE}};

	while (*text != '\0') {
		const size_t length = strcspn(text, ",");
		unsigned i = 0;

		while (i < RTE_DIM(known) &&
		       (strlen(known[i].name) != length || strncmp(known[i].name, text, length) != 0))
			i++;
		if (i == RTE_DIM(known)) {
			log_error("--keep %.*s: expected net_raw, net_admin, sys_admin, sys_rawio, ipc_lock or "
				  "dac_override",
				  (int)length, text);
			return -EINVAL;
		}
		privileges->keep |= 1ULL << known[i].capability;
		text += length + (text[length] == ',');
	}
	return 0;
}

/* ------- in every thread ------- */

/*
 * Capabilities belong to a thread, and only the thread itself can give them up.  Each is interrupted by a signal and
 * does so in the handler: `step` says what, `told` and `failed` have its answer.
 */
static enum { STEP_BOUND, STEP_DROP } step;
static uint64_t step_keep;
static atomic_int failed;

/* Threads that have been told, and which of them have answered. */
static struct {
	pid_t threads[THREADS];
	atomic_bool answered[THREADS];
	atomic_uint count;
} told;

static int set_capabilities(uint64_t set)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {
		{.effective = (uint32_t)set, .permitted = (uint32_t)set},
		{.effective = set >> 32, .permitted = set >> 32},
	};

	return syscall(SYS_capset, &header, data) == 0 ? 0 : -errno;
}

static uint64_t permitted(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	syscall(SYS_capget, &header, data);
	return data[0].permitted | (uint64_t)data[1].permitted << 32;
}

static int take_step(void)
{
	if (step == STEP_DROP) {
		prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
		return set_capabilities(step_keep & permitted());
	}
	/* Only with CAP_SETPCAP; without it there is nothing to be gained anyway. */
	for (unsigned capability = 0; capability <= CAP_LAST_CAP; capability++)
		if (!(step_keep >> capability & 1))
			prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
	/* Or they go when the user changes. */
	return step_keep == 0 || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 ? 0 : -errno;
}

static void on_signal(int signal_number)
{
	const int saved = errno;
	const pid_t self = gettid();
	int rc = take_step();

	if (rc != 0)
		atomic_store(&failed, rc);
	for (unsigned i = 0; i < atomic_load(&told.count); i++)
		if (told.threads[i] == self)
			atomic_store(&told.answered[i], true);
	errno = saved;
}

static bool is_told(pid_t thread)
{
	for (unsigned i = 0; i < atomic_load(&told.count); i++)
		if (told.threads[i] == thread)
			return true;
	return false;
}

/* Returns 0 or -errno: -ESRCH if the thread has ended. */
static int tell(pid_t thread, int signal_number)
{
	const unsigned number = atomic_load(&told.count);

	if (number == THREADS)
		return -E2BIG;
	told.threads[number] = thread;
	atomic_store(&told.answered[number], false);
	atomic_store(&told.count, number + 1);
	return syscall(SYS_tgkill, getpid(), thread, signal_number) == 0 ? 0 : -errno;
}

/* One that is about to end may do so without an answer: that is one, too. */
static bool all_answered(void)
{
	for (unsigned i = 0; i < atomic_load(&told.count); i++)
		if (!atomic_load(&told.answered[i]) && syscall(SYS_tgkill, getpid(), told.threads[i], 0) == 0)
			return false;
	return true;
}

/* Signal the threads that were not told before, and wait for their answers.  Returns how many, or -errno. */
static int signal_new_threads(int signal_number)
{
	DIR *folder = opendir("/proc/self/task");
	const unsigned before = atomic_load(&told.count);
	const pid_t self = gettid();
	struct dirent *entry;
	int rc = 0;

	if (folder == NULL)
		return -errno;
	while (rc == 0 && (entry = readdir(folder)) != NULL) {
		pid_t thread = atoi(entry->d_name);

		if (thread <= 0 || thread == self || is_told(thread))
			continue;
		rc = tell(thread, signal_number);
		if (rc == -ESRCH)
			rc = 0;
	}
	closedir(folder);
	for (int waited = 0; !all_answered() && waited < THREAD_WAIT_MS; waited++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	if (rc == 0 && !all_answered())
		rc = -ETIMEDOUT;
	return rc == 0 ? (int)(atomic_load(&told.count) - before) : rc;
}

/*
 * A thread has what the one had that made it: one that was made meanwhile, by a thread that was not told yet, is told
 * in another pass.  When a pass finds none, all have been.
 */
static int signal_threads(int signal_number)
{
	int rc;

	atomic_store(&told.count, 0);
	do {
		rc = signal_new_threads(signal_number);
	} while (rc > 0);
	return rc;
}

int privileges_signal(void)
{
	return SIGRTMIN + 4;
}

/* Take a step in this and all other threads.  Returns 0 or -errno. */
static int in_every_thread(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	const int signal_number = privileges_signal();
	struct sigaction before;
	int rc;

	atomic_store(&failed, 0);
	if (sigaction(signal_number, &action, &before) != 0)
		return -errno;
	rc = signal_threads(signal_number);
	if (rc == 0)
		rc = atomic_load(&failed);
	if (rc == 0)
		rc = take_step();
	sigaction(signal_number, &before, NULL);
	return rc;
}

/* ------- everything ------- */

/* Without another user: the groups that sockets may be given to, beside those that the process has. */
static int add_groups(const struct privileges *privileges)
{
	gid_t groups[2 * PRIVILEGES_GROUPS];
	int count = 0;

	if (privileges->nb_groups == 0)
		return 0;
	count = getgroups(PRIVILEGES_GROUPS, groups);
	if (count < 0)
		return -errno;
	memcpy(groups + count, privileges->groups, privileges->nb_groups * sizeof(groups[0]));
	return setgroups(count + privileges->nb_groups, groups) == 0 ? 0 : -errno;
}

/* The C library makes these calls in every thread. */
static int change_user(const struct privileges *privileges)
{
	const pid_t parent = getppid();
	int death = 0;

	if (!privileges->change_user)
		return add_groups(privileges);
	prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
	if (setgroups(privileges->nb_groups, privileges->groups) != 0 ||
	    setresgid(privileges->group, privileges->group, privileges->group) != 0 ||
	    setresuid(privileges->user, privileges->user, privileges->user) != 0)
		return -errno;
	/*
	 * The sockets of this user's are for others, who may be root without capabilities, as a function in a sandbox
	 * is. Who may connect is who may enter the sockets' folder, unless the port's configuration gives them a mode.
	 */
	umask(0111);
	/* Who started us may want us to end with it, which Linux forgets when the user changes. */
	if (death != 0 && prctl(PR_SET_PDEATHSIG, death, 0, 0, 0) == 0 && getppid() != parent)
		raise(death);
	return 0;
}

int privileges_drop(const struct privileges *privileges)
{
	const char *failing = "bounding capabilities";
	int rc;

	/* The C library loads it when a thread is cancelled, as DPDK does at the end; no code can be loaded then. */
	dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_NODELETE);
	step_keep = privileges->keep;
	step = STEP_BOUND;
	rc = in_every_thread();
	if (rc == 0) {
		failing = "becoming another user";
		rc = change_user(privileges);
	}
	if (rc == 0) {
		failing = "dropping capabilities";
		step = STEP_DROP;
		rc = in_every_thread();
	}
	if (rc == 0) {
		failing = "the filter of system calls";
		rc = filter_install(privileges->keep);
	}
	if (rc != 0)
		log_error("%s: %s", failing, strerror(-rc));
	return rc;
}
