/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/capability.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_pci.h>

#include "device_internal.h"

#define BIT(capability) (1ULL << (capability))

/*
 * What can be named, and the capabilities that it takes: to open it, and as long as it is open.  An XDP program is
 * detached from its interface when the device is closed, which takes what attaching it took; its buffers are pinned.
 */
static const struct {
	const char *scheme;
	enum device_kind kind;
	uint64_t to_open, to_keep;
} schemes[] = {
	{"vhost:", DEVICE_VHOST, 0, 0},
	{"vhost-server:", DEVICE_VHOST_SERVER, 0, 0},
	{"if:", DEVICE_INTERFACE, BIT(CAP_NET_ADMIN) | BIT(CAP_NET_RAW), 0},
	{"xdp:", DEVICE_XDP, BIT(CAP_NET_ADMIN) | BIT(CAP_NET_RAW) | BIT(CAP_SYS_ADMIN) | BIT(CAP_IPC_LOCK),
	 BIT(CAP_NET_ADMIN) | BIT(CAP_SYS_ADMIN)},
	{"tap:", DEVICE_TAP, BIT(CAP_NET_ADMIN), 0},
	{"memif:", DEVICE_MEMIF, 0, 0},
	{"pcap:", DEVICE_PCAP, 0, 0},
	{"pci:", DEVICE_PCI, BIT(CAP_SYS_RAWIO) | BIT(CAP_IPC_LOCK) | BIT(CAP_DAC_OVERRIDE), BIT(CAP_IPC_LOCK)},
	{"vdev:", DEVICE_VDEV, 0, 0},
};

int device_fail(struct device_error *error, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return code;
}

/* The index in `schemes`, or -1. */
static int find_scheme(const char *uri)
{
	for (unsigned i = 0; i < RTE_DIM(schemes); i++)
		if (strncmp(uri, schemes[i].scheme, strlen(schemes[i].scheme)) == 0)
			return (int)i;
	return -1;
}

static int parse_path(const char *uri, size_t length, struct device_error *error)
{
	if (length > DEVICE_PATH_LONGEST)
		return device_fail(error, -EINVAL,
				   "%.40s...: a socket's path has at most %d bytes, this one %zu; use a shorter one",
				   uri, DEVICE_PATH_LONGEST, length);
	return 0;
}

/* memif:PATH[,role=server|client][,id=N] */
static int parse_memif(const char *uri, const char *target, struct device_error *error)
{
	size_t length = strcspn(target, ",");
	const char *word = target + length;
	int rc = parse_path(uri, length, error);

	if (rc != 0)
		return rc;
	if (target[0] != '/' || length < 2)
		return device_fail(error, -EINVAL, "%s: give the socket's whole path, from / on", uri);
	while (*word == ',') {
		size_t size = strcspn(++word, ",");

		if (!(size == 11 && (strncmp(word, "role=server", 11) == 0 || strncmp(word, "role=client", 11) == 0)) &&
		    !(size > 3 && size < 10 && strncmp(word, "id=", 3) == 0 &&
		      strspn(word + 3, "0123456789") == size - 3))
			return device_fail(
				error, -EINVAL,
				"%s: '%.*s' is unknown; after the path come role=server, role=client or id=NUMBER", uri,
				(int)size, word);
		word += size;
	}
	return 0;
}

int device_parse(const char *uri, enum device_kind *kind, const char **target, struct device_error *error)
{
	struct rte_pci_addr address;
	int which = find_scheme(uri);

	if (which >= 0) {
		*kind = schemes[which].kind;
		*target = uri + strlen(schemes[which].scheme);
	}
	if (which < 0 || **target == '\0')
		return device_fail(
			error, -EINVAL,
			"'%s' names no port; use vhost:PATH, if:NAME, xdp:NAME, tap:NAME, memif:PATH, pcap:IN,OUT, "
			"pci:ADDRESS, vdev:ARGUMENTS or vhost-server:PATH",
			uri);
	switch (*kind) {
	case DEVICE_VHOST:
	case DEVICE_VHOST_SERVER:
		if (strchr(*target, ',') != NULL)
			return device_fail(error, -EINVAL, "%s: the path must not contain a comma; use another one",
					   uri);
		return parse_path(uri, strlen(*target), error);
	case DEVICE_INTERFACE:
	case DEVICE_XDP:
	case DEVICE_TAP:
		if (strlen(*target) >= IFNAMSIZ)
			return device_fail(error, -EINVAL, "%s: an interface's name has at most %d bytes", uri,
					   IFNAMSIZ - 1);
		if (strpbrk(*target, ",/ ") != NULL)
			return device_fail(error, -EINVAL, "%s: not an interface's name", uri);
		return 0;
	case DEVICE_MEMIF:
		return parse_memif(uri, *target, error);
	case DEVICE_PCAP:
		if (strlen(*target) > 240 || strcmp(*target, ",") == 0)
			return device_fail(error, -EINVAL, "%.40s: name one or two files, pcap:IN,OUT", uri);
		if (strchr(*target, ',') != NULL && strchr(strchr(*target, ',') + 1, ',') != NULL)
			return device_fail(error, -EINVAL, "%s: a path must not contain a comma; use another one", uri);
		return 0;
	case DEVICE_PCI:
		if (rte_pci_addr_parse(*target, &address) != 0)
			return device_fail(error, -EINVAL, "%s: not a PCI address; write one like pci:0000:01:00.0",
					   uri);
		return 0;
	case DEVICE_VDEV:
		if (strcspn(*target, ",") >= RTE_ETH_NAME_MAX_LEN)
			return device_fail(error, -EINVAL, "%s: a device's name has at most %d bytes", uri,
					   RTE_ETH_NAME_MAX_LEN - 1);
		return 0;
	}
	return -EINVAL;
}

int device_check(const char *uri, struct device_error *error)
{
	enum device_kind kind;
	const char *target;

	return device_parse(uri, &kind, &target, error);
}

const char *device_pci_address(const char *uri)
{
	return strncmp(uri, "pci:", 4) == 0 ? uri + 4 : NULL;
}

uint64_t device_capabilities_to_open(const char *uri)
{
	int which = find_scheme(uri);

	return which >= 0 ? schemes[which].to_open : 0;
}

uint64_t device_capabilities_to_keep(const char *uri)
{
	int which = find_scheme(uri);

	return which >= 0 ? schemes[which].to_keep : 0;
}
