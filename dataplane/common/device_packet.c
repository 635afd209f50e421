/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_prefetch.h>

#include "copy.h"
#include "device_packet.h"

enum {
	BURST = 64,
	AHEAD = 4, /* frames that are being fetched while one is copied */
	TAG = sizeof(uint32_t),
	ADDRESSES = 2 * ETH_ALEN,
	PLAIN = ETH_FRAME_LEN + TAG,	      /* bytes of a frame that nobody has to cut */
	LONGEST = 8 * 65536 + ETH_HLEN + TAG, /* of the longest segment of Linux, GSO_MAX_SIZE */
	PIECES = LONGEST / 1024,	      /* packet buffers of a frame, at the most */
	QUEUED = 16 << 20,		      /* bytes of frames that may wait at a socket */

	/*
	 * Where a frame lies in its slot: at the beginning of a cache line, as the slot does, so that the fewest lines
	 * come over from the core that the kernel runs on.  Linux rounds its own headers up so.
	 */
	FRAME = 2 * RTE_CACHE_LINE_SIZE,
	RESERVED = FRAME - (TPACKET_ALIGN(TPACKET2_HDRLEN + 16) + sizeof(struct virtio_net_hdr) - ETH_HLEN),

	/* A slot with room for the kernel's own header alone: it queues every frame, and writes no header for it. */
	NO_ROOM = 64,
};

int packet_unfinished_offset = -1;
uint64_t packet_unfinished_flag;

/* ------- opening ------- */

/* Once, for all rings.  Returns 0 or -errno. */
static int know_unfinished(void)
{
	static const struct rte_mbuf_dynfield field = {.name = "tailrace_unfinished",
						       .size = sizeof(struct virtio_net_hdr),
						       .align = __alignof__(struct virtio_net_hdr)};
	static const struct rte_mbuf_dynflag flag = {.name = "tailrace_unfinished"};
	int bit;

	if (packet_unfinished_flag != 0)
		return 0;
	packet_unfinished_offset = rte_mbuf_dynfield_register(&field);
	bit = packet_unfinished_offset >= 0 ? rte_mbuf_dynflag_register(&flag) : -1;
	if (bit < 0)
		return -rte_errno;
	packet_unfinished_flag = 1ULL << bit;
	return 0;
}

static int set(int fd, int name, int value)
{
	return setsockopt(fd, SOL_PACKET, name, &value, sizeof(value)) == 0 ? 0 : -errno;
}

enum hears { NOTHING, FROM_ELSEWHERE };

/*
 * Have the socket get nothing, or what others send.  Sockets of a group are given what the host sends, too, whatever
 * each of them has asked for (PACKET_IGNORE_OUTGOING).  Returns 0 or -errno.
 */
static int set_hears(int fd, enum hears hears, bool grouped)
{
	struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	struct sock_filter elsewhere[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
	};
	const struct sock_fprog filter = hears == NOTHING ? (struct sock_fprog){RTE_DIM(nothing), nothing}
							  : (struct sock_fprog){RTE_DIM(elsewhere), elsewhere};
	const int change = hears == NOTHING || grouped ? SO_ATTACH_FILTER : SO_DETACH_FILTER;

	return setsockopt(fd, SOL_SOCKET, change, &filter, sizeof(filter)) == 0 ? 0 : -errno;
}

/* A socket that is not bound to the interface yet.  Returns 0 or -errno. */
static int open_socket(struct packet_socket *packet)
{
	const int queued = QUEUED / 2; /* Linux doubles it */
	int rc;

	packet->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (packet->fd < 0)
		return -errno;
	rc = set(packet->fd, PACKET_VERSION, TPACKET_V2);
	if (rc == 0)
		rc = set(packet->fd, PACKET_VNET_HDR, 1);
	if (rc == 0)
		rc = set(packet->fd, PACKET_RESERVE, packet->slot_size > NO_ROOM ? RESERVED : 0);
	if (rc == 0)
		rc = set(packet->fd, PACKET_COPY_THRESH, 1);
	if (rc == 0)
		rc = set(packet->fd, PACKET_IGNORE_OUTGOING, 1);
	/* Beyond net.core.rmem_max; with less, fewer long frames can wait. */
	if (rc == 0 && setsockopt(packet->fd, SOL_SOCKET, SO_RCVBUFFORCE, &queued, sizeof(queued)) != 0)
		setsockopt(packet->fd, SOL_SOCKET, SO_RCVBUF, &queued, sizeof(queued));
	return rc;
}

