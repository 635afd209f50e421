/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_vhost.h>

#include "common/grace.h"
#include "common/log.h"
#include "port/guest.h"

/* The protocol's own feature bit (vhost-user specification, "Feature negotiation"). */
#define VHOST_USER_F_PROTOCOL_FEATURES_BIT 30

/*
 * What a front end may negotiate.  No checksum or segmentation offload: a frame is whole and its network
 * header zero.  No IOMMU_PLATFORM: its translation is internal to the library.
 */
static const uint64_t guest_features = 1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_F_ANY_LAYOUT |
				       1ULL << VIRTIO_NET_F_MRG_RXBUF | 1ULL << VIRTIO_RING_F_INDIRECT_DESC |
				       1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_F_IN_ORDER |
				       1ULL << VHOST_USER_F_PROTOCOL_FEATURES_BIT;

static const uint64_t guest_protocol_features = 1ULL << VHOST_USER_PROTOCOL_F_REPLY_ACK |
						1ULL << VHOST_USER_PROTOCOL_F_STATUS;

/* Messages of the front end that only ask (vhost-user specification, "Front-end message types"). */
enum {
	MESSAGE_GET_FEATURES = 1,
	MESSAGE_SET_MEM_TABLE = 5,
	MESSAGE_GET_PROTOCOL_FEATURES = 15,
	MESSAGE_GET_QUEUE_NUM = 17,
	MESSAGE_GET_CONFIG = 24,
	MESSAGE_GET_STATUS = 40,
};

enum { MESSAGE_TIMEOUT_MS = 200 }; /* that the rest of a message, or room for an answer, may take */

/* The ports that exist, for the callbacks, which know a port by its path. */
static pthread_mutex_t guests_lock = PTHREAD_MUTEX_INITIALIZER;
static struct guest *guests;

static struct guest *guest_at(const char *path)
{
	struct guest *guest;

	pthread_mutex_lock(&guests_lock);
	for (guest = guests; guest != NULL; guest = guest->next)
		if (strcmp(guest->path, path) == 0)
			break;
	pthread_mutex_unlock(&guests_lock);
	return guest;
}

/*
 * In the thread that touched the memory: the worker, in a round, so that no grace period ends meanwhile; or
 * rte_vhost's, whose the ports are.  Zeros take the place of what is gone, for the access to go on.
 */
static void on_memory_fault(int signal_number, siginfo_t *info, void *context)
{
	const int saved = errno;

	for (struct guest *guest = guests; guest != NULL; guest = guest->next) {
		const struct guest_memory *memory = guest->memory;

		for (unsigned i = 0; memory != NULL && i < memory->nb_regions; i++) {
			const struct guest_region *region = &memory->regions[i];

			if ((uintptr_t)info->si_addr - (uintptr_t)region->host >= region->size)
				continue;
			if (mmap(region->host, region->size, PROT_READ | PROT_WRITE,
				 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
				goto fatal;
			for (unsigned ring = 0; ring < GUEST_VRINGS; ring++) {
				struct virtqueue *live = atomic_load(&guest->live[ring]);

				__atomic_store_n(&guest->fault[ring], VRING_FAULT_memory_cut, __ATOMIC_RELAXED);
				if (live != NULL)
					__atomic_store_n(&live->fault, VRING_FAULT_memory_cut, __ATOMIC_RELAXED);
			}
			errno = saved;
			return;
		}
	}
fatal:
	/* Not a guest's doing: the same access faults again, and ends the program. */
	signal(signal_number, SIG_DFL);
}

int guest_survive_cuts(void)
{
	struct sigaction action = {.sa_sigaction = on_memory_fault, .sa_flags = SA_SIGINFO};

	return sigaction(SIGBUS, &action, NULL) == 0 ? 0 : -errno;
}

/* The port that a device belongs to; NULL for one that was turned away. */
static struct guest *guest_of(int vid)
{
	char path[sizeof(((struct guest *)0)->path)];
	struct guest *guest;

	if (rte_vhost_get_ifname(vid, path, sizeof(path)) != 0)
		return NULL;
	guest = guest_at(path);
	return guest != NULL && atomic_load(&guest->vid) == vid ? guest : NULL;
}

static int larger_first(const void *a, const void *b)
{
	const struct guest_region *left = a, *right = b;

	return left->size < right->size ? 1 : left->size > right->size ? -1 : 0;
}

/* A private copy of the memory table.  Returns NULL when there is none that can be used. */
static struct guest_memory *copy_memory(int vid)
{
	struct rte_vhost_memory *table;
	struct guest_memory *memory;

	if (rte_vhost_get_mem_table(vid, &table) != 0)
		return NULL;
	memory = calloc(1, sizeof(*memory));
	if (memory == NULL || table->nregions > GUEST_REGIONS) {
		free(memory);
		free(table);
		return NULL;
	}
	memory->nb_regions = table->nregions;
	for (unsigned i = 0; i < memory->nb_regions; i++)
		memory->regions[i] = (struct guest_region){
			.guest = table->regions[i].guest_phys_addr,
			.size = table->regions[i].size,
			.host = (uint8_t *)(uintptr_t)table->regions[i].host_user_addr,
		};
	qsort(memory->regions, memory->nb_regions, sizeof(memory->regions[0]), larger_first);
	free(table);
	return memory;
}

static bool aligned(const void *address, uintptr_t to)
{
	return ((uintptr_t)address & (to - 1)) == 0;
}

/* Whether `size` bytes at `at` lie within one region of the guest's memory. */
static bool within(const struct guest_memory *memory, const void *at, size_t size)
{
	for (unsigned i = 0; i < memory->nb_regions; i++) {
		const struct guest_region *region = &memory->regions[i];
		size_t offset = (uintptr_t)at - (uintptr_t)region->host;

		if (offset < region->size && size <= region->size - offset)
			return true;
	}
	return false;
}

/* An eventfd that never blocks us, or -1.  Other descriptors of a front end could: a pipe, a file on a dead server. */
static int usable_call_fd(int fd)
{
	static const char expected[] = "anon_inode:[eventfd]";
	char path[32], target[sizeof(expected)];
	int flags;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target)) != (ssize_t)strlen(expected) ||
	    memcmp(target, expected, strlen(expected)) != 0)
		return -1;
	flags = fcntl(fd, F_GETFL);
	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? fd : -1;
}

