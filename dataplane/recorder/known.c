/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "recorder/known.h"

const char *const source_names[SOURCES] = {
	[SOURCE_INTERRUPTS] = "interrupts of the processor",
	[SOURCE_LINES] = "interrupts of devices",
	[SOURCE_SOFTIRQS] = "softirqs",
	[SOURCE_SWITCHES] = "context switches",
	[SOURCE_FAULTS] = "page faults",
	[SOURCE_MIGRATIONS] = "migrations",
	[SOURCE_NMIS] = "non-maskable interrupts",
	[SOURCE_FREQUENCY] = "frequency changes",
	[SOURCE_EXITS] = "exits of machines",
};

static const char *const no_fields[] = {NULL};
static const char *const line_fields[] = {"irq", "name", NULL};
static const char *const line_exit_fields[] = {"irq", NULL};
static const char *const softirq_fields[] = {"vec", NULL};
static const char *const switch_fields[] = {"prev_comm", "prev_pid", "prev_prio", "prev_state",
					    "next_comm", "next_pid", "next_prio"};
static const char *const fault_fields[] = {"common_pid", NULL};
static const char *const migrate_fields[] = {"pid", "dest_cpu", NULL};
static const char *const nmi_fields[] = {"delta_ns", NULL};
static const char *const frequency_fields[] = {"state", NULL};
static const char *const exit_fields[] = {"exit_reason", "isa", NULL};

#define VECTOR(vector)                                                                                           \
	{ENTER, NESTING_VECTOR, "irq_vectors/" vector "_entry", no_fields, SOURCE_INTERRUPTS, NULL, NULL},       \
	{                                                                                                        \
		LEAVE, NESTING_VECTOR, "irq_vectors/" vector "_exit", no_fields, SOURCE_INTERRUPTS, vector, NULL \
	}

/* Of the processor's interrupts those that ask to reschedule are missing: they are counted (samples.c). */
const struct event known[] = {
	{SWITCH, 0, "sched/sched_switch", switch_fields, SOURCE_SWITCHES, NULL, NULL},
	VECTOR("local_timer"),
	VECTOR("call_function"),
	VECTOR("call_function_single"),
	VECTOR("irq_work"),
	VECTOR("x86_platform_ipi"),
	VECTOR("thermal_apic"),
	VECTOR("threshold_apic"),
	VECTOR("deferred_error_apic"),
	VECTOR("error_apic"),
	VECTOR("spurious_apic"),
	{ENTER, NESTING_LINE, "irq/irq_handler_entry", line_fields, SOURCE_LINES, NULL, NULL},
	{LEAVE, NESTING_LINE, "irq/irq_handler_exit", line_exit_fields, SOURCE_LINES, NULL, NULL},
	{ENTER, NESTING_SOFTIRQ, "irq/softirq_entry", softirq_fields, SOURCE_SOFTIRQS, NULL, NULL},
	{LEAVE, NESTING_SOFTIRQ, "irq/softirq_exit", softirq_fields, SOURCE_SOFTIRQS, NULL, NULL},
	{FAULT, 0, "exceptions/page_fault_user", fault_fields, SOURCE_FAULTS, NULL, "common_pid"},
	{NMI, 0, "nmi/nmi_handler", nmi_fields, SOURCE_NMIS, NULL, NULL},
	{FREQUENCY, 0, "power/cpu_frequency", frequency_fields, SOURCE_FREQUENCY, NULL, NULL},
	{MIGRATE, 0, "sched/sched_migrate_task", migrate_fields, SOURCE_MIGRATIONS, NULL, "pid"},
	{EXIT, 0, "kvm/kvm_exit", exit_fields, SOURCE_EXITS, NULL, "common_pid"},
	{ENTRY, 0, "kvm/kvm_entry", no_fields, SOURCE_EXITS, NULL, "common_pid"},
};

_Static_assert(sizeof(known) / sizeof(known[0]) == KNOWN, "other modules have an array of that length");

/* Linux's numbers of softirqs (linux/interrupt.h); they have not changed since 2009 but for one that was added. */
static const char *const softirqs[] = {"HI",	   "TIMER",   "NET_TX", "NET_RX",  "BLOCK",
				       "IRQ_POLL", "TASKLET", "SCHED",	"HRTIMER", "RCU"};

const char *softirq_name(uint32_t number)
{
	return number < sizeof(softirqs) / sizeof(softirqs[0]) ? softirqs[number] : "?";
}
