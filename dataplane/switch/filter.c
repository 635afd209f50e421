/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <rte_common.h>

#include "switch/filter.h"

#define CALL(name) SCMP_SYS(name)

/* What serving guests and devices takes: memory, files, sockets, events, threads. */
static const int allowed[] = {
	/* memory */
	CALL(brk),
	CALL(munmap),
	CALL(mremap),
	CALL(madvise),
	CALL(mlock),
	CALL(munlock),
	CALL(msync),
	CALL(mincore),
	CALL(membarrier),
	CALL(memfd_create),
	CALL(mbind),
	CALL(get_mempolicy),
	CALL(set_mempolicy),
	/* files: the page of counters, the configuration, captures */
	CALL(read),
	CALL(readv),
	CALL(pread64),
	CALL(write),
	CALL(writev),
	CALL(pwrite64),
	CALL(open),
	CALL(openat),
	CALL(close),
	CALL(close_range),
	CALL(fstat),
	CALL(stat),
	CALL(lstat),
	CALL(newfstatat),
	CALL(statx),
	CALL(statfs),
	CALL(fstatfs),
	CALL(lseek),
	CALL(access),
	CALL(faccessat),
	CALL(faccessat2),
	CALL(readlink),
	CALL(readlinkat),
	CALL(getdents),
	CALL(getdents64),
	CALL(getcwd),
	CALL(rename),
	CALL(renameat),
	CALL(renameat2),
	CALL(unlink),
	CALL(unlinkat),
	CALL(mkdir),
	CALL(mkdirat),
	CALL(rmdir),
	CALL(fsync),
	CALL(fdatasync),
	CALL(ftruncate),
	CALL(fallocate),
	CALL(fadvise64),
	CALL(flock),
	CALL(fcntl),
	CALL(ioctl),
	CALL(dup),
	CALL(dup2),
	CALL(dup3),
	CALL(pipe),
	CALL(pipe2),
	CALL(umask),
	CALL(chmod),
	CALL(fchmod),
	CALL(fchmodat),
	CALL(chown),
	CALL(fchown),
	CALL(lchown),
	CALL(fchownat),
	/* sockets */
	CALL(socket),
	CALL(socketpair),
	CALL(bind),
	CALL(connect),
	CALL(listen),
	CALL(accept),
	CALL(accept4),
	CALL(getsockname),
	CALL(getpeername),
	CALL(setsockopt),
	CALL(getsockopt),
	CALL(sendto),
	CALL(sendmsg),
	CALL(sendmmsg),
	CALL(recvfrom),
	CALL(recvmsg),
	CALL(recvmmsg),
	CALL(shutdown),
	/* events and time */
	CALL(poll),
	CALL(ppoll),
	CALL(select),
	CALL(pselect6),
	CALL(epoll_create),
	CALL(epoll_create1),
	CALL(epoll_ctl),
	CALL(epoll_wait),
	CALL(epoll_pwait),
	CALL(epoll_pwait2),
	CALL(eventfd2),
	CALL(signalfd4),
	CALL(timerfd_create),
	CALL(timerfd_settime),
	CALL(timerfd_gettime),
	CALL(nanosleep),
	CALL(clock_nanosleep),
	CALL(clock_gettime),
	CALL(clock_getres),
	CALL(gettimeofday),
	CALL(time),
	/* threads and signals */
	CALL(futex),
	CALL(set_robust_list),
	CALL(get_robust_list),
	CALL(rseq),
	CALL(sched_yield),
	CALL(sched_getaffinity),
	CALL(sched_setaffinity),
	CALL(sched_getparam),
	CALL(sched_getscheduler),
	CALL(sched_get_priority_max),
	CALL(sched_get_priority_min),
	CALL(getcpu),
	CALL(set_tid_address),
	CALL(gettid),
	CALL(getpid),
	CALL(getppid),
	CALL(tgkill),
	CALL(rt_sigaction),
	CALL(rt_sigprocmask),
	CALL(rt_sigpending),
	CALL(rt_sigtimedwait),
	CALL(rt_sigreturn),
	CALL(sigaltstack),
	CALL(restart_syscall),
	CALL(exit),
	CALL(exit_group),
	CALL(prctl),
	/* what the machine and this process are */
	CALL(getuid),
	CALL(geteuid),
	CALL(getgid),
	CALL(getegid),
	CALL(getgroups),
	CALL(capget),
	CALL(getrlimit),
	CALL(prlimit64),
	CALL(getrusage),
	CALL(sysinfo),
	CALL(uname),
	CALL(getrandom),
};

