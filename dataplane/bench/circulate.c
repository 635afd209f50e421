/* SPDX-License-Identifier: Apache-2.0
 *
 * tailrace-circulate: the guests of a switch on one core, with frames that circulate as testpmd's do: each is made
 * once, and sent again from where it began as soon as it arrives.
 *
 * First all frames are sent and thrown away, until each arrives once: by then the switch has found its rules, and a
 * bridge its stations.  At SIGTERM the guests send nothing any more, and what still arrives is held against what was
 * made.  So a frame that was lost, doubled, altered or led elsewhere is seen, and costs nothing before.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_malloc.h>

#include "common/copy.h"
#include "common/device.h"
#include "common/eal.h"
#include "common/log.h"
#include "common/option.h"
#include "common/stop.h"

#include "circulate_frames.h"

enum {
	PORTS = RTE_MAX_ETHPORTS,
	FRAMES = 1024,
	BURST = 32,
	RING = 1024,
	BUFFERS_APART = 8192, /* that are in no ring */
	CACHE = 256,
	MEMORY_MIB = 160,
	REHEARSALS = 20,
	QUIET_MS = 200, /* nothing arrives for so long: nothing is on its way */
};

struct guest {
	struct device device;
	struct guest *back; /* from which frames that arrive here are sent again; NULL: none is to arrive */
	struct guest *to;   /* (one of those) at which its own frames arrive; NULL: it has none */
	uint16_t tag;	    /* VLAN of the frames that pass this port; 0: none */
	uint64_t received;
	bool *seen; /* by number, of its own frames */
};

static struct guest guests[PORTS];
static unsigned nb_guests;
static struct rte_mempool *buffers, *tails;

static struct frames frames = {.length = FRAME_LEAST, .count = FRAMES, .flows = 1};
static unsigned chained; /* one in so many is sent in two pieces; 0: none */
static bool rewrite;	 /* each byte that arrives is read, and written before it is sent again */

/* What is counted.  A stray frame arrived where none is to, or with a wrong tag. */
static uint64_t sent, sent_chained, received, received_bytes, received_unfinished, stray;
static uint64_t rehearsed, right, wrong;

/* Descriptors by which processes on the same core take turns: read before, and written to after a pass.  -1: none. */
static int turn = -1, next_turn = -1;

static atomic_bool stop;

/* ------- sending ------- */

/* In two pieces: the headers, and the rest, which a second buffer points to. */
static void chain(struct rte_mbuf *mbuf)
{
	struct rte_mbuf *tail = rte_pktmbuf_alloc(tails);

	if (tail == NULL)
		return;
	rte_pktmbuf_attach(tail, mbuf);
	rte_pktmbuf_adj(tail, FRAME_HEADERS);
	mbuf->data_len = FRAME_HEADERS;
	mbuf->next = tail;
	mbuf->nb_segs = 2;
	sent_chained++;
}

/*
 * Of a frame whose checksum is unfinished `ol_flags` say so, as a driver does of one that arrives so; that for TAPs
 * also of one that has none, as ours that are not to be unfinished.
 */
static void dress(struct rte_mbuf **mbuf, const struct guest *from)
{
	const bool complete = frames.unfinished == 0 ||
			      ((*mbuf)->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) != RTE_MBUF_F_RX_L4_CKSUM_NONE;

	(*mbuf)->ol_flags = complete ? 0 : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM;
	(*mbuf)->l2_len = sizeof(struct rte_ether_hdr);
	(*mbuf)->l3_len = sizeof(struct rte_ipv4_hdr);
	(*mbuf)->vlan_tci = from->tag;
	if (from->tag != 0)
		rte_vlan_insert(mbuf);
	if (chained > 0 && (sent + 1) % chained == 0)
		chain(*mbuf);
	sent++;
}

static void send_all(const struct guest *from, struct rte_mbuf **mbufs, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		dress(&mbufs[i], from);
	for (unsigned done = 0; done < count;)
		done += rte_eth_tx_burst(from->device.port, 0, mbufs + done, count - done);
}

