/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the parts that read a model from its document (model.h): one for each kind of thing.  Each function returns
 * false, or NULL, after saying in `reader->fields.error` what is wrong and where.
 */
#ifndef TAILRACE_SWITCH_MODEL_READ_H
#define TAILRACE_SWITCH_MODEL_READ_H

#include "common/fields.h"
#include "switch/model.h"

struct reader {
	struct fields fields;
	struct model *model;
	unsigned nb_workers;
};

bool model_good_name(struct reader *reader, const struct place *at, const char *name);

/* How many entries a section has; sets `*section` to it or NULL. */
bool model_section(struct reader *reader, const char *key, unsigned most, json_t **section, unsigned *count);

/* The port that a text names; NULL after saying what is wrong. */
struct port_model *model_port_named(struct reader *reader, const struct place *at, const char *name);

/* Like model_port_named(), by the field of an object. */
struct port_model *model_port_field(struct reader *reader, const struct place *up, json_t *object, const char *key);

/* Give the port its role, if it has no other. */
bool model_employ(struct reader *reader, const struct place *at, struct port_model *port, enum port_role role,
		  const char *owner);

bool model_read_ports(struct reader *reader);
bool model_read_functions(struct reader *reader); /* after the ports */
bool model_read_chains(struct reader *reader);	  /* after the functions */
bool model_read_bridges(struct reader *reader);
bool model_read_mirrors(struct reader *reader); /* after the chains */

#endif
