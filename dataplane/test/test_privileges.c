/* SPDX-License-Identifier: Apache-2.0
 *
 * What a switch that runs can no longer do.  Each case is a process of its own, since nothing of it can be undone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "switch/privileges.h"
#include "test/cmocka_all.h"

enum { HELD = 77 }; /* exit status: what was expected is so */

/*
 * A thread that makes another, all of whose capabilities that has, once the threads have been looked through: only then
 * does it let through what they were told.
 */
static struct {
	atomic_bool wanted, made;
} late;

int __real_closedir(DIR *folder);
int __wrap_closedir(DIR *folder);

int __wrap_closedir(DIR *folder)
{
	if (atomic_exchange(&late.wanted, false))
		while (!atomic_load(&late.made))
			sched_yield();
	return __real_closedir(folder);
}

static void set_signals(int how)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(how, &all, NULL);
}

static void *is_told(void *argument)
{
	set_signals(SIG_UNBLOCK);
	for (;;)
		pause();
	return NULL;
}

static void *makes_another(void *argument)
{
	pthread_t thread;

	while (atomic_load(&late.wanted))
		sched_yield();
	if (pthread_create(&thread, NULL, is_told, NULL) != 0)
		_exit(1);
	atomic_store(&late.made, true);
	return is_told(argument);
}

/* It is told, and ends without having heard it. */
static void *ends_meanwhile(void *argument)
{
	while (atomic_load(&late.wanted))
		sched_yield();
	atomic_store(&late.made, true);
	return NULL;
}

/* Does not end before the process does. */
static void *wait_for_ever(void *argument)
{
	for (;;)
		pause();
	return NULL;
}

/* Drop as the switch does, with another thread beside this one. */
static void drop(uint64_t keep)
{
	struct privileges privileges = {.keep = keep};
	pthread_t thread;

	log_open("test", LOG_LEVEL_ERROR);
	if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0)
		exit(1);
	if (geteuid() == 0 && privileges_user(&privileges, "64123:64124") != 0)
		exit(2);
	if (privileges_drop(&privileges) != 0)
		exit(3);
}

/* Run a case in a process; returns its wait status. */
static int run(void (*test_case)(void))
{
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		test_case();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void assert_held(void (*test_case)(void))
{
	int status = run(test_case);

	if (!WIFEXITED(status) || WEXITSTATUS(status) != HELD)
		fail_msg("wait status %#x", status);
}

static void expect(bool holds)
{
	if (!holds)
		_exit(4);
}

/* The line of a thread's status that begins with `key`. */
static void read_status(const char *thread, const char *key, char *value, size_t size)
{
	char path[64], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", thread);
	file = fopen(path, "r");
	expect(file != NULL);
	value[0] = '\0';
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			snprintf(value, size, "%s", line + strlen(key));
	fclose(file);
}

static void check_threads(const char *capabilities)
{
	const bool root = geteuid() == 0;
	DIR *folder;
	struct dirent *entry;
	unsigned threads = 0;
	char value[128];

	drop(strtoull(capabilities, NULL, 16));
	folder = opendir("/proc/self/task");
	while ((entry = readdir(folder)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		threads++;
		for (const char **key = (const char *[]){"CapEff:\t", "CapPrm:\t", "CapBnd:\t", NULL}; *key; key++) {
			read_status(entry->d_name, *key, value, sizeof(value));
			expect(!root || strncmp(value, capabilities, 16) == 0);
		}
		read_status(entry->d_name, "Uid:\t", value, sizeof(value));
		expect(!root || strcmp(value, "64123\t64123\t64123\t64123\n") == 0);
		read_status(entry->d_name, "Gid:\t", value, sizeof(value));
		expect(!root || strcmp(value, "64124\t64124\t64124\t64124\n") == 0);
		read_status(entry->d_name, "Groups:\t", value, sizeof(value));
		expect(!root || strspn(value, " \n") == strlen(value));
		read_status(entry->d_name, "NoNewPrivs:\t", value, sizeof(value));
		expect(value[0] == '1');
		read_status(entry->d_name, "Seccomp:\t", value, sizeof(value));
		expect(value[0] == '2');
	}
	expect(threads >= 2);
	_exit(HELD);
}

static void no_capability(void)
{
	check_threads("0000000000000000");
}

static void one_capability(void)
{
	check_threads("0000000000002000"); /* CAP_NET_RAW */
}

static void a_thread_made_meanwhile(void)
{
	pthread_t thread;

	atomic_store(&late.wanted, true);
	set_signals(SIG_BLOCK);
	expect(pthread_create(&thread, NULL, makes_another, NULL) == 0);
	set_signals(SIG_UNBLOCK);
	no_capability();
}

static void a_thread_that_ends_meanwhile(void)
{
	pthread_t thread;

	atomic_store(&late.wanted, true);
	set_signals(SIG_BLOCK);
	expect(pthread_create(&thread, NULL, ends_meanwhile, NULL) == 0);
	set_signals(SIG_UNBLOCK);
	no_capability();
}

static void test_every_thread_is_without_privileges(void **state)
{
	assert_held(no_capability);
	assert_held(one_capability);
	assert_held(a_thread_made_meanwhile);
	assert_held(a_thread_that_ends_meanwhile);
}

static void run_a_program(void)
{
	drop(0);
	execl("/bin/true", "true", NULL);
}

static void become_root(void)
{
	drop(0);
	syscall(SYS_setresuid, 0, 0, 0);
}

static void trace_another(void)
{
	drop(0);
	syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0);
}

static void load_a_program_into_the_kernel(void)
{
	drop(0);
	syscall(SYS_bpf, 0, NULL, 0);
}

static void start_a_process(void)
{
	drop(0);
	syscall(SYS_fork);
}

static void leave_the_namespace(void)
{
	drop(0);
	syscall(SYS_unshare, 0);
}

static void test_what_an_intruder_would_call_ends_the_process(void **state)
{
	void (*const cases[])(void) = {run_a_program,	become_root,
				       trace_another,	load_a_program_into_the_kernel,
				       start_a_process, leave_the_namespace};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = run(cases[i]);

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("case %u: wait status %#x", i, status);
	}
}