/*
 * What is wrong with a ring as set up.  The library's own check is not enough: it keeps a ring that only begins in
 * memory, one whose size was changed after its address, and one that was translated before the event index was
 * negotiated, whose words stand behind the rings (virtio 1.1, section 2.6).
 */
static enum vring_fault ring_fault(const struct virtqueue *vring, int call_fd)
{
	const size_t size = vring->size, event = sizeof(uint16_t);

	if (!aligned(vring->desc, 16) || !aligned(vring->avail, 2) || !aligned(vring->used, 4))
		return VRING_FAULT_alignment;
	if (!within(vring->memory, vring->desc, size * sizeof(*vring->desc)) ||
	    !within(vring->memory, vring->avail, sizeof(*vring->avail) + size * sizeof(uint16_t) + event) ||
	    !within(vring->memory, vring->used, sizeof(*vring->used) + size * sizeof(*vring->used->ring) + event))
		return VRING_FAULT_ring_address;
	if (call_fd >= 0 && vring->call_fd < 0)
		return VRING_FAULT_call_descriptor;
	return VRING_FAULT_NONE;
}

/* A snapshot of one ring as the front end has set it up, or NULL while it is not whole. */
static struct virtqueue *snapshot(struct guest *guest, unsigned which)
{
	const int vid = atomic_load(&guest->vid);
	struct rte_vhost_vring ring;
	uint16_t available, used;
	uint64_t features;
	struct virtqueue *vring;

	if (rte_vhost_get_negotiated_features(vid, &features) != 0 ||
	    rte_vhost_get_vhost_vring(vid, which, &ring) != 0 ||
	    rte_vhost_get_vring_base(vid, which, &available, &used) != 0)
		return NULL;
	if (ring.desc == NULL || ring.avail == NULL || ring.used == NULL || ring.size == 0 ||
	    (ring.size & (ring.size - 1)) != 0)
		return NULL;
	vring = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_ROUNDUP(sizeof(*vring)));
	if (vring == NULL)
		return NULL;
	*vring = (struct virtqueue){
		.desc = ring.desc,
		.avail = ring.avail,
		.used = ring.used,
		.memory = guest->memory,
		.counters = guest->counters,
		.call_fd = ring.callfd >= 0 ? usable_call_fd(ring.callfd) : -1,
		.size = ring.size,
		.header = features & (1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_NET_F_MRG_RXBUF) ? 12 : 10,
		.mergeable = features & 1ULL << VIRTIO_NET_F_MRG_RXBUF,
		.in_order = features & 1ULL << VIRTIO_F_IN_ORDER,
		.event_index = features & 1ULL << VIRTIO_RING_F_EVENT_IDX,
		.index = available,
		.known = available,
		.asleep = true,
		.fault = __atomic_load_n(&guest->fault[which], __ATOMIC_RELAXED),
		.report = &guest->fault[which],
	};
	if (vring->fault == VRING_FAULT_NONE) {
		enum vring_fault fault = ring_fault(vring, ring.callfd);

		if (fault != VRING_FAULT_NONE)
			vring_quarantine(vring, fault);
		else
			vring_start(vring);
	}
	return vring;
}

