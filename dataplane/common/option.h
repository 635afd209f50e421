/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs' command lines have in common.  A mistake is the user's: one line that says what was expected,
 * and the end of the program with status 2.
 */
#ifndef TAILRACE_COMMON_OPTION_H
#define TAILRACE_COMMON_OPTION_H

/* The whole number from `least` to `most` that `text` says; ends the program if it says anything else. */
long option_number(const char *option, const char *text, long least, long most);

/* For a program that takes no options: print what it does and end, if there is any; it is wrong unless --help. */
void option_none(int argc, char *const argv[], const char *does);

/* End the program over an argument that getopt_long() returned as wrong: ':' or '?'. */
_Noreturn void option_wrong(int returned, const char *argument);

#endif
