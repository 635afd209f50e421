/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_common.h>

#include "device_internal.h"

/* Whether this thread has all of the capabilities, by their bits. */
static bool has_capabilities(uint64_t wanted)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	uint64_t has;

	if (syscall(SYS_capget, &header, data) != 0)
		return true; /* let the kernel say no where it does */
	has = data[0].effective | (uint64_t)data[1].effective << 32;
	return (has & wanted) == wanted;
}

int device_check_capabilities(const char *scheme, const struct device *device, struct device_error *error)
{
	static const struct {
		unsigned capability;
		const char *name;
	} names[] = {{CAP_NET_RAW, " net_raw"},	    {CAP_NET_ADMIN, " net_admin"}, {CAP_SYS_ADMIN, " sys_admin"},
		     {CAP_SYS_RAWIO, " sys_rawio"}, {CAP_IPC_LOCK, " ipc_lock"},   {CAP_DAC_OVERRIDE, " dac_override"}};
	const uint64_t wanted = device_capabilities_to_open(scheme);
	char missing[128] = "";

	if (has_capabilities(wanted))
		return 0;
	for (unsigned i = 0; i < RTE_DIM(names); i++)
		if (wanted >> names[i].capability & 1 && !has_capabilities(1ULL << names[i].capability))
			strcat(missing, names[i].name);
	return device_fail(error, -EPERM,
			   "%s%s needs capabilities that this program has not or has given up:%s; a switch has them "
			   "until its first "
			   "configuration is applied, and after it with --keep",
			   scheme, device->target, missing);
}

unsigned long long device_lockable_bytes(void)
{
	unsigned long long locked_kib = 0;
	struct rlimit limit;
	char line[128];
	FILE *status;

	if (has_capabilities(1ULL << CAP_IPC_LOCK) || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return ULLONG_MAX;
	status = fopen("/proc/self/status", "re");
	while (status != NULL && fgets(line, sizeof(line), status) != NULL)
		if (sscanf(line, "VmLck: %llu", &locked_kib) == 1)
			break;
	if (status != NULL)
		fclose(status);
	return limit.rlim_cur > locked_kib << 10 ? limit.rlim_cur - (locked_kib << 10) : 0;
}
