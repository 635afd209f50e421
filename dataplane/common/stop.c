/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "stop.h"

int stop_open(void)
{
	sigset_t signals;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* of DPDK's net_tap, once its real-time signals fill their queue */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	if (pthread_sigmask(SIG_BLOCK, &signals, NULL) != 0)
		return -EINVAL;
	fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}
