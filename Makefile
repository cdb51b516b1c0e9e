# `make` lists the targets. As root, a target installs the packages that it needs on Debian or Ubuntu.
PREFIX  ?= /usr/local
DESTDIR ?=
UNITDIR ?= /usr/lib/systemd/system
LIBDIR  ?= $(PREFIX)/lib
CONFIG  := /etc/plumbline/plumbline.yaml
# Targets build, package and install for this machine's architecture. ARCH=arm64 selects arm64, with Debian's cross compiler. User-mode emulation
# (qemu-user) then runs the programs to generate their man pages.
ARCH    ?=
ifeq ($(filter $(ARCH),$(if $(filter x86_64,$(shell uname -m)),amd64,arm64)),$(ARCH))
TARGET_DIR := target
else ifeq ($(ARCH),arm64)
TARGET_DIR := target/aarch64-unknown-linux-gnu
CROSS      := aarch64-linux-gnu-
EMULATE    := qemu-aarch64-static -L /usr/aarch64-linux-gnu
CROSS_DEPS := arm64
BUILD_FOR  := --target aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER := $(CROSS)gcc
else
$(error ARCH=$(ARCH) is not known: only arm64 is built for on other machines)
endif
# Directory of the programs to install and to package
BUILT   ?= $(TARGET_DIR)/release

CARGO   := scripts/cargo
PROGRAM := $(BUILT)/plumbline
LDMS_PREFIX ?= /opt/ldms
LDMS_PLUGIN := $(TARGET_DIR)/ldms/libplumbline.so
LDMS_LIBDIR ?= $(LDMS_PREFIX)/lib/ovis-ldms

.PHONY: help deps build ldms run demo install-proxy install-ldms packages image image-proxy test test-packages test-unit test-faults faults test-native test-vm test-long test-kernels test-arm64 test-ceph test-fuzz check bench install uninstall clean
.NOTPARALLEL:

help:                ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 20

deps:                ## install the packages that the targets below need (root)
	@scripts/deps build check demo test

build:               ## build the release: target/release/plumbline; ARCH=arm64 builds target/aarch64-unknown-linux-gnu/release/plumbline
	@scripts/deps build $(CROSS_DEPS)
	@$(CARGO) build --release --locked $(BUILD_FOR)

ldms:                ## build the plugin for LDMS, target/ldms/libplumbline.so, against an installed LDMS; LDMS_PREFIX=/opt/ldms
	@$(MAKE) --no-print-directory -C ldms LDMS_PREFIX=$(LDMS_PREFIX) OUT=../$(TARGET_DIR)/ldms $(if $(CROSS),CC=$(CROSS)gcc)

run: build           ## run the daemon on this machine with its default configuration (root); ARGS="--config FILE ..."
	@$(PROGRAM) run $(ARGS)

demo: build          ## make a test mount slow, and show what Plumbline reports (root, one minute)
	@scripts/deps demo
	@scripts/demo

test: build          ## run all tests (root); tests in guests run on the oldest kernel, 6.12 and the newest
	@scripts/deps test ceph packages
	@tests/run

test-unit:           ## run the tests of the Rust code
	@tests/run unit

test-faults: build   ## replay the recorded faults and check the verdicts
	@tests/run faults

faults: build        ## record the corpus of faults again, in guests, into the cache; KERNELS="oldest 6.12 newest": an hour for each kernel
	@scripts/deps test
	@tests/faults/record $(KERNELS)

test-native: build   ## test the program on this machine's kernel (root)
	@tests/run native

test-vm: build       ## test the program on stock kernels in QEMU; KERNELS="oldest 6.12 newest" TESTS="trace nfs"
	@scripts/deps vm
	@tests/run vm

test-long: build     ## run more scenarios in QEMU, which `make test` leaves out; KERNELS="oldest 6.12 newest"
	@scripts/deps vm
	@tests/run long

test-kernels: build  ## check which programs load, and the verifier's work, on every kernel in Debian's suites; KERNELS="all newest-rt"
	@scripts/deps vm
	@tests/run kernels

test-arm64:          ## test the arm64 build and packages, and in QEMU the probes, one SMB and one NFS incident; KERNELS="6.12-arm64 newest-arm64"
	@$(MAKE) --no-print-directory build ARCH=arm64
	@scripts/deps build vm packages arm64
	@tests/run arm64

test-ceph: build     ## test the libcephfs proxy with a cluster on loopback (root, to install missing packages)
	@scripts/deps ceph
	@tests/run ceph

test-packages: build ## build, check, install and run packages and container image (root)
	@scripts/deps vm packages
	@tests/run packages

test-fuzz:           ## run each fuzz target briefly; needs a nightly Rust and cargo-fuzz
	@tests/run fuzz

check:               ## check formatting, lints, licences and spelling of the repository
	@scripts/deps check
	@scripts/check

bench: build         ## run paired measurements, and print ratios
	@scripts/deps bench
	@bench/run

docs-table: build    ## write docs/kernels.md: what each probe sees on each kernel, measured in QEMU; KERNELS="oldest 6.12 newest 6.12-arm64 newest-arm64"
	@$(MAKE) --no-print-directory build ARCH=arm64
	@scripts/deps vm arm64
	@scripts/probe-table