/* What only an intruder would call: other programs, other processes, other namespaces, the kernel itself. */
static const int fatal[] = {
	CALL(execve),
	CALL(execveat),
	CALL(fork),
	CALL(vfork),
	CALL(ptrace),
	CALL(process_vm_readv),
	CALL(process_vm_writev),
	CALL(process_madvise),
	CALL(pidfd_getfd),
	CALL(kcmp),
	CALL(mount),
	CALL(umount2),
	CALL(pivot_root),
	CALL(chroot),
	CALL(move_mount),
	CALL(open_tree),
	CALL(fsopen),
	CALL(fsmount),
	CALL(setns),
	CALL(unshare),
	CALL(init_module),
	CALL(finit_module),
	CALL(delete_module),
	CALL(kexec_load),
	CALL(kexec_file_load),
	CALL(reboot),
	CALL(swapon),
	CALL(swapoff),
	CALL(perf_event_open),
	CALL(userfaultfd),
	CALL(io_uring_setup),
	CALL(keyctl),
	CALL(add_key),
	CALL(request_key),
	CALL(open_by_handle_at),
	CALL(iopl),
	CALL(ioperm),
	CALL(setuid),
	CALL(setgid),
	CALL(setreuid),
	CALL(setregid),
	CALL(setresuid),
	CALL(setresgid),
	CALL(setgroups),
	CALL(capset),
	CALL(acct),
	CALL(quotactl),
	CALL(settimeofday),
	CALL(clock_settime),
};

/* Memory, but none that can be run: code cannot be brought in. */
static int allow_memory(scmp_filter_ctx filter)
{
	int rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));

	if (rc == 0)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(mprotect), 1,
				      SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	return rc;
}

#ifdef __SANITIZE_ADDRESS__
/* At the end the leak sanitizer looks at this process from another one. */
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static bool sanitizer_needs(int call)
{
	return SANITIZED && call == CALL(ptrace);
}

/* Threads, but no processes.  clone3() hides its flags from a filter; without it the C library uses clone(). */
static int allow_threads(scmp_filter_ctx filter)
{
	int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), CALL(clone3), 0);

	if (rc == 0 && SANITIZED) {
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(clone), 0);
		return rc == 0 ? seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(wait4), 0) : rc;
	}
	if (rc == 0)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
	if (rc == 0)
		rc = seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, CALL(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	return rc;
}

static int add_all(scmp_filter_ctx filter, uint32_t action, const int *calls, unsigned count)
{
	int rc = 0;

	for (unsigned i = 0; i < count && rc == 0; i++)
		rc = seccomp_rule_add(filter, sanitizer_needs(calls[i]) ? SCMP_ACT_ALLOW : action, calls[i], 0);
	return rc;
}

int filter_install(uint64_t keep)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int rc;

	if (filter == NULL)
		return -ENOMEM;
	rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	if (rc == 0)
		rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 1);
	if (rc == 0)
		rc = add_all(filter, SCMP_ACT_ALLOW, allowed, RTE_DIM(allowed));
	if (rc == 0)
		rc = add_all(filter, SCMP_ACT_KILL_PROCESS, fatal, RTE_DIM(fatal));
	if (rc == 0)
		rc = allow_memory(filter);
	if (rc == 0)
		rc = allow_threads(filter);
	/* An XDP program is detached, and may be attached again, by the process that has it. */
	if (rc == 0)
		rc = seccomp_rule_add(filter, keep >> CAP_SYS_ADMIN & 1 ? SCMP_ACT_ALLOW : SCMP_ACT_KILL_PROCESS,
				      CALL(bpf), 0);
	if (rc == 0 && SANITIZED && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
		rc = -errno;
	if (rc == 0)
		rc = seccomp_load(filter);
	seccomp_release(filter);
	return rc;
}
