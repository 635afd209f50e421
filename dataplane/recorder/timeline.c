/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "recorder/timeline.h"

/* Bits of a task's state (linux/sched.h), as sched_switch shows it; 0, or a bit above these, is able to run. */
enum { STATE_INTERRUPTIBLE = 0x01, STATE_UNINTERRUPTIBLE = 0x02, STATE_STOPPED = 0x04, STATE_TRACED = 0x08 };

struct timeline_thread *timeline_thread(struct timeline *timeline, int32_t thread)
{
	for (unsigned i = 0; i < timeline->nb_threads; i++)
		if (timeline->threads[i].thread == thread)
			return &timeline->threads[i];
	return NULL;
}

void timeline_enter(struct timeline *timeline, unsigned index, enum nesting nesting, uint64_t time)
{
	timeline->cpus[index].entered[nesting] = time;
}

void timeline_leave(struct timeline *timeline, unsigned index, enum nesting nesting, uint64_t time, uint32_t id,
		    const char *name)
{
	static const enum record_kind kinds[NESTINGS] = {
		[NESTING_VECTOR] = RECORD_INTERRUPT,
		[NESTING_LINE] = RECORD_INTERRUPT,
		[NESTING_SOFTIRQ] = RECORD_SOFTIRQ,
	};
	uint64_t *entered = &timeline->cpus[index].entered[nesting];

	/* One that was entered before we looked, or whose entry was lost. */
	if (*entered == 0)
		return;
	record_add(timeline->file, index, kinds[nesting], id, name, *entered, time, 0);
	*entered = 0;
}

static enum record_kind why_off(uint64_t state)
{
	if (state & (STATE_STOPPED | STATE_TRACED))
		return RECORD_STOPPED;
	if (state & STATE_UNINTERRUPTIBLE)
		return RECORD_BLOCKED;
	return state & STATE_INTERRUPTIBLE ? RECORD_ASLEEP : RECORD_READY;
}

void timeline_switch(struct timeline *timeline, unsigned index, uint64_t time, const struct task *before,
		     uint64_t state, const struct task *after)
{
	struct timeline_cpu *cpu = &timeline->cpus[index];
	struct timeline_thread *thread;

	if (cpu->since != 0 && before->thread != 0 && cpu->task.thread == before->thread)
		record_add(timeline->file, index, RECORD_TASK, (uint32_t)before->thread, before->name, cpu->since, time,
			   (uint32_t)before->priority);
	cpu->task = *after;
	cpu->since = time;

	thread = timeline_thread(timeline, before->thread);
	if (thread != NULL && before->thread != 0) {
		thread->off = true;
		thread->why = why_off(state);
		thread->since = time;
	}
	thread = timeline_thread(timeline, after->thread);
	if (thread != NULL && thread->off) {
		/* One that has moved may have left another CPU by a clock that we have not read yet. */
		if (time > thread->since)
			record_add(timeline->file, index, thread->why, (uint32_t)after->thread, "", thread->since, time,
				   0);
		thread->off = false;
	}
}

void timeline_exit(struct timeline *timeline, uint64_t time, int32_t thread, uint32_t reason, const char *name)
{
	struct timeline_thread *known = timeline_thread(timeline, thread);

	if (known == NULL)
		return;
	known->exited = time;
	known->reason = reason;
	known->reason_name = name;
}

void timeline_entry(struct timeline *timeline, unsigned index, uint64_t time, int32_t thread)
{
	struct timeline_thread *known = timeline_thread(timeline, thread);

	/* It may have moved here from a CPU whose clock was read later. */
	if (known == NULL || known->exited == 0 || time < known->exited)
		return;
	record_add(timeline->file, index, RECORD_EXIT, (uint32_t)thread, known->reason_name, known->exited, time,
		   known->reason);
	known->exited = 0;
}

void timeline_point(struct timeline *timeline, unsigned index, enum record_kind kind, uint64_t time, int32_t thread,
		    uint32_t extra)
{
	if (timeline_thread(timeline, thread) != NULL)
		record_add(timeline->file, index, kind, (uint32_t)thread, "", time, time, extra);
}

void timeline_lost(struct timeline *timeline, unsigned index)
{
	struct timeline_cpu *cpu = &timeline->cpus[index];

	memset(cpu->entered, 0, sizeof(cpu->entered));
	cpu->since = 0;
	/* Threads' times are not reported by CPU. */
	for (unsigned i = 0; i < timeline->nb_threads; i++) {
		timeline->threads[i].off = false;
		timeline->threads[i].exited = 0;
	}
}
