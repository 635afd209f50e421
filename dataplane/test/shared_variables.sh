#!/bin/sh
# usage: shared_variables.sh LIBRARY...
# What workers run has no variables that they share, where one may read what another is just setting up: what they need
# is constant, a thread's own, or given to them.  Functions that are set once, before any worker, are named here.
shared=$(for library; do objdump -t "$library" || echo "objdump failed"; done |
	grep -E 'objdump failed| O \.(bss|data)(\.|[[:space:]])' | grep -vE '\.data\.rel\.ro| vring_on_(quarantine|wake)$')
[ -z "$shared" ] && exit
printf 'variables that workers share:\n%s\n' "$shared"
exit 1
