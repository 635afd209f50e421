/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/accept.h"
#include "common/control.h"
#include "common/log.h"
#include "switch/cores.h"

/* A name in the kernel's abstract space, which goes with the process that has it, however that ends. */
static socklen_t name_of(int core, struct sockaddr_un *name)
{
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	return offsetof(struct sockaddr_un, sun_path) + 1 +
	       snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "tailrace-worker-on-core-%d", core);
}

/*
 * Who has the name: a process of root's or of ours; 0 when it is somebody else's, who may take any name and has no say
 * in where we run, or cannot be found out.
 */
static int holder(const struct sockaddr_un *name, socklen_t length)
{
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer = {.pid = 0, .uid = -1};
	socklen_t size = sizeof(peer);

	if (fd < 0)
		return 0;
	if (connect(fd, (const struct sockaddr *)name, length) != 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		peer.pid = 0;
	close(fd);
	return peer.uid == 0 || peer.uid == geteuid() ? peer.pid : 0;
}

/* Who asks, by all names, until this process ends. */
static struct {
	int set; /* epoll: the listening sockets; -1: who asks stays in the queue */
	int spare;
} askers = {.set = -1, .spare = -1};

/*
 * Take who asks out of the queue: once it is full nobody is answered any more, and the core seems to be free.  They
 * have their answer, which the kernel gave.  One by name at a time, so that a flood of them holds up no caller.
 */
static void let_go(void *context)
{
	struct epoll_event ready[16];
	const int count = epoll_wait(askers.set, ready, sizeof(ready) / sizeof(ready[0]), 0);

	(void)context;
	for (int i = 0; i < count; i++) {
		const int fd = accept_next(ready[i].data.fd, &askers.spare);

		if (fd >= 0)
			close(fd);
	}
}

static void open_askers(struct control *control)
{
	askers.set = epoll_create1(EPOLL_CLOEXEC);
	askers.spare = accept_spare();
	if (askers.set >= 0 && control_on_input(control, askers.set, let_go, NULL) != 0) {
		close(askers.set);
		askers.set = -1;
	}
}

/* Returns 0, or the process that has the core, or -1 when it is somebody's unknown. */
static int claim(int core)
{
	struct sockaddr_un name;
	const socklen_t length = name_of(core, &name);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct epoll_event asked = {.events = EPOLLIN, .data.fd = fd};
	int pid;

	if (fd < 0)
		return 0;
	if (bind(fd, (struct sockaddr *)&name, length) == 0 && listen(fd, SOMAXCONN) == 0) {
		if (askers.set >= 0)
			epoll_ctl(askers.set, EPOLL_CTL_ADD, fd, &asked);
		return 0;
	}
	pid = errno == EADDRINUSE ? holder(&name, length) : -1;
	close(fd);
	return pid > 0 ? pid : -1;
}

int cores_claim(struct control *control, const int *cores, unsigned nb_cores, bool shared)
{
	static const char what[] = "each waits while the other runs";
	bool refused = false;

	open_askers(control);
	for (unsigned i = 0; i < nb_cores; i++) {
		char text[160] = "";
		unsigned first = 0;
		int pid;

		while (cores[first] != cores[i])
			first++;
		pid = first == i ? claim(cores[i]) : 0;
		if (first < i)
			snprintf(text, sizeof(text), "workers %u and %u share core %d, and %s", first, i, cores[i],
				 what);
		else if (pid > 0)
			snprintf(text, sizeof(text),
				 "core %d is taken by a worker of another switch (process %d), and %s", cores[i], pid,
				 what);
		else if (pid < 0)
			snprintf(text, sizeof(text), "somebody says that core %d is taken, and it may be", cores[i]);
		if (text[0] == '\0')
			continue;
		if (shared || pid < 0) {
			log_warning("%s", text);
			continue;
		}
		log_error("%s; choose another by --cores, or share it by --share-cores", text);
		refused = true;
	}
	return refused ? -EBUSY : 0;
}
