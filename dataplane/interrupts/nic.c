/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "common/eal.h"
#include "common/grace.h"
#include "common/log.h"
#include "interrupts/nic.h"

enum {
	RAISER = 0, /* the worker whose rings are withdrawn after a grace period */
	MEMORY_MIB = 16,
	WATCH_MS = 10, /* that waking the guest may take */
};

/* What the guest is woken by may be full, and block: then this is interrupted. */
static atomic_bool raising;
static atomic_int raiser; /* the thread's id; one that has ended is not found */

static void interrupted(int signal)
{
}

static void *watch(void *unused)
{
	static const struct timespec pause = {.tv_nsec = WATCH_MS * 1000000};
	bool was = false, is;

	for (;;) {
		guest_watchdog();
		is = atomic_load(&raising);
		if (is && was)
			tgkill(getpid(), atomic_load(&raiser), SIGUSR1);
		was = is;
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static int start_watch(void)
{
	/* No SA_RESTART: the system call it is in shall end. */
	const struct sigaction action = {.sa_handler = interrupted};
	pthread_t thread;
	int error;

	if (sigaction(SIGUSR1, &action, NULL) != 0)
		return -errno;
	error = pthread_create(&thread, NULL, watch, NULL);
	if (error == 0)
		pthread_detach(thread);
	return -error;
}

int nic_open(struct nic *nic, const char *path)
{
	const struct guest_options options = {
		.name = "nic", .path = path, .client = true, .queues = 1, .counters = {&nic->counters}};
	char why[320];
	int error;

	error = eal_start(
		&(struct eal_options){.program = "tailrace-interrupts", .core = -1, .memory_mib = MEMORY_MIB});
	if (error != 0)
		return error;
	error = grace_open();
	error = error == 0 ? guest_survive_cuts() : error;
	error = error == 0 ? start_watch() : error;
	if (error != 0) {
		log_error("the network device: %s", strerror(-error));
		return error;
	}
	error = guest_open(&nic->guest, &options, why, sizeof(why));
	if (error != 0)
		log_error("%s", why);
	return error;
}

bool nic_takes(const struct nic *nic)
{
	return guest_takes(&nic->guest);
}

/* Nobody waits for this thread but while it has a ring. */
void nic_begin(void)
{
	atomic_store(&raiser, gettid());
	grace_worker_begin(RAISER);
	grace_worker_rest(RAISER);
}

void nic_end(void)
{
	grace_worker_end(RAISER);
}

static bool give(struct nic *nic, struct virtqueue *vring)
{
	static const uint8_t which[] = {0};
	struct packet *packet = &nic->burst.packets[0];
	bool taken;

	burst_start(&nic->burst);
	nic->burst.count = 1;
	*packet = (struct packet){
		.head = (uint8_t *)&nic->frame,
		.pieces = nic->burst.pieces,
		.length = sizeof(nic->frame),
		.received = sizeof(nic->frame),
		.head_length = sizeof(nic->frame),
		.nb_pieces = 1,
	};
	taken = vring_write(vring, &nic->burst, which, 1) == 1 && packet->delivered;
	burst_show(&nic->burst);
	vring_notify(vring, NULL);
	return taken;
}

bool nic_raise(struct nic *nic, uint64_t number)
{
	struct virtqueue *vring;
	bool taken = false;

	memset(nic->frame.to, 0xff, sizeof(nic->frame.to));
	nic->frame.from[0] = 0x02; /* of nobody's making */
	nic->frame.type = htons(INTERRUPT_FRAME_TYPE);
	nic->frame.number = number;
	grace_worker_resume(RAISER);
	vring = atomic_load_explicit(&nic->guest.live[GUEST_RECEIVES], memory_order_acquire);
	if (vring != NULL && vring->fault == VRING_FAULT_NONE) {
		atomic_store(&raising, true);
		taken = give(nic, vring);
		atomic_store(&raising, false);
	}
	grace_worker_rest(RAISER);
	return taken;
}
