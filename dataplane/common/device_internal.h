/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts of device.h: what a URI says, making the device known to DPDK, and configuring it.
 */
#ifndef TAILRACE_COMMON_DEVICE_INTERNAL_H
#define TAILRACE_COMMON_DEVICE_INTERNAL_H

#include <sys/un.h>

#include "device.h"

enum { DEVICE_PATH_LONGEST = sizeof(((struct sockaddr_un *)0)->sun_path) - 1 };

/* Write the error's text; returns `code`. */
__attribute__((format(printf, 3, 4))) int device_fail(struct device_error *error, int code, const char *format, ...);

/* Take a URI apart.  Returns 0, or -EINVAL with the error filled in. */
int device_parse(const char *uri, enum device_kind *kind, const char **target, struct device_error *error);

/* Make the device known to DPDK: fills in its name and ethdev id.  Returns 0, or -errno with the error filled in. */
int device_probe(struct device *device, const struct device_options *options, struct device_error *error);

/* The same for one kind each (device_vhost.c, device_linux.c, device_pci.c); the device has its name. */
int device_probe_vhost(struct device *device, unsigned queues, struct device_error *error);
int device_probe_vhost_server(struct device *device, unsigned queues, struct device_error *error);
int device_probe_interface(struct device *device, unsigned queues, struct rte_mempool *pool,
			   struct device_error *error);
int device_probe_xdp(struct device *device, unsigned queues, struct device_error *error);
int device_probe_tap(struct device *device, struct device_error *error);
int device_probe_pci(struct device *device, struct device_error *error);

/* Name a PCI device as Linux and DPDK write it, with its domain. */
void device_name_pci(struct device *device);

/* Whether Linux has a PCI device of this address, which is written with its domain. */
bool device_pci_exists(const char *address);

/* Pairs of queues that can be used: not every driver reports the truth. */
unsigned device_queues_of(const struct rte_eth_dev_info *info);

/* Note whether an open device is a virtual function, and say what it does not receive; any other device is left alone.
 */
void device_look_at_function(struct device *device, const struct rte_eth_dev_info *info, bool promiscuous);

/* False: it is a virtual function that is deaf and mute because its physical function is down. */
bool device_physical_up(const struct device *device);

/*
 * Make a device in software of "NAME,ARGUMENT=VALUE,...".  Returns 0 or -errno.  Since 24.11 rte_dev_probe() refuses
 * what is longer than 127 bytes, as a path alone may be.
 */
int device_make(const char *arguments);

/* Whether somebody listens at a Unix socket.  Returns 0 or -errno. */
int device_try_connect(const char *path);

/* The device has been closed: forget what device_probe() noted of it. */
void device_unprobe(const struct device *device);

/* Whether this thread has what a device of this scheme takes to open.  Returns 0, or -EPERM with the error filled in.
 */
int device_check_capabilities(const char *scheme, const struct device *device, struct device_error *error);

/* Bytes that this process may still lock in memory: RLIMIT_MEMLOCK less what is locked; ULLONG_MAX without a limit. */
unsigned long long device_lockable_bytes(void);

#endif
