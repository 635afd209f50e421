/* SPDX-License-Identifier: Apache-2.0 */
#include <cpuid.h>

#include "clock.h"

bool clock_is_invariant(void)
{
	unsigned eax, ebx, ecx, edx;

	return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) && (edx & 1u << 8);
}
