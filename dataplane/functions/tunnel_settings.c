/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <string.h>

#include <rte_ether.h>

#include "router_headers.h"
#include "tunnel.h"

enum {
	VNI_MOST = (1 << 24) - 1,
	MTU_LEAST4 = 576, /* RFC 791, and RFC 8200, 5 */
	MTU_LEAST6 = 1280,
	MTU_MOST = 9216,
	LIVENESS_LEAST = 10 * 1000, /* us; the session's clock has ms */
	LIVENESS_MOST = 60 * 1000 * 1000,
};

static const char *take_address(struct ip_address *address, const char *value)
{
	return ip_address_read(value, address) ? NULL : "an IPv4 or IPv6 address";
}

static const char *take_mac(uint8_t *mac, const char *value)
{
	struct rte_ether_addr address;

	if (rte_ether_unformat_addr(value, &address) != 0 || rte_is_zero_ether_addr(&address) ||
	    rte_is_multicast_ether_addr(&address))
		return "a MAC address that one station has";
	memcpy(mac, &address, RTE_ETHER_ADDR_LEN);
	return NULL;
}

static const char *take_flag(bool *flag, const char *value)
{
	*flag = strcmp(value, "yes") == 0;
	return *flag || strcmp(value, "no") == 0 ? NULL : "yes or no";
}

static const char *take_protocol(struct tunnel_ends *ends, const char *value)
{
	ends->protocol = strcmp(value, "geneve") == 0 ? TUNNEL_GENEVE : TUNNEL_VXLAN;
	return ends->protocol == TUNNEL_GENEVE || strcmp(value, "vxlan") == 0 ? NULL : "vxlan or geneve";
}

static const char *take_number(uint16_t *number, const char *value, uint32_t most, const char *expected)
{
	uint32_t read;
	const char *wrong = function_number(value, most, expected, &read);

	if (wrong == NULL)
		*number = (uint16_t)read;
	return wrong;
}

static const char *take_multiplier(uint8_t *multiplier, const char *value)
{
	uint16_t read;
	const char *wrong = take_number(&read, value, UINT8_MAX, "packets, from 1 to 255");

	if (wrong == NULL)
		*multiplier = (uint8_t)read;
	return wrong;
}

static const char *take_interval(uint32_t *interval, const char *value)
{
	static const char expected[] = "microseconds between two packets, from 10000 to 60000000";
	uint32_t read;

	if (function_number(value, LIVENESS_MOST, expected, &read) != NULL || read < LIVENESS_LEAST)
		return expected;
	*interval = read;
	return NULL;
}

/* There is a network 0. */
static const char *take_vni(uint32_t *vni, const char *value)
{
	*vni = 0;
	return strcmp(value, "0") == 0 ? NULL : function_number(value, VNI_MOST, "a number from 0 to 16777215", vni);
}

const char *tunnel_settings_take(struct tunnel_settings *settings, const char *name, const char *value)
{
	struct tunnel_ends *ends = &settings->ends;

	if (strcmp(name, "protocol") == 0)
		return take_protocol(ends, value);
	if (strcmp(name, "vni") == 0)
		return take_vni(&ends->vni, value);
	if (strcmp(name, "local") == 0)
		return take_address(&ends->local, value);
	if (strcmp(name, "remote") == 0)
		return take_address(&ends->remote, value);
	if (strcmp(name, "gateway") == 0)
		return take_address(&settings->gateway, value);
	if (strcmp(name, "neighbour") == 0)
		return take_mac((uint8_t *)&settings->neighbour, value);
	if (strcmp(name, "mac") == 0)
		return take_mac(ends->mac, value);
	if (strcmp(name, "port") == 0)
		return take_number(&ends->port, value, UINT16_MAX, "a UDP port from 1 to 65535");
	if (strcmp(name, "mtu") == 0)
		return take_number(&ends->mtu, value, MTU_MOST, "bytes, at most 9216");
	if (strcmp(name, "checksum") == 0)
		return take_flag(&ends->checksum, value);
	if (strcmp(name, "tagged") == 0)
		return take_flag(&ends->tagged, value);
	if (strcmp(name, "liveness") == 0)
		return take_interval(&settings->liveness.interval, value);
	if (strcmp(name, "multiplier") == 0)
		return take_multiplier(&settings->liveness.multiplier, value);
	return "protocol, vni, local, remote, gateway, neighbour, mac, port, mtu, checksum, tagged, liveness or "
	       "multiplier";
}

const char *tunnel_settings_wrong(const struct tunnel_settings *settings)
{
	const struct tunnel_ends *ends = &settings->ends;

	if (ends->local.family == HEADERS_OTHER || ends->remote.family == HEADERS_OTHER || ends->port == 0)
		return "expected --set local=ADDRESS, --set remote=ADDRESS and --set port=NUMBER";
	if (ends->local.family != ends->remote.family ||
	    (settings->gateway.family != HEADERS_OTHER && settings->gateway.family != ends->local.family))
		return "expected addresses of one IP version";
	if (memcmp(ends->local.bytes, ends->remote.bytes, sizeof(ends->local.bytes)) == 0)
		return "both ends have the same address; expected two";
	if (ends->mtu < (ends->local.family == HEADERS_IPV6 ? MTU_LEAST6 : MTU_LEAST4))
		return "mtu: expected at least 576, and 1280 with IPv6";
	if (settings->liveness.interval != 0 && (ends->port == BFD_PORT || ends->port == BFD_PORT_FAR))
		return "port: this is BFD's, which liveness needs; expected another one";
	return NULL;
}
