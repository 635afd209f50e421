/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "rule_set.h"
#include "test/frame_builder.h"

void rule_set_one(unsigned number, struct match *match)
{
	const uint32_t address = htonl(RULE_SET_SERVERS + (number << 8));
	uint64_t seed = number;

	*match = (struct match){
		.fields = MATCH_DESTINATION | MATCH_PROTOCOL | MATCH_DESTINATION_PORT,
		.destination = {.family = HEADERS_IPV4, .length = 24 + random64(&seed) % 9},
		.protocol = random64(&seed) % 4 == 0 ? 17 : 6,
		.destination_port = {443, 443},
	};
	memcpy(match->destination.address, &address, sizeof(address));
	if (number % 16 == 0)
		match->destination_port = (struct match_range){8000, 8099};
}

json_t *rule_set_make(unsigned rules)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < rules - 1; i++) {
		char prefix[INET_ADDRSTRLEN + 4], name[16];
		struct match match;

		rule_set_one(i, &match);
		inet_ntop(AF_INET, match.destination.address, prefix, sizeof(prefix));
		sprintf(prefix + strlen(prefix), "/%u", match.destination.length);
		snprintf(name, sizeof(name), "%u", i);
		json_array_append_new(list, json_pack("{s:s, s:s, s:[{s:s, s:i, s:[i, i]}]}", "name", name, "action",
						      "allow", "match", "destination", prefix, "protocol",
						      match.protocol, "destination_port", match.destination_port.first,
						      match.destination_port.last));
	}
	json_array_append_new(
		list, json_pack("{s:s, s:s, s:[{s:i}]}", "name", "last", "action", "allow", "match", "protocol", 17));
	return json_pack("{s:o}", "rules", list);
}