install:             ## install program, man pages, completions, dashboards and rules, systemd unit and configuration; PREFIX, DESTDIR (root)
	@test -x $(PROGRAM) || { echo "make install: there is no $(PROGRAM) yet; make build" >&2; exit 1; }
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/sbin/plumbline
	install -D -m 644 packaging/systemd/plumbline.service $(DESTDIR)$(UNITDIR)/plumbline.service
	sed -i 's|/usr/sbin/plumbline|$(PREFIX)/sbin/plumbline|' $(DESTDIR)$(UNITDIR)/plumbline.service
	$(EMULATE) $(PROGRAM) generate $(DESTDIR)$(PREFIX)/share
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/plumbline/grafana packaging/grafana/*.json
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/plumbline/prometheus packaging/prometheus/*.rules.yml
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/plumbline/otel packaging/otel/collector.yaml
	install -d -m 755 $(DESTDIR)$(dir $(CONFIG))conf.d
	test -e $(DESTDIR)$(CONFIG) || install -D -m 644 config/plumbline.yaml $(DESTDIR)$(CONFIG)
	@echo "now: systemctl daemon-reload && systemctl enable --now plumbline"

install-proxy:       ## install the libcephfs proxy: daemon, man page, Samba library, socket, service, SELinux and AppArmor rules; PREFIX, LIBDIR, DESTDIR (root)
	@test -x $(BUILT)/libcephfsd || { echo "make install-proxy: there is no $(BUILT)/libcephfsd yet; make build" >&2; exit 1; }
	install -D -m 755 $(BUILT)/libcephfsd $(DESTDIR)$(PREFIX)/sbin/libcephfsd
	install -d $(DESTDIR)$(PREFIX)/share/man/man8
	$(EMULATE) $(BUILT)/libcephfsd --man > $(DESTDIR)$(PREFIX)/share/man/man8/libcephfsd.8
	install -D -m 644 $(BUILT)/libcephfs_proxy_client.so $(DESTDIR)$(LIBDIR)/libcephfs_proxy.so.2
	install -D -m 644 packaging/systemd/libcephfsd.socket $(DESTDIR)$(UNITDIR)/libcephfsd.socket
	install -D -m 644 packaging/systemd/libcephfsd.service $(DESTDIR)$(UNITDIR)/libcephfsd.service
	sed -i 's|/usr/sbin/libcephfsd|$(PREFIX)/sbin/libcephfsd|' $(DESTDIR)$(UNITDIR)/libcephfsd.service
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/plumbline-libcephfs-proxy/selinux packaging/selinux/plumbline_libcephfsd.*
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/plumbline-libcephfs-proxy/apparmor packaging/apparmor/smbd-libcephfs-proxy
	test -n "$(DESTDIR)" || ldconfig
	@echo "now: systemctl daemon-reload && systemctl enable --now libcephfsd.socket"

install-ldms:        ## install the plugin for LDMS and its configuration; LDMS_PREFIX=/opt/ldms, LDMS_LIBDIR, PREFIX, DESTDIR (root)
	@test -e $(LDMS_PLUGIN) || { echo "make install-ldms: there is no $(LDMS_PLUGIN) yet; make ldms" >&2; exit 1; }
	install -D -m 644 $(LDMS_PLUGIN) $(DESTDIR)$(LDMS_LIBDIR)/libplumbline.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/plumbline/ldms ldms/config/*

packages: build      ## build .deb and .rpm packages of the built programs, and the Helm chart, in target/packages; ARCH=arm64, VERSION=, MAINTAINER=, HOMEPAGE=
	@scripts/deps packages $(CROSS_DEPS)
	@if [ -z "$(CROSS)" ] && [ -e $(LDMS_PREFIX)/include/ldms/ldmsd.h ]; then $(MAKE) --no-print-directory ldms; fi
	@VERSION=$(VERSION) ARCH=$(ARCH) BUILT=$(BUILT) LDMS_PREFIX=$(LDMS_PREFIX) packaging/build target/packages

image: packages      ## build the container image localhost/plumbline:VERSION, and target/packages/plumbline-image.tar (root)
	@packaging/container/build "$$(ls -t target/packages/plumbline_*_$$(dpkg --print-architecture).deb | head -n 1)" target/packages/plumbline-image.tar

image-proxy: packages ## build the container image localhost/plumbline-libcephfs-proxy:VERSION, and target/packages/plumbline-libcephfs-proxy-image.tar (root)
	@packaging/container/build-proxy "$$(ls -t target/packages/plumbline-libcephfs-proxy_*_$$(dpkg --print-architecture).deb | head -n 1)" target/packages/plumbline-libcephfs-proxy-image.tar

uninstall:           ## remove what `make install` installed; configuration and incidents stay (root)
	rm -f $(DESTDIR)$(PREFIX)/sbin/plumbline $(DESTDIR)$(UNITDIR)/plumbline.service
	rm -rf $(DESTDIR)$(PREFIX)/share/plumbline
	cd $(DESTDIR)$(PREFIX)/share && rm -f man/man1/plumbline.1 man/man1/plumbline-*.1 bash-completion/completions/plumbline zsh/site-functions/_plumbline fish/vendor_completions.d/plumbline.fish

clean:               ## remove the build output
	@$(CARGO) clean
