/* SPDX-License-Identifier: Apache-2.0
 *
 * What the leak sanitizer is to say nothing of, in a build with it: what DPDK's libraries do not give back.
 */
#ifdef __SANITIZE_ADDRESS__
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_options(void);

const char *__lsan_default_suppressions(void)
{
	/* DPDK's AF_XDP driver forgets the description of its buffers when it is closed. */
	return "leak:xsk_umem__create\n";
}

const char *__lsan_default_options(void)
{
	return "print_suppressions=0";
}
#else
typedef int sanitizer_none; /* an empty file is no C */
#endif
