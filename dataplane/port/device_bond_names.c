/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "port/device_bond.h"

#define SCHEME "bond:"

static const char *const modes[] = {[BOND_ACTIVE_BACKUP] = "active-backup", [BOND_LACP] = "lacp"};

const char *bond_mode_name(enum bond_mode mode)
{
	return modes[mode];
}

bool bond_is_named(const char *uri)
{
	return strncmp(uri, SCHEME, strlen(SCHEME)) == 0;
}

static int refuse(struct device_error *error, const char *uri, const char *why)
{
	snprintf(error->text, sizeof(error->text), "%.200s: %s", uri, why);
	return -EINVAL;
}

static int parse_member(const char *uri, const char *begin, size_t length, struct bond_names *names,
			struct device_error *error)
{
	char *member = names->members[names->count];

	if (names->count == BOND_MEMBERS)
		return refuse(error, uri, "a bond has at most 8 members");
	if (length >= BOND_MEMBER_LONGEST || strncmp(begin, "if:", 3) != 0)
		return refuse(error, uri, "a member of a bond is if:NAME");
	snprintf(member, BOND_MEMBER_LONGEST, "%.*s", (int)length, begin);
	for (unsigned i = 0; i < names->count; i++)
		if (strcmp(names->members[i], member) == 0)
			return refuse(error, uri, "a member is named twice; name each once");
	if (device_check(member, error) != 0)
		return -EINVAL;
	names->count++;
	return 0;
}

int bond_parse(const char *uri, struct bond_names *names, struct device_error *error)
{
	const char *word = uri + strlen(SCHEME);
	size_t length = strcspn(word, ",");

	*names = (struct bond_names){0};
	while (names->mode < BOND_MODES &&
	       (strncmp(word, modes[names->mode], length) != 0 || modes[names->mode][length] != '\0'))
		names->mode++;
	if (names->mode == BOND_MODES)
		return refuse(error, uri, "the mode of a bond is active-backup or lacp; write bond:lacp,MEMBER,MEMBER");
	while (word[length] == ',') {
		word += length + 1;
		length = strcspn(word, ",");
		if (parse_member(uri, word, length, names, error) != 0)
			return -EINVAL;
	}
	return names->count >= 2 ? 0 : refuse(error, uri, "a bond has two members or more");
}
