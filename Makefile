# `make` lists the targets. Everything that is built or fetched is kept outside of the checkout.
MAINSTAY_CACHE ?= $(HOME)/.cache/mainstay
CARGO_TARGET_DIR ?= $(MAINSTAY_CACHE)/target
BINDIR ?= /usr/local/bin
export MAINSTAY_CACHE CARGO_TARGET_DIR

BINARY = $(CARGO_TARGET_DIR)/x86_64-unknown-linux-musl/debug/mainstay
E2E = $(CARGO_TARGET_DIR)/x86_64-unknown-linux-musl/debug/mainstay-e2e

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-down test gen check-gen fmt lint unit instance python chart e2e soak bench-create bench-footprint \
        bench-failover bench-switchover bench-archive bench-backup bench-heal image \
        images kubectl-mainstay

help: ## list the targets
	@echo "Mainstay: MySQL clusters on Kubernetes. Targets:"
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 22
	@echo "Everything is cached in $(MAINSTAY_CACHE) (MAINSTAY_CACHE)."

setup: ## install what this machine lacks to build: Debian packages, toolchain, cargo-deny
	@scripts/setup

demo: setup ## a Kubernetes on this machine, the operator, a replicating MySQL cluster (or on the cluster of KUBECONFIG)
	@scripts/demo

demo-down: ## end the demo; nothing of it is left
	@scripts/demo --down

test: setup ## everything that CI runs, in stages; the first failure ends it
	@scripts/check

gen: setup ## write what is generated: crds/ and the chart's copies
	@scripts/gen

check-gen: setup ## fail if generated files are not current
	@scripts/gen --check

fmt: ## format the Rust sources
	cargo fmt --all

lint: setup ## formatting, clippy, direction of the crates, licences
	@scripts/check fmt deny clippy

unit: setup ## unit, property and simulation tests
	@scripts/check unit

instance: setup ## instance managers with a real mysqld
	@scripts/check instance

python: ## tests of the testbed's Python
	@scripts/check python

chart: setup ## lint and goldens of the chart (UPDATE_GOLDEN=1 writes them)
	@scripts/check chart

e2e: setup ## end-to-end tests on the default testbed, which stays up (NAMES="roll view": these only)
	@TESTBED_NAME=$${TESTBED_NAME:-mainstay} KEEP=1 scripts/check e2e

soak: setup ## end-to-end tests with the long ones
	@TESTBED_NAME=$${TESTBED_NAME:-mainstay} KEEP=1 SUITE=all scripts/check e2e

bench-create: setup ## time from the applied manifest to three available instances (RUNS=n, QUICK=1)
	@cargo build --workspace && $(E2E) bench create

bench-footprint: setup ## memory and CPU of the operator with 1 and with 10 clusters
	@cargo build --workspace && $(E2E) bench footprint

bench-failover: setup ## write gap in faults of the primary and its node (FAULT=name,… for single ones, RUNS=n)
	@cargo build --workspace && $(E2E) bench failover

bench-switchover: setup ## write gap when the primary is moved on purpose, under load (RUNS=n, QUICK=1)
	@cargo build --workspace && $(E2E) bench switchover

bench-archive: setup ## from a commit to its stored segment, and what is missing after a kill of the primary (SECONDS=n, QUICK=1)
	@cargo build --workspace && $(E2E) bench archive

bench-backup: setup ## a backup and a restore next to disk and store alone, and what commits notice of it (SIZE_GB=n, PROFILE=release)
	@mkdir -p $(MAINSTAY_CACHE)/bench
	@MAINSTAY_TEST_MYSQL=$$(scripts/mysql-files | tail -n 1) MAINSTAY_TEST_DIRECTORY=$(MAINSTAY_CACHE)/bench \
		cargo test $(if $(filter release,$(PROFILE)),--release) -p mainstay-instance --test bench_backup -- run

bench-heal: setup ## from a full disk or a lost volume to a healthy cluster (FAULT=name,… for single ones, RUNS=n, QUICK=1)
	@cargo build --workspace && $(E2E) bench heal

image: setup ## build the operator's image; prints its name and archive (PROFILE=release: what is published)
	@scripts/image

images: setup ## build the images of MySQL for the testbed, and the operator's
	@tests/testbed/testbed images
	@scripts/image

kubectl-mainstay: setup ## install the kubectl plugin into BINDIR (/usr/local/bin)
	@cargo build --workspace --bin mainstay
	install -D -m 755 $(BINARY) $(DESTDIR)$(BINDIR)/kubectl-mainstay
	@echo "Try: kubectl mainstay status CLUSTER"
