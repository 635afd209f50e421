/* SPDX-License-Identifier: Apache-2.0
 *
 * cmocka.h and what it expects to be included first.
 */
#ifndef TAILRACE_TEST_CMOCKA_ALL_H
#define TAILRACE_TEST_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