/* Returns 0 or -errno. */
static int make_ring(struct packet_socket *packet)
{
	const unsigned page = (unsigned)sysconf(_SC_PAGESIZE), block = RTE_MAX(packet->slot_size, page);
	const struct tpacket_req layout = {
		.tp_block_size = block,
		.tp_block_nr = packet->nb_slots / (block / packet->slot_size),
		.tp_frame_size = packet->slot_size,
		.tp_frame_nr = packet->nb_slots,
	};
	void *mapped;

	if (setsockopt(packet->fd, SOL_PACKET, PACKET_RX_RING, &layout, sizeof(layout)) != 0)
		return -errno;
	mapped = mmap(NULL, (size_t)packet->slot_size * packet->nb_slots, PROT_READ | PROT_WRITE, MAP_SHARED,
		      packet->fd, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	packet->slots = mapped;
	return 0;
}

enum { NO_GROUP = -1 }; /* 0 is the first one after a boot */

/* Have a socket, which hears nothing yet, receive from the interface, with others of its group (NO_GROUP: a new one).
 * Returns 0 or -errno. */
static int begin(const struct packet_socket *packet, unsigned interface, bool several, int *group)
{
	const struct sockaddr_ll from = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)interface};
	/* For as long as the socket is open: the interface's own flag would outlive a process that is killed. */
	const struct packet_mreq every = {.mr_ifindex = (int)interface, .mr_type = PACKET_MR_PROMISC};
	socklen_t size = sizeof(*group);
	int rc;

	if (bind(packet->fd, (const struct sockaddr *)&from, sizeof(from)) != 0 ||
	    setsockopt(packet->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &every, sizeof(every)) != 0)
		return -errno;
	if (!several)
		return 0;
	rc = set(packet->fd, PACKET_FANOUT,
		 *group != NO_GROUP ? *group : (PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_UNIQUEID) << 16);
	return rc == 0 && getsockopt(packet->fd, SOL_PACKET, PACKET_FANOUT, group, &size) != 0 ? -errno : rc;
}

/* Returns 0 or -errno. */
static int open_queue(struct packet_queue *queue)
{
	struct epoll_event event = {.events = EPOLLIN};
	int rc = open_socket(&queue->usual);

	if (rc == 0)
		rc = open_socket(&queue->careful);
	if (rc == 0)
		rc = make_ring(&queue->usual);
	if (rc == 0)
		rc = make_ring(&queue->careful);
	if (rc == 0)
		rc = set_hears(queue->usual.fd, NOTHING, false);
	if (rc == 0)
		rc = set_hears(queue->careful.fd, NOTHING, false);
	if (rc != 0)
		return rc;
	queue->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	if (queue->wait_fd < 0 || epoll_ctl(queue->wait_fd, EPOLL_CTL_ADD, queue->usual.fd, &event) != 0 ||
	    epoll_ctl(queue->wait_fd, EPOLL_CTL_ADD, queue->careful.fd, &event) != 0)
		return -errno;
	return 0;
}

int packet_open(struct packet_queue *queues, unsigned count, const struct packet_options *options)
{
	int group = NO_GROUP, rc = know_unfinished();

	for (unsigned i = 0; i < count; i++)
		queues[i] = (struct packet_queue){
			.usual = {.fd = -1, .slot_size = options->slot_size, .nb_slots = options->nb_slots},
			.careful = {.fd = -1, .slot_size = NO_ROOM, .nb_slots = options->nb_slots},
			.interface = options->interface,
			.pool = options->pool,
			.wait_fd = -1,
			.was_empty = true,
		};
	for (unsigned i = 0; i < count && rc == 0; i++)
		rc = open_queue(&queues[i]);
	for (unsigned i = 0; i < count && rc == 0; i++)
		rc = begin(&queues[i].usual, options->interface, count > 1, &group);
	/* Until all are of one group, each has everything. */
	for (unsigned i = 0; i < count && rc == 0; i++)
		rc = set_hears(queues[i].usual.fd, FROM_ELSEWHERE, count > 1);
	if (rc != 0)
		packet_close(queues, count);
	return rc;
}

