/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "switch/cores.h"

/* A name in the kernel's abstract space, which goes with the process that has it, however that ends. */
static void claim(int core)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	const int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "tailrace-worker-on-core-%d", core);
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&name, offsetof(struct sockaddr_un, sun_path) + 1 + length) == 0)
		return;
	if (errno == EADDRINUSE)
		log_warning("core %d is taken by a worker of another switch, and each waits while the other runs",
			    core);
	close(fd);
}

void cores_claim(const int *cores, unsigned nb_cores)
{
	for (unsigned i = 0; i < nb_cores; i++) {
		unsigned first = 0;

		while (cores[first] != cores[i])
			first++;
		if (first == i)
			claim(cores[i]);
		else
			log_warning("workers %u and %u share core %d, and each waits while the other runs", first, i,
				    cores[i]);
	}
}
