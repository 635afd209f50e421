/* SPDX-License-Identifier: Apache-2.0
 *
 * A capture file as it falls: it is refused with a reason, or every frame of it can be sent and signed.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "tester/capture.h"

static void check_capture(const struct capture *capture)
{
	uint64_t end = 0;

	check(capture->nb_frames > 0);
	for (uint32_t i = 0; i < capture->nb_frames; i++) {
		const struct capture_frame *frame = &capture->frames[i];
		struct signature signature;

		check(frame->start == end);
		check(frame->length >= CAPTURE_SHORTEST && frame->length <= capture->longest);
		check(frame->signature_at + SIGNATURE_SIZE <= frame->length);
		check(frame->checksum_at + 2 <= frame->signature_at || frame->checksum_at == 0);
		capture_frame_sign(frame, capture->bytes + frame->start, 1, 2, 3, 4);
		check(signature_read(capture->bytes + frame->start + frame->signature_at, 1, &signature));
		check(capture_datagram_end(capture->bytes + frame->start, frame->length) <= frame->length);
		end += frame->length;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[CAPTURE_ERROR] = "", path[32];
	struct capture *capture;
	int file = memfd_create("capture", MFD_CLOEXEC);

	check(file >= 0);
	check(write(file, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	capture = capture_open(path, CAPTURE_LONGEST, error);
	check((capture == NULL) == (error[0] != '\0'));
	if (capture != NULL)
		check_capture(capture);
	capture_close(capture);
	close(file);
	return 0;
}