static void send_first(struct guest *from, unsigned first)
{
	const unsigned count = RTE_MIN((unsigned)BURST, frames.count - first);
	struct rte_mbuf *mbufs[BURST];

	if (rte_pktmbuf_alloc_bulk(buffers, mbufs, count) != 0)
		return;
	for (unsigned i = 0; i < count; i++) {
		frame_make(&frames, from - guests, from->to - guests, first + i, rte_pktmbuf_mtod(mbufs[i], uint8_t *));
		mbufs[i]->data_len = mbufs[i]->pkt_len = frame_length(&frames, first + i);
		mbufs[i]->ol_flags = frame_is_unfinished(&frames, first + i) ? RTE_MBUF_F_RX_L4_CKSUM_NONE : 0;
	}
	send_all(from, mbufs, count);
}

/* ------- receiving ------- */

typedef void take(struct guest *at, struct rte_mbuf **mbufs, unsigned count);

/* If nobody is there to have it any more, all turns are ours. */
static void await_turn(void)
{
	char byte;

	if (turn >= 0 && read(turn, &byte, 1) != 1)
		turn = next_turn = -1;
}

static void give_turn(void)
{
	if (next_turn >= 0 && write(next_turn, "", 1) != 1)
		turn = next_turn = -1;
}

/* What has arrived at all ports.  Returns how many frames. */
static unsigned pass(take *take)
{
	struct rte_mbuf *mbufs[BURST];
	unsigned all = 0;

	await_turn();
	for (struct guest *at = guests; at < guests + nb_guests; at++) {
		unsigned count = device_receive(&at->device, 0, mbufs, BURST);

		if (count > 0)
			take(at, mbufs, count);
		all += count;
	}
	give_turn();
	return all;
}

static void pass_until_quiet(take *take)
{
	const uint64_t wait = rte_get_tsc_hz() / 1000 * QUIET_MS;
	uint64_t last = rte_rdtsc();

	while (rte_rdtsc() - last < wait)
		if (pass(take) > 0)
			last = rte_rdtsc();
}

static void send_each_once(take *take)
{
	for (unsigned first = 0; first < frames.count; first += BURST) {
		for (struct guest *from = guests; from < guests + nb_guests; from++)
			if (from->to != NULL)
				send_first(from, first);
		pass(take);
	}
}

static void throw_away(struct guest *at, struct rte_mbuf **mbufs, unsigned count)
{
	rte_pktmbuf_free_bulk(mbufs, count);
	received += count;
}

/* What has arrived is counted; its tag is taken off. */
static void take_in(struct guest *at, struct rte_mbuf **mbufs, unsigned count)
{
	received += count;
	at->received += count;
	for (unsigned i = 0; i < count; i++) {
		if (at->tag != 0)
			stray += rte_vlan_strip(mbufs[i]) != 0 || mbufs[i]->vlan_tci != at->tag;
		received_bytes += mbufs[i]->pkt_len;
		received_unfinished += (mbufs[i]->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) ==
				       RTE_MBUF_F_RX_L4_CKSUM_NONE;
	}
	if (at->back == NULL)
		stray += count;
}

/* As they were, for the account in the end; but all their lines have been changed here. */
static void rewrite_all(struct rte_mbuf **mbufs, unsigned count)
{
	static uint8_t read[FRAME_MOST];

	for (unsigned i = 0; i < count; i++) {
		uint8_t *frame = rte_pktmbuf_mtod(mbufs[i], uint8_t *);
		const uint32_t length = RTE_MIN(mbufs[i]->data_len, sizeof(read));

		copy_frame(read, frame, length);
		__asm__ volatile("" ::: "memory"); /* so that it is written again */
		copy_frame(frame, read, length);
	}
}

static void send_again(struct guest *at, struct rte_mbuf **mbufs, unsigned count)
{
	take_in(at, mbufs, count);
	if (rewrite)
		rewrite_all(mbufs, count);
	if (at->back != NULL)
		send_all(at->back, mbufs, count);
	else
		rte_pktmbuf_free_bulk(mbufs, count);
}

