/* SPDX-License-Identifier: Apache-2.0
 *
 * The polling thread: sends and analyses every frame of a trial, on all ports, alone.
 *
 * Latency is the difference of two readings of the one TSC of the one core: taken for each burst just before its
 * signatures are written and it is handed to the port, and just after the receive burst that returned the frame.
 * So it includes the tester's own handling of a burst, and never less than what the frame took; measure the
 * tester to itself to know that share.
 *
 * Between trials the thread sleeps, waking 100 times a second to empty the receive rings.
 */
#ifndef TAILRACE_TESTER_LOOP_H
#define TAILRACE_TESTER_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "common/device.h"
#include "common/gaps.h"
#include "trial.h"

enum {
	LOOP_PORTS = 8,
	LOOP_PORT_NAME = 32,
};

/*
 * Before a trial, learning frames: how long they are waited for at most, in seconds.  A device that does not pass them
 * on may have learned of them all the same.
 */
#define LOOP_LEARN 0.05

struct loop_port {
	char name[LOOP_PORT_NAME];
	const char *uri;
	struct device device;
	struct rte_mempool *pool; /* of its receive buffers, which learning frames are taken from */
	uint64_t last_heard;	  /* TSC of the last burst, or of the last look at the link */
	_Atomic bool up;
};

struct loop {
	struct loop_port ports[LOOP_PORTS];
	uint16_t nb_ports;
	struct clock_rate rate;
	struct gap_log gaps;
	struct clock_reading began;    /* when the rate was first taken */
	int wake_fd;		       /* eventfd */
	_Atomic(struct trial *) trial; /* handed over, and NULL again once it has ended */
	_Atomic bool quit;
};

/* Returns 0 or -errno. */
int loop_open(struct loop *loop);

/* The polling thread's function; returns 0 after loop_quit(). */
int loop_run(void *loop);

/* From the control thread.  A trial may be started while loop_busy() is false. */
void loop_start(struct loop *loop, struct trial *trial);
void loop_stop(struct loop *loop);
bool loop_busy(struct loop *loop);
void loop_quit(struct loop *loop);

#endif