/* Take the rings away from the workers, and tell the library where they stand. */
static void withdraw(struct guest *guest)
{
	struct virtqueue *was[GUEST_VRINGS];
	bool any = false;

	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		was[i] = atomic_exchange(&guest->live[i], NULL);
		any |= was[i] != NULL;
	}
	if (any)
		grace_wait();
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		if (was[i] == NULL)
			continue;
		/* Nobody watches over this thread: what the guest did to the descriptor since is undone first. */
		if (was[i]->fault == VRING_FAULT_NONE && usable_call_fd(was[i]->call_fd) >= 0)
			vring_settle(was[i], NULL);
		rte_vhost_set_vring_base(atomic_load(&guest->vid), i, was[i]->index, was[i]->index);
		free(was[i]);
	}
	free(guest->memory);
	guest->memory = NULL;
}

/* Give the workers what may be served now. */
static void publish(struct guest *guest)
{
	withdraw(guest);
	if (!guest->running || !guest->memory_valid)
		return;
	guest->memory = copy_memory(atomic_load(&guest->vid));
	if (guest->memory == NULL)
		return;
	for (unsigned i = 0; i < GUEST_VRINGS; i++)
		if (guest->enabled[i])
			atomic_store_explicit(&guest->live[i], snapshot(guest, i), memory_order_release);
}

static bool only_asks(uint32_t message)
{
	return message == MESSAGE_GET_FEATURES || message == MESSAGE_GET_PROTOCOL_FEATURES ||
	       message == MESSAGE_GET_QUEUE_NUM || message == MESSAGE_GET_CONFIG || message == MESSAGE_GET_STATUS;
}

/*
 * Before the library acts on a message.  A memory table, among others, is replaced without destroy_device(),
 * so the rings are withdrawn here.  Ring locks of the library are held; workers take none of them.
 */
static enum rte_vhost_msg_result before_message(int vid, void *message)
{
	struct guest *guest = guest_of(vid);
	const uint32_t request = *(const uint32_t *)message;

	if (guest == NULL || only_asks(request))
		return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
	withdraw(guest);
	/* If the library refuses the table it keeps stale ring addresses; nothing is served until it takes one. */
	if (request == MESSAGE_SET_MEM_TABLE)
		guest->memory_valid = false;
	return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
}

/* After the library has acted on a message with success. */
static enum rte_vhost_msg_result after_message(int vid, void *message)
{
	struct guest *guest = guest_of(vid);
	const uint32_t request = *(const uint32_t *)message;

	if (guest == NULL || only_asks(request))
		return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
	if (request == MESSAGE_SET_MEM_TABLE)
		guest->memory_valid = true;
	publish(guest);
	return RTE_VHOST_MSG_RESULT_NOT_HANDLED;
}

static const struct rte_vhost_user_extern_ops guest_hooks = {
	.pre_msg_handle = before_message,
	.post_msg_handle = after_message,
};

/* Whether the socket is a connection of this port: accepted at its path, or connected to it. */
static bool connects(int fd, const struct guest *guest)
{
	struct sockaddr_un address = {0};
	socklen_t length = sizeof(address);
	int listens = 0;
	socklen_t size = sizeof(listens);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens)
		return false;
	if ((guest->client ? getpeername : getsockname)(fd, (struct sockaddr *)&address, &length) != 0)
		return false;
	return address.sun_family == AF_UNIX && strncmp(address.sun_path, guest->path, sizeof(address.sun_path)) == 0;
}

/*
 * One thread of the library reads the messages of all front ends, and waits for the rest of one that has begun.
 * A front end that stops in the middle, or never reads an answer, must not hold up the others: it is cut off.
 * The library does not tell the connection's descriptor, so it is found by its name.
 */
static void bound_waiting(const struct guest *guest)
{
	const struct timeval limit = {.tv_usec = MESSAGE_TIMEOUT_MS * 1000};
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;

	if (folder == NULL)
		return;
	while ((entry = readdir(folder)) != NULL) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || fd == dirfd(folder) || !connects(fd, guest))
			continue;
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	}
	closedir(folder);
}