static void close_socket(struct packet_socket *packet)
{
	if (packet->slots != NULL)
		munmap(packet->slots, (size_t)packet->slot_size * packet->nb_slots);
	if (packet->fd >= 0)
		close(packet->fd);
	packet->slots = NULL;
	packet->fd = -1;
}

void packet_close(struct packet_queue *queues, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		if (queues[i].wait_fd >= 0)
			close(queues[i].wait_fd);
		queues[i].wait_fd = -1;
		close_socket(&queues[i].usual);
		close_socket(&queues[i].careful);
	}
}

/* ------- looking after queues ------- */

static inline struct tpacket2_hdr *next_slot(const struct packet_socket *packet)
{
	return (void *)(packet->slots + (size_t)__atomic_load_n(&packet->next, __ATOMIC_RELAXED) * packet->slot_size);
}

static inline bool is_ready(const struct tpacket2_hdr *slot)
{
	return __atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER;
}

/* Count what the kernel has lost at a socket.  Returns what it was given since it was last asked. */
static struct tpacket_stats count_dropped(struct packet_queue *queue, const struct packet_socket *packet)
{
	struct tpacket_stats lately = {0}; /* the packets are those that were dropped, too */
	socklen_t size = sizeof(lately);

	if (getsockopt(packet->fd, SOL_PACKET, PACKET_STATISTICS, &lately, &size) == 0)
		queue->dropped += lately.tp_drops;
	return lately;
}

/* Has the usual socket had room, and got nothing of what came? */
static bool is_stuck(struct packet_queue *queue)
{
	const struct tpacket_stats lately = count_dropped(queue, &queue->usual);
	const bool stuck = queue->was_empty && lately.tp_drops > 0 && lately.tp_packets == lately.tp_drops;

	queue->was_empty = !is_ready(next_slot(&queue->usual));
	return stuck;
}

/* All queues, because flows are divided among all. */
static bool be_careful(struct packet_queue *queues, unsigned count)
{
	int group = NO_GROUP;

	for (unsigned i = 0; i < count; i++)
		if (begin(&queues[i].careful, queues[i].interface, count > 1, &group) != 0)
			return false;
	for (unsigned i = 0; i < count; i++) {
		set_hears(queues[i].usual.fd, NOTHING, false);
		set_hears(queues[i].careful.fd, FROM_ELSEWHERE, count > 1);
		__atomic_store_n(&queues[i].stuck, true, __ATOMIC_RELAXED);
	}
	return true;
}

bool packet_check(struct packet_queue *queues, unsigned count)
{
	bool stuck = false;

	for (unsigned i = 0; i < count; i++)
		stuck |= is_stuck(&queues[i]) && !queues[i].stuck;
	return stuck && be_careful(queues, count);
}

uint64_t packet_lost(struct packet_queue *queue)
{
	count_dropped(queue, &queue->careful);
	return queue->dropped + __atomic_load_n(&queue->lost, __ATOMIC_RELAXED);
}

/* ------- receiving ------- */

/* The slots that are ready, up to the first whose frame is not whole in it.  Returns how many. */
static inline uint16_t look(const struct packet_socket *packet, struct tpacket2_hdr **slots, uint16_t limit)
{
	uint32_t index = packet->next;
	uint16_t ready = 0;

	while (ready < limit) {
		struct tpacket2_hdr *slot = (void *)(packet->slots + (size_t)index * packet->slot_size);
		const uint32_t status = __atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE);

		if (!(status & TP_STATUS_USER))
			break;
		slots[ready++] = slot;
		if (unlikely(status & TP_STATUS_COPY))
			break;
		if (++index == packet->nb_slots)
			index = 0;
	}
	return ready;
}