static void other_calls(void)
{
	void *memory;

	drop(0);
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	expect(memory != MAP_FAILED);
	expect(mprotect(memory, 4096, PROT_READ | PROT_EXEC) == -1 && errno == EPERM);
	expect(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	       errno == EPERM);
	expect(syscall(SYS_mknod, "/tmp/none", 0, 0) == -1 && errno == EPERM);
	expect(syscall(SYS_kill, 1, 0) == -1 && errno == EPERM);
	_exit(HELD);
}

static void test_other_calls_fail(void **state)
{
	assert_held(other_calls);
}

static void *ends(void *argument)
{
	return argument;
}

static void what_serving_takes(void)
{
	char folder[] = "/tmp/tailrace-test-XXXXXX", path[64], other[64];
	pthread_t thread;
	int fd;

	expect(mkdtemp(folder) != NULL);
	expect(geteuid() != 0 || chown(folder, 64123, 64124) == 0);
	drop(0);
	expect(pthread_create(&thread, NULL, ends, NULL) == 0 && pthread_join(thread, NULL) == 0);
	expect(eventfd(0, EFD_NONBLOCK) >= 0 && epoll_create1(0) >= 0 && memfd_create("memory", 0) >= 0);
	expect(socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
	snprintf(path, sizeof(path), "%s/a", folder);
	snprintf(other, sizeof(other), "%s/b", folder);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	expect(fd >= 0 && ftruncate(fd, 4096) == 0 && fsync(fd) == 0);
	expect(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	expect(rename(path, other) == 0 && unlink(other) == 0 && rmdir(folder) == 0);
	_exit(HELD);
}

static void test_what_serving_takes_still_works(void **state)
{
	assert_held(what_serving_takes);
}

static void test_options_are_checked(void **state)
{
	struct privileges privileges = {0};

	assert_int_equal(privileges_user(&privileges, "root"), -EINVAL);
	assert_int_equal(privileges_user(&privileges, "0"), -EINVAL);
	assert_int_equal(privileges_user(&privileges, "nobody-has-this-name"), -EINVAL);
	assert_int_equal(privileges_user(&privileges, "12:x"), -EINVAL);
	assert_int_equal(privileges_user(&privileges, "12:34"), 0);
	assert_int_equal(privileges.user, 12);
	assert_int_equal(privileges.group, 34);
	assert_int_equal(privileges_groups(&privileges, "36,no-such-group"), -EINVAL);
	privileges.nb_groups = 0;
	assert_int_equal(privileges_groups(&privileges, "36,root"), 0);
	assert_int_equal(privileges.nb_groups, 2);
	assert_int_equal(privileges_keep(&privileges, "net_raw,sys_time"), -EINVAL);
	privileges.keep = 0;
	assert_int_equal(privileges_keep(&privileges, "net_raw,net_admin"), 0);
	assert_int_equal(privileges.keep, 1 << 13 | 1 << 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_thread_is_without_privileges),
		cmocka_unit_test(test_what_an_intruder_would_call_ends_the_process),
		cmocka_unit_test(test_other_calls_fail),
		cmocka_unit_test(test_what_serving_takes_still_works),
		cmocka_unit_test(test_options_are_checked),
	};

	log_open("test", LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
