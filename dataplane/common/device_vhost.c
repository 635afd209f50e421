/* SPDX-License-Identifier: Apache-2.0
 *
 * vhost-user front ends: DPDK's virtio-user, on a socket where a back end listens, or where one is waited for.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_ether.h>

#include "device_internal.h"

enum { SERVERS = 16 }; /* vhost-server ports of one program */

/* Socket files of vhost-server ports, for a signal that comes while we wait for a back end. */
static char server_paths[SERVERS][DEVICE_PATH_LONGEST + 1];

static int check_client_socket(const char *path, struct device_error *error)
{
	struct stat file;

	if (stat(path, &file) != 0)
		return device_fail(error, -errno, "%s: %s; start the vhost-user back end that listens there first",
				   path, strerror(errno));
	if (!S_ISSOCK(file.st_mode))
		return device_fail(error, -EINVAL,
				   "%s is not a socket; give the path of a vhost-user back end's socket", path);
	return 0;
}

static int check_server_socket(const char *path, struct device_error *error)
{
	struct stat file;

	if (lstat(path, &file) != 0)
		return 0;
	if (!S_ISSOCK(file.st_mode))
		return device_fail(error, -EBUSY, "%s exists and is not a socket; remove it or use another path", path);
	if (device_try_connect(path) != -ECONNREFUSED)
		return device_fail(error, -EBUSY,
				   "%s is in use; stop the program that listens there or use another path", path);
	unlink(path); /* left by a program that is gone */
	return 0;
}

static void end_waiting(int signal_number)
{
	for (int i = 0; i < SERVERS; i++)
		if (server_paths[i][0] != '\0')
			unlink(server_paths[i]);
	_exit(0);
}

/* Probe a vhost-server, which does not return before its back end has come. */
static int probe_server(const char *path, const char *arguments)
{
	struct sigaction ending = {.sa_handler = end_waiting}, old_int, old_term;
	sigset_t signals, old;
	int rc, slot = 0;

	while (slot < SERVERS && server_paths[slot][0] != '\0')
		slot++;
	if (slot == SERVERS)
		return -ENOSPC;
	strcpy(server_paths[slot], path);
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaction(SIGINT, &ending, &old_int);
	sigaction(SIGTERM, &ending, &old_term);
	pthread_sigmask(SIG_UNBLOCK, &signals, &old);
	rc = device_make(arguments);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	sigaction(SIGINT, &old_int, NULL);
	sigaction(SIGTERM, &old_term, NULL);
	if (rc != 0)
		server_paths[slot][0] = '\0';
	return rc;
}

/* DPDK's words for a vhost-user front end.  Without an address the driver makes one up, and complains. */
static void describe_front_end(const struct device *device, const char *mode, unsigned queues, char *arguments,
			       size_t size)
{
	struct rte_ether_addr mac;

	rte_eth_random_addr(mac.addr_bytes);
	snprintf(arguments, size, "%s,path=%s,queue_size=%d,queues=%u%s,mac=" RTE_ETHER_ADDR_PRT_FMT, device->name,
		 device->target, DEVICE_DESCRIPTORS, queues, mode, RTE_ETHER_ADDR_BYTES(&mac));
}

int device_probe_vhost(struct device *device, unsigned queues, struct device_error *error)
{
	char arguments[512];
	int rc = check_client_socket(device->target, error);

	if (rc != 0)
		return rc;
	describe_front_end(device, "", queues, arguments, sizeof(arguments));
	if (device_make(arguments) == 0)
		return 0;
	rc = device_try_connect(device->target);
	if (rc == -ECONNREFUSED)
		return device_fail(error, rc, "nobody listens at %s; start the vhost-user back end first",
				   device->target);
	if (rc != 0)
		return device_fail(error, rc, "%s: %s", device->target, strerror(-rc));
	return device_fail(
		error, -EPROTO,
		"%s: the program that listens there did not answer as a vhost-user back end, or has fewer than %u "
		"queue pairs; see its log",
		device->target, queues);
}

int device_probe_vhost_server(struct device *device, unsigned queues, struct device_error *error)
{
	char arguments[512];
	int rc = check_server_socket(device->target, error);

	if (rc != 0)
		return rc;
	describe_front_end(device, ",server=1", queues, arguments, sizeof(arguments));
	if (probe_server(device->target, arguments) == 0)
		return 0;
	return device_fail(error, -EIO,
			   "%s: could not listen there, or what connected was no vhost-user back end; check that its "
			   "directory exists and may be written",
			   device->target);
}

void device_unprobe(const struct device *device)
{
	if (device->kind != DEVICE_VHOST_SERVER)
		return;
	for (int i = 0; i < SERVERS; i++)
		if (strcmp(server_paths[i], device->target) == 0)
			server_paths[i][0] = '\0';
}