/* Whether a frame that has arrived is as it was made, is where it is meant to be, and has not been there before. */
static bool intact(struct rte_mbuf *mbuf, const struct guest *at)
{
	const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	unsigned from, number;

	if (at->back == NULL || mbuf->nb_segs > 1 || mbuf->data_len < FRAME_HEADERS)
		return false;
	frame_read(frame, &from, &number);
	if (at->back - guests != from || number >= frames.count || at->back->seen[number])
		return false;
	at->back->seen[number] = true;
	return frame_is(&frames, from, at->back->to - guests, number, frame, mbuf->data_len);
}

static void check(struct guest *at, struct rte_mbuf **mbufs, unsigned count)
{
	take_in(at, mbufs, count);
	for (unsigned i = 0; i < count; i++)
		*(intact(mbufs[i], at) ? &right : &wrong) += 1;
	rte_pktmbuf_free_bulk(mbufs, count);
}

/* ------- the program ------- */

/* Returns whether in the end each frame arrived once. */
static bool rehearse(void)
{
	for (unsigned i = 0; i < REHEARSALS && !atomic_load(&stop); i++) {
		uint64_t sent_before = sent, received_before = received;

		send_each_once(throw_away);
		pass_until_quiet(throw_away);
		if (sent - sent_before == received - received_before)
			return true;
		log_info("of %" PRIu64 " frames %" PRIu64 " arrived", sent - sent_before, received - received_before);
	}
	return false;
}

static int play(void *unused)
{
	if (!rehearse()) {
		log_error("in %d tries not every frame arrived once", REHEARSALS);
		return -EIO;
	}
	rehearsed = sent;
	sent = sent_chained = received = 0;
	puts("circulating");
	fflush(stdout);
	send_each_once(send_again);
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		pass(send_again);
	pass_until_quiet(check);
	return 0;
}

static void print(void)
{
	printf("{\"rehearsed\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"chained\": %" PRIu64 ", \"received\": %" PRIu64
	       ", \"bytes\": %" PRIu64 ", \"unfinished\": %" PRIu64 ", \"stray\": %" PRIu64 ", \"right\": %" PRIu64
	       ", \"wrong\": %" PRIu64 ", \"ports\": [",
	       rehearsed, sent, sent_chained, received, received_bytes, received_unfinished, stray, right, wrong);
	for (unsigned i = 0; i < nb_guests; i++)
		printf("%s%" PRIu64, i > 0 ? ", " : "", guests[i].received);
	puts("]}");
}

/* "1,0,-": for each port the one that frames are sent again from. */
static bool read_back(char *list)
{
	unsigned count = 0;

	for (char *text = strtok(list, ","); text != NULL; text = strtok(NULL, ","), count++) {
		if (count == nb_guests)
			return false;
		if (strcmp(text, "-") == 0)
			continue;
		guests[count].back = &guests[option_number("back", text, 0, nb_guests - 1)];
		if (guests[count].back->to == NULL)
			guests[count].back->to = &guests[count];
	}
	return count == nb_guests;
}

/* "0,100": one for each port. */
static bool read_tags(char *list)
{
	unsigned count = 0;

	for (char *text = strtok(list, ","); text != NULL; text = strtok(NULL, ",")) {
		if (count == nb_guests)
			return false;
		guests[count++].tag = option_number("tags", text, 0, 4094);
	}
	return count == nb_guests;
}

/* Returns whether there is memory, and all ports are there. */
static bool open_ports(char *const *uris, bool offloads)
{
	struct device_options options = {.offloads = offloads};
	struct device_error error;

	buffers = rte_pktmbuf_pool_create("buffers", BUFFERS_APART + nb_guests * (RING + frames.count), CACHE, 0,
					  2048 + RTE_PKTMBUF_HEADROOM, 0);
	tails = rte_pktmbuf_pool_create("tails", BUFFERS_APART, CACHE, 0, 0, 0);
	if (buffers == NULL || tails == NULL) {
		log_error("no memory for packet buffers");
		return false;
	}
	options.pool = buffers;
	for (unsigned i = 0; i < nb_guests; i++) {
		guests[i].seen = calloc(frames.count, sizeof(*guests[i].seen));
		if (guests[i].seen == NULL || device_open(&guests[i].device, uris[i], &options, &error) != 0) {
			log_error("%s", guests[i].seen == NULL ? "no memory" : error.text);
			return false;
		}
	}
	return true;
}