/* Have the frame's first bytes fetched. */
static inline void ask_for(const struct tpacket2_hdr *slot)
{
	rte_prefetch0((const uint8_t *)slot + FRAME);
	rte_prefetch0((const uint8_t *)slot + FRAME + RTE_CACHE_LINE_SIZE);
}

/* Put the tag back that the kernel has cut off, behind the addresses. */
static void put_tag(uint8_t *frame, const struct tpacket2_hdr *slot)
{
	const bool has_type = slot->tp_status & TP_STATUS_VLAN_TPID_VALID;
	const __be16 tag[2] = {htons(has_type ? slot->tp_vlan_tpid : ETH_P_8021Q), htons(slot->tp_vlan_tci)};

	memcpy(frame + ADDRESSES, tag, sizeof(tag));
}

static void put_unfinished(struct rte_mbuf *mbuf, const struct virtio_net_hdr *header, unsigned tag)
{
	struct virtio_net_hdr *unfinished = RTE_MBUF_DYNFIELD(mbuf, packet_unfinished_offset, struct virtio_net_hdr *);

	*unfinished = *header;
	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		unfinished->csum_start += tag;
	mbuf->ol_flags |= packet_unfinished_flag;
}

static inline bool is_unfinished(const struct virtio_net_hdr *header)
{
	return (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || header->gso_type != VIRTIO_NET_HDR_GSO_NONE;
}

/* Copy the frame that lies whole in a slot.  Returns false when it is to be cut. */
static inline bool take(const struct tpacket2_hdr *slot, struct rte_mbuf *mbuf)
{
	const uint8_t *frame = (const uint8_t *)slot + slot->tp_mac;
	uint8_t *to = rte_pktmbuf_mtod(mbuf, uint8_t *);
	uint32_t length = slot->tp_snaplen;
	struct virtio_net_hdr header;
	unsigned tag = 0;

	if (unlikely(slot->tp_status & TP_STATUS_VLAN_VALID) && length >= ADDRESSES) {
		tag = TAG;
		memcpy(to, frame, ADDRESSES);
		put_tag(to, slot);
		copy_frame(to + ADDRESSES + TAG, frame + ADDRESSES, length - ADDRESSES);
	} else {
		copy_frame(to, frame, length);
	}
	mbuf->data_len = mbuf->pkt_len = length + tag;
	/* The header is a cache line of its own, and is looked at where it says more than this. */
	if (likely(!(slot->tp_status & TP_STATUS_CSUMNOTREADY) && length <= PLAIN))
		return true;
	memcpy(&header, frame - sizeof(header), sizeof(header));
	if (!is_unfinished(&header))
		return true;
	put_unfinished(mbuf, &header, tag);
	return header.gso_type == VIRTIO_NET_HDR_GSO_NONE;
}

/* Chain buffers to `mbuf` until `length` bytes have room.  Returns whether the pool has enough. */
static bool lengthen(struct rte_mempool *pool, struct rte_mbuf *mbuf, uint32_t length)
{
	struct rte_mbuf *last = mbuf;

	mbuf->pkt_len = length;
	for (;;) {
		last->data_len = RTE_MIN(length, (uint32_t)last->buf_len - last->data_off);
		length -= last->data_len;
		if (length == 0)
			return true;
		last->next = rte_pktmbuf_alloc(pool);
		if (last->next == NULL)
			return false;
		last = last->next;
		last->data_off = 0;
		mbuf->nb_segs++;
	}
}

/* Make it one buffer again. */
static void shorten(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf->next);
	mbuf->next = NULL;
	mbuf->nb_segs = 1;
}

/* Read what the socket has queued.  Returns its length, the header included; -1: there is none that could be read. */
static ssize_t read_queued(const struct packet_socket *packet, struct iovec *pieces, unsigned count)
{
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
	ssize_t got = recvmsg(packet->fd, &message, MSG_DONTWAIT | MSG_TRUNC);

	/* That the interface went down is reported once, before what came until then. */
	if (got < 0 && errno == ENETDOWN)
		got = recvmsg(packet->fd, &message, MSG_DONTWAIT | MSG_TRUNC);
	return got;
}

