/* SPDX-License-Identifier: Apache-2.0
 *
 * The page that who raises interrupts and who receives them share: with a process, or with a machine whose ivshmem
 * device it is.
 *
 * Each side writes its own lines only.  The receiver is not trusted: whatever it writes can spoil its own figures, and
 * nothing else.  When an interrupt was raised is not in the page, but in the memory of who raised it.
 */
#ifndef TAILRACE_INTERRUPTS_PAGE_H
#define TAILRACE_INTERRUPTS_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	INTERRUPT_PAGE_BYTES = 65536, /* a power of two, as a PCI region has */
	INTERRUPT_PAGE_LINE = 64,
	INTERRUPT_PAGE_WAKEUPS = 2048, /* that the page holds */
};

#define INTERRUPT_PAGE_MAGIC UINT64_C(0x3350555252544e49)

/* What the receiver is to do. */
enum interrupt_phase {
	PHASE_REST,  /* look now and then whether there is something to do */
	PHASE_CLOCK, /* answer each new question with its clock, without sleep */
	PHASE_WAIT,  /* wait for interrupts, and note the clock when one has arrived */
	PHASE_FRAME, /* the same with frames of a network device, which name the interrupt */
	PHASE_TIMER, /* sleep until each whole period, and note how late it woke */
	PHASE_IPI,   /* be waked by a thread on another CPU at each whole period, and note how long that took */
};

/* That the receiver's own timer has brought about, or a thread on another of its CPUs. */
struct interrupt_wakeup {
	_Atomic uint64_t at;   /* cycles of the receiver's TSC */
	_Atomic uint64_t late; /* PHASE_TIMER: ns; PHASE_IPI: cycles of that TSC */
	_Atomic uint64_t held; /* PHASE_IPI: moments since the one before at which none was waked for */
};

struct interrupt_page {
	/* Of who raises them. */
	uint64_t magic;
	_Atomic uint32_t phase;
	_Atomic uint64_t period_ns; /* of PHASE_TIMER and PHASE_IPI */
	_Alignas(INTERRUPT_PAGE_LINE) _Atomic uint64_t question;
	_Alignas(INTERRUPT_PAGE_LINE) _Atomic uint64_t
		raised; /* the number of the last interrupt, or the one before the first wake-up */

	/* Of who receives them. */
	_Alignas(INTERRUPT_PAGE_LINE) _Atomic uint32_t ready;
	_Alignas(INTERRUPT_PAGE_LINE) _Atomic uint64_t answer;	/* the question that is answered, after the time */
	_Atomic uint64_t answered_at;				/* cycles of the receiver's TSC */
	_Alignas(INTERRUPT_PAGE_LINE) _Atomic uint64_t arrived; /* the number of the interrupt, after the time */
	_Atomic uint64_t arrived_at;
	_Atomic uint64_t ipis;	    /* that its system has counted of its CPU in the last PHASE_IPI */
	_Atomic uint64_t recording; /* cycles of its TSC from reading the time of an interrupt until that was written,
				       on average in the last PHASE_WAIT or PHASE_FRAME */
	_Alignas(INTERRUPT_PAGE_LINE) struct interrupt_wakeup wakeups[INTERRUPT_PAGE_WAKEUPS]; /* by number */
};

_Static_assert(sizeof(struct interrupt_page) <= INTERRUPT_PAGE_BYTES, "the page holds it");

#endif