static const char usage[] =
	"usage: tailrace-circulate --port URI... --back PORT,... [--tags VLAN,...] [--frame BYTES|imix] [--frames N]\n"
	"                          [--flows N] [--unfinished N] [--chained N] [--core CPU] [--huge]\n"
	"                          [--rewrite] [--turns FD,FD]\n"
	"\n"
	"Play the guests of a switch, until SIGTERM.  --back: for each port the one that frames which arrive there are "
	"sent\n"
	"again from, - for none.  --frames: that begin at each of those.  --unfinished, --chained: one in N.\n"
	"--rewrite: read and write every byte of a frame before it is sent again.\n"
	"--turns: read a byte from the first before each look at all ports, and write one to the second after it.\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},
		{"back", required_argument, NULL, 'b'},
		{"tags", required_argument, NULL, 't'},
		{"frame", required_argument, NULL, 'l'},
		{"frames", required_argument, NULL, 'n'},
		{"flows", required_argument, NULL, 'f'},
		{"unfinished", required_argument, NULL, 'u'},
		{"chained", required_argument, NULL, 'k'},
		{"rewrite", no_argument, NULL, 'w'},
		{"core", required_argument, NULL, 'c'},
		{"turns", required_argument, NULL, 'r'},
		{"huge", no_argument, NULL, 'g'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct eal_options eal = {.program = "tailrace-circulate", .core = -1, .memory_mib = MEMORY_MIB};
	char *uris[PORTS], *back = NULL, *tags = NULL;
	struct pollfd wait = {.events = POLLIN};
	int option, rc;

	log_open("tailrace-circulate", LOG_LEVEL_INFO);
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1)
		switch (option) {
		case 'p':
			if (nb_guests == PORTS) {
				log_error("--port: at most %d", PORTS);
				return 2;
			}
			uris[nb_guests++] = optarg;
			break;
		case 'b':
			back = optarg;
			break;
		case 't':
			tags = optarg;
			break;
		case 'l':
			frames.length = strcmp(optarg, "imix") == 0
						? 0
						: option_number("frame", optarg, FRAME_LEAST, FRAME_MOST);
			break;
		case 'n':
			frames.count = option_number("frames", optarg, 1, FRAMES);
			break;
		case 'f':
			frames.flows = option_number("flows", optarg, 1, FRAMES);
			break;
		case 'u':
			frames.unfinished = option_number("unfinished", optarg, 0, FRAMES);
			break;
		case 'k':
			chained = option_number("chained", optarg, 0, FRAMES);
			break;
		case 'w':
			rewrite = true;
			break;
		case 'c':
			eal.core = (int)option_number("core", optarg, 0, 1023);
			break;
		case 'r':
			if (sscanf(optarg, "%d,%d", &turn, &next_turn) != 2) {
				log_error("--turns %s: expected two file descriptors", optarg);
				return 2;
			}
			break;
		case 'g':
			eal.huge = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			option_wrong(option, argv[optind - 1]);
		}
	if (nb_guests == 0 || back == NULL || optind < argc || !read_back(back) || (tags != NULL && !read_tags(tags))) {
		fputs(usage, stderr);
		return 2;
	}
	wait.fd = stop_open();
	if (wait.fd < 0 || eal_start(&eal) != 0 || !open_ports(uris, frames.unfinished > 0))
		return 1;
	rte_eal_remote_launch(play, NULL, eal_worker());
	/* DPDK's driver for TAPs is told of frames by signals. */
	while (rte_eal_get_lcore_state(eal_worker()) == RUNNING && poll(&wait, 1, 100) <= 0)
		;
	atomic_store(&stop, true);
	rc = rte_eal_wait_lcore(eal_worker());
	if (rc == 0)
		print();
	for (unsigned i = 0; i < nb_guests; i++)
		device_close(&guests[i].device);
	rte_eal_cleanup();
	return rc == 0 ? 0 : 1;
}