/* Read the slot's frame into the buffers of `mbuf`, which it fills.  Returns whether it is all there. */
static bool fill(const struct packet_socket *packet, const struct tpacket2_hdr *slot, struct rte_mbuf *mbuf,
		 unsigned tag)
{
	const uint32_t gap = tag > 0 ? ADDRESSES + TAG : 0;
	uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
	struct iovec pieces[PIECES + 3];
	struct virtio_net_hdr header;
	unsigned count = 0;

	pieces[count++] = (struct iovec){&header, sizeof(header)};
	if (tag > 0)
		pieces[count++] = (struct iovec){frame, ADDRESSES};
	pieces[count++] = (struct iovec){frame + gap, mbuf->data_len - gap};
	for (struct rte_mbuf *next = mbuf->next; next != NULL && count < RTE_DIM(pieces); next = next->next)
		pieces[count++] = (struct iovec){rte_pktmbuf_mtod(next, void *), next->data_len};
	if (read_queued(packet, pieces, count) != (ssize_t)(sizeof(header) + slot->tp_len))
		return false;
	if (tag > 0)
		put_tag(frame, slot);
	if (is_unfinished(&header))
		put_unfinished(mbuf, &header, tag);
	return true;
}

enum taken { TAKEN, LOST, LATER };

/* Take a frame that did not fit its slot into a chain that begins with `mbuf`. */
static enum taken take_queued(const struct packet_queue *queue, const struct packet_socket *packet,
			      const struct tpacket2_hdr *slot, struct rte_mbuf *mbuf)
{
	const unsigned tag = slot->tp_status & TP_STATUS_VLAN_VALID ? TAG : 0;
	struct iovec nothing = {NULL, 0};

	/* The kernel had no room to queue it. */
	if (!(slot->tp_status & TP_STATUS_COPY))
		return LOST;
	if (slot->tp_len + tag > LONGEST) {
		read_queued(packet, &nothing, 1);
		return LOST;
	}
	if (!lengthen(queue->pool, mbuf, slot->tp_len + tag)) {
		shorten(mbuf);
		return LATER;
	}
	if (fill(packet, slot, mbuf, tag))
		return TAKEN;
	shorten(mbuf);
	return LOST;
}

static uint16_t receive_by(struct packet_queue *queue, struct packet_socket *packet, struct rte_mbuf **mbufs,
			   uint16_t limit)
{
	struct tpacket2_hdr *slots[BURST];
	uint16_t ready = look(packet, slots, RTE_MIN(limit, (uint16_t)BURST)), used = 0, received = 0;
	uint32_t next;
	bool more = true;

	/* What there is no buffer for stays in the ring. */
	while (ready > 0 && unlikely(rte_pktmbuf_alloc_bulk(queue->pool, mbufs, ready) != 0))
		ready /= 2;
	while (used < ready && more) {
		struct tpacket2_hdr *slot = slots[used];

		if (used + AHEAD < ready)
			ask_for(slots[used + AHEAD]);
		if (likely(slot->tp_snaplen == slot->tp_len)) {
			more = take(slot, mbufs[received++]);
		} else {
			const enum taken taken = take_queued(queue, packet, slot, mbufs[received]);

			if (taken == LATER)
				break;
			if (taken == TAKEN)
				received++;
			else
				__atomic_store_n(&queue->lost, queue->lost + 1, __ATOMIC_RELAXED);
		}
		used++;
		__atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	}
	if (unlikely(received < ready))
		rte_pktmbuf_free_bulk(mbufs + received, ready - received);
	next = packet->next + used;
	__atomic_store_n(&packet->next, next < packet->nb_slots ? next : next - packet->nb_slots, __ATOMIC_RELAXED);
	return received;
}

uint16_t packet_receive(struct packet_queue *queue, struct rte_mbuf **mbufs, uint16_t limit)
{
	const bool stuck = __atomic_load_n(&queue->stuck, __ATOMIC_RELAXED);
	uint16_t received = receive_by(queue, &queue->usual, mbufs, limit);

	/* What came before is read first. */
	if (likely(!stuck) || received > 0)
		return received;
	return receive_by(queue, &queue->careful, mbufs, limit);
}