static int on_connection(int vid)
{
	char path[sizeof(((struct guest *)0)->path)];
	struct guest *guest;
	int none = -1;

	if (rte_vhost_get_ifname(vid, path, sizeof(path)) != 0)
		return -1;
	guest = guest_at(path);
	/* One front end for each port: a second one is turned away and the first is not disturbed. */
	if (guest == NULL || !atomic_compare_exchange_strong(&guest->vid, &none, vid))
		return -1;
	guest->memory_valid = false;
	guest->running = false;
	bound_waiting(guest);
	if (rte_vhost_extern_callback_register(vid, &guest_hooks, NULL) != 0) {
		atomic_store(&guest->vid, -1);
		return -1;
	}
	return 0;
}

static void on_disconnection(int vid)
{
	struct guest *guest = guest_of(vid);

	if (guest == NULL)
		return;
	withdraw(guest);
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		guest->enabled[i] = false;
		__atomic_store_n(&guest->fault[i], VRING_FAULT_NONE, __ATOMIC_RELAXED);
	}
	atomic_store(&guest->vid, -1);
}

static int on_ready(int vid)
{
	struct guest *guest = guest_of(vid);

	if (guest == NULL)
		return -1;
	guest->running = true;
	publish(guest);
	return 0;
}

static void on_stop(int vid)
{
	struct guest *guest = guest_of(vid);

	if (guest == NULL)
		return;
	withdraw(guest);
	guest->running = false;
	/* The guest resets its rings: what was wrong with the old ones is past. */
	for (unsigned i = 0; i < GUEST_VRINGS; i++)
		__atomic_store_n(&guest->fault[i], VRING_FAULT_NONE, __ATOMIC_RELAXED);
}

static int on_enable(int vid, uint16_t which, int enable)
{
	struct guest *guest = guest_of(vid);

	if (guest == NULL || which >= GUEST_VRINGS)
		return 0;
	guest->enabled[which] = enable;
	publish(guest);
	return 0;
}

static const struct rte_vhost_device_ops guest_callbacks = {
	.new_connection = on_connection,
	.destroy_connection = on_disconnection,
	.new_device = on_ready,
	.destroy_device = on_stop,
	.vring_state_changed = on_enable,
};

/* A socket file that nobody listens on is left over from a crash: remove it. */
static int clear_stale(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, rc;

	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	rc = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? -EADDRINUSE : -errno;
	close(fd);
	if (rc == -ECONNREFUSED)
		return unlink(path) == 0 ? 0 : -errno;
	return rc == -ENOENT ? 0 : rc;
}

int guest_open(struct guest *guest, const char *path, bool client, struct queue_counters *counters)
{
	int rc;

	if (strlen(path) >= sizeof(guest->path))
		return -ENAMETOOLONG;
	if (!client && (rc = clear_stale(path)) != 0)
		return rc;
	*guest = (struct guest){.counters = counters, .client = client, .vid = -1};
	strcpy(guest->path, path);

	pthread_mutex_lock(&guests_lock);
	guest->next = guests;
	guests = guest;
	pthread_mutex_unlock(&guests_lock);

	errno = 0;
	if (rte_vhost_driver_register(path, client ? RTE_VHOST_USER_CLIENT : 0) != 0) {
		rc = errno ? -errno : -ENOSPC;
		goto forget;
	}
	if (rte_vhost_driver_set_features(path, guest_features) != 0 ||
	    rte_vhost_driver_set_protocol_features(path, guest_protocol_features) != 0 ||
	    rte_vhost_driver_callback_register(path, &guest_callbacks) != 0) {
		rc = -EIO;
		goto unregister;
	}
	errno = 0;
	if (rte_vhost_driver_start(path) != 0) {
		rc = errno ? -errno : -EIO;
		goto unregister;
	}
	return 0;

unregister:
	rte_vhost_driver_unregister(path);
forget:
	guest->vid = -1;
	guest_close(guest);
	return rc;
}

void guest_close(struct guest *guest)
{
	struct guest **at;

	/* Ends the connection and calls back; a second call finds nothing to do. */
	rte_vhost_driver_unregister(guest->path);
	pthread_mutex_lock(&guests_lock);
	for (at = &guests; *at != NULL; at = &(*at)->next)
		if (*at == guest) {
			*at = guest->next;
			break;
		}
	pthread_mutex_unlock(&guests_lock);
}

enum guest_state guest_state(const struct guest *guest, enum vring_fault *fault)
{
	bool up = true;

	*fault = VRING_FAULT_NONE;
	for (unsigned i = 0; i < GUEST_VRINGS; i++) {
		enum vring_fault found = __atomic_load_n(&guest->fault[i], __ATOMIC_RELAXED);

		if (found != VRING_FAULT_NONE)
			*fault = found;
		up &= atomic_load(&guest->live[i]) != NULL;
	}
	if (*fault != VRING_FAULT_NONE)
		return GUEST_QUARANTINED;
	return up ? GUEST_UP : GUEST_WAITING;
}
