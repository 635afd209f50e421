/* SPDX-License-Identifier: Apache-2.0
 *
 * DPDK's driver for AF_PACKET sends the frames of an `if:` device and receives none: device_packet.h does that.
 *
 * The driver opens sockets that receive as well, and has no option to leave that out.  Linux would then deliver each
 * frame twice, and join IPv4 fragments for the driver.  So the driver's socket(), bind() and setsockopt() are ours,
 * which name no protocol: such a socket receives nothing (packet(7)).  Seen with DPDK 22.11 and 24.11.
 *
 * For the thread that opens devices.
 */
#ifndef TAILRACE_COMMON_DEVICE_SEND_ONLY_H
#define TAILRACE_COMMON_DEVICE_SEND_ONLY_H

/* Packet sockets that this thread opens from now on send only. */
void send_only_begin(void);

/* No more.  Returns how many were bound since send_only_begin(). */
unsigned send_only_end(void);

#endif
