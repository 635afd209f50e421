# Each target does its own set-up: Debian packages, .venv, build/.  With nothing to do that takes about a second.
PREFIX ?= /usr/local
# Seconds for each fuzz target of `make fuzz`; 0: until Ctrl-C.
FUZZ_SECONDS ?= 0
# The release of Debian for `make fresh`.
SUITE ?= bookworm

.DEFAULT_GOAL := help
.PHONY: help demo test test-short test-long test-guests bench lint format page fuzz fresh setup setup-test install uninstall clean

help:
	@echo 'make demo       set up, then measure a service chain on this machine (about 2 minutes)'
	@echo 'make test       set up, then run the checks and tests (50 minutes); `make test-long` runs the rest'
	@echo 'make test-short  the checks, unit tests, and those tests that a new version of Debian may break: about 15 minutes'
	@echo 'make test-long  what `make test` leaves out: the long tests, both builds of all, longer fuzzing; about 2 hours'
	@echo 'make test-guests  of these, the ones with virtual machines'
	@echo 'make bench      the cost of one hop beside Open vSwitch with DPDK, at 64, 512 and 1518 B'
	@echo 'make lint       ruff, mypy, clang-format;  make format  applies the layout'
	@echo 'make page       build the page of the dashboard from web/ (needs npm)'
	@echo 'make fuzz       run the fuzz targets until Ctrl-C (or FUZZ_SECONDS=600), and keep the inputs they found'
	@echo 'make fresh      prove demo and test in a Debian 12 where nothing is installed yet; SUITE=trixie: demo and test-short in Debian 13'
	@echo 'make install    put tailrace on the PATH (PREFIX=/usr/local);  make uninstall  takes it away'
	@echo 'make clean      remove what was built'

setup:
	@scripts/setup packages python build

setup-test:
	@scripts/setup test-packages python build

demo: setup
	@scripts/as-root .venv/bin/tailrace demo

test:
	@scripts/test

test-short:
	@FUZZ_SECONDS=10 SYSTEM=short GUESTS=short scripts/test lint c asan fuzz unit system browser guest

test-long:
	@FUZZ_SECONDS=300 SYSTEM=whole GUESTS=whole scripts/test fuzz system asan-system guest asan-guest

test-guests:
	@GUESTS=whole scripts/test guest asan-guest

bench: setup-test
	@for frame in 64 512 1518; do scripts/as-root .venv/bin/tailrace bench hop --frame $$frame || exit; done

lint: setup-test
	@scripts/test lint

format: setup-test
	@.venv/bin/ruff check --fix --quiet . && .venv/bin/ruff format --quiet .
	@find dataplane -name '*.[ch]' -exec .venv/bin/clang-format -i {} +

page:
	@scripts/setup web
	@node web/build.mjs

fuzz: setup-test
	@FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_KEEP=yes scripts/test fuzz

fresh:
	@SUITE=$(SUITE) scripts/fresh $(FRESH)

install: setup
	@scripts/install $(PREFIX)

uninstall:
	@scripts/install --remove $(PREFIX)

clean:
	rm -rf .venv build build-asan build-fuzz build-guest build-images tailrace.egg-info web/node_modules .mypy_cache .ruff_cache .hypothesis
	find tailrace tests -name __pycache__ -prune -exec rm -rf {} +
