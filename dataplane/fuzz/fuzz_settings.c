/* SPDX-License-Identifier: Apache-2.0
 *
 * What functions are told by whoever starts or configures them: any text.  The first byte of an input says which
 * function, and by which way.
 *
 * As JSON, to one that runs (a firewall's rules, a balancer's services): what is refused is refused with a reason, and
 * changes nothing; what is taken shows as it was told, and is taken again.  As lines of NAME=VALUE, as --set has them:
 * what is refused has an expectation, and settings that nothing is wrong with are within their bounds.
 */
#include "fuzz/frames.h"

#include "common/grace.h"
#include "functions/balancer.h"
#include "functions/function.h"
#include "functions/nat_settings.h"
#include "functions/tunnel.h"

enum { LINES = 64, NAME = 32, ROWS = 4096, AS_JSON = 0x80 };

void __wrap_maglev_fill(uint16_t places[MAGLEV_PLACES], const struct maglev_end *ends, unsigned nb_ends);

/* Sharing out takes longer than all the rest. */
void __wrap_maglev_fill(uint16_t places[MAGLEV_PLACES], const struct maglev_end *ends, unsigned nb_ends)
{
	memset(places, 0, MAGLEV_PLACES * sizeof(places[0]));
	for (unsigned i = 0; i < MAGLEV_PLACES && nb_ends > 0; i++)
		places[i] = ends[i % nb_ends].number;
}

static const struct function *const told[] = {&firewall, &balancer};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	check(grace_open() == 0);
	check(start_dpdk(64) == 0);
	pool = rte_pktmbuf_pool_create("frames", 127, 0, 0, RTE_PKTMBUF_HEADROOM + ROOM, SOCKET_ID_ANY);
	check(pool != NULL);
	for (unsigned i = 0; i < RTE_DIM(told); i++)
		check(told[i]->set("connections", "8") == NULL &&
		      told[i]->keeping->open(
			      &(struct function_start){.pool = pool, .wake_fd = -1, .nb_queues = QUEUES}) == 0);
	log_open("fuzz", LOG_LEVEL_ERROR);
	return 0;
}

/* ------- as JSON ------- */

static json_t *shown(const struct function *function)
{
	json_t *tables = json_object();

	function->keeping->tables(tables, ROWS);
	json_object_del(tables, "events"); /* what has been, and when */
	return tables;
}

/* Returns whether it was taken. */
static bool tell(const struct function *function, json_t *params)
{
	struct control_error error = {.code = 0};

	if (function->keeping->configure(params, &error) == 0)
		return true;
	check(error.code != 0 && error.message[0] != '\0' && memchr(error.message, '\0', sizeof(error.message)));
	return false;
}

static void configure(const struct function *function, const char *text, size_t size)
{
	json_t *nothing = json_object(), *before, *after, *again;
	json_error_t why;
	json_t *params = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);

	/* The control socket lets nothing else through. */
	if (!json_is_object(params)) {
		json_decref(params);
		json_decref(nothing);
		return;
	}
	check(tell(function, nothing));
	before = shown(function);
	if (tell(function, params)) {
		after = shown(function);
		check(tell(function, params), "what was taken is taken again");
		again = shown(function);
		check(json_equal(after, again), "and is then the same");
		json_decref(again);
		check(tell(function, nothing));
	} else {
		after = shown(function);
		check(json_equal(before, after), "what is refused changes nothing");
	}
	json_decref(before);
	json_decref(after);
	json_decref(nothing);
	json_decref(params);
}

/* ------- as lines ------- */

typedef const char *(*take_fn)(void *settings, const char *name, const char *value);

static const char *take_of_nat(void *settings, const char *name, const char *value)
{
	return nat_settings_take(settings, name, value);
}

static const char *take_of_tunnel(void *settings, const char *name, const char *value)
{
	return tunnel_settings_take(settings, name, value);
}

static const char *take_of_function(void *settings, const char *name, const char *value)
{
	const struct function *function = settings;

	return function->set == NULL ? "none" : function->set(name, value);
}

/* As main() does, which ends at the first that is wrong.  Returns whether all were taken. */
static bool take_lines(take_fn take, void *settings, const char *text, size_t size)
{
	for (unsigned i = 0; i < LINES && size > 0; i++) {
		const char *end = memchr(text, '\n', size);
		const size_t length = end == NULL ? size : (size_t)(end - text);
		char *line = strndup(text, length), *equals = strchr(line, '=');
		const char *expected = "NAME=VALUE";

		if (equals != NULL && equals > line && equals - line < NAME) {
			*equals = '\0';
			expected = take(settings, line, equals + 1);
		}
		free(line);
		if (expected != NULL) {
			check(expected[0] != '\0');
			return false;
		}
		text += RTE_MIN(length + 1, size);
		size -= RTE_MIN(length + 1, size);
	}
	return true;
}

static void set_nat(const char *text, size_t size)
{
	struct nat_settings settings = NAT_SETTINGS_DEFAULT;

	if (!take_lines(take_of_nat, &settings, text, size) || nat_settings_wrong(&settings) != NULL)
		return;
	check(settings.pool.nb > 0 && settings.pool.addresses > 0 && settings.pool.addresses <= NAT_ADDRESSES);
	check(settings.block >= 64 && (settings.block & (settings.block - 1)) == 0);
	check(settings.blocks > 0 && settings.blocks <= NAT_HOST_BLOCKS && settings.host_connections > 0);
	for (unsigned i = 0; i < settings.pool.nb; i++)
		check(nat_prefixes_find(&settings.inside, settings.pool.list[i].address) < 0);
	for (unsigned i = 0; i < settings.nb_forwards; i++)
		check(nat_prefixes_find(&settings.pool, settings.forwards[i].address) >= 0);
}

static void set_tunnel(const char *text, size_t size)
{
	struct tunnel_settings settings = TUNNEL_SETTINGS_DEFAULT;
	static struct tunnel end;

	if (!take_lines(take_of_tunnel, &settings, text, size) || tunnel_settings_wrong(&settings) != NULL)
		return;
	check(settings.ends.local.family == settings.ends.remote.family && settings.ends.port != 0);
	memset(&end, 0, sizeof(end));
	tunnel_begin(&end, &settings, pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	const struct function *function;

	if (size == 0)
		return 0;
	size--;
	if (data[0] & AS_JSON) {
		configure(told[data[0] % RTE_DIM(told)], text, size);
		return 0;
	}
	function = functions[data[0] % nb_functions];
	if (function == &nat)
		set_nat(text, size);
	else if (function == &tunnel)
		set_tunnel(text, size);
	else
		take_lines(take_of_function, (void *)(uintptr_t)function, text, size);
	return 0;
}
