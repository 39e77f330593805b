# Installing, and one tarball that runs elsewhere.
PREFIX ?= /usr/local
DESTDIR ?=
BASH_COMPLETION ?= $(PREFIX)/share/bash-completion/completions
ZSH_COMPLETION ?= $(PREFIX)/share/zsh/site-functions
FISH_COMPLETION ?= $(PREFIX)/share/fish/vendor_completions.d
MAN := build/man

.PHONY: man install uninstall dist
man: $(B)/sluice
	@command -v python3 >/dev/null || { echo "man pages are written by python3, which is not here: apt-get install python3" >&2; exit 1; }
	@deploy/man/make_man.py $(B)/sluice $(MAN)
## make install             program, man pages, completion (PREFIX=/usr/local, DESTDIR=)
install: $(B)/sluice man
	install -D -m 755 $(B)/sluice $(DESTDIR)$(PREFIX)/bin/sluice
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(MAN)/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 deploy/completion/sluice.bash $(DESTDIR)$(BASH_COMPLETION)/sluice
	install -D -m 644 deploy/completion/_sluice $(DESTDIR)$(ZSH_COMPLETION)/_sluice
	install -D -m 644 deploy/completion/sluice.fish $(DESTDIR)$(FISH_COMPLETION)/sluice.fish
	install -D -m 644 LICENSE $(DESTDIR)$(PREFIX)/share/doc/sluice/LICENSE
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/sluice $(DESTDIR)$(PREFIX)/share/man/man1/sluice.1 \
	  $(DESTDIR)$(PREFIX)/share/man/man1/sluice-*.1 $(DESTDIR)$(BASH_COMPLETION)/sluice \
	  $(DESTDIR)$(ZSH_COMPLETION)/_sluice $(DESTDIR)$(FISH_COMPLETION)/sluice.fish
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/sluice
## make dist                dist/sluice-VERSION-linux-x86_64.tar.gz: runs on any current Linux, libraries inside
dist: man
	@scripts/make_dist.sh $(MAN)

# Of a build of its own: kernels for all GPUs, unless CUDA_ARCHS says which.
CUDA_ARCHS_DEB = $(if $(filter command line,$(origin CUDA_ARCHS)),$(CUDA_ARCHS),all)
.PHONY: deb check-deb
## make deb                 dist/sluice_VERSION_ARCH.deb for Debian 12: program, man pages, completion, service
deb: man
	@command -v dpkg-shlibdeps >/dev/null || { echo "dpkg-shlibdeps is not here: apt-get install dpkg-dev" >&2; exit 1; }
	@$(SUBMAKE) CUDA_ARCHS="$(CUDA_ARCHS_DEB)" B=build/deb all
	@scripts/make_deb.sh build/deb/sluice $(MAN) dist
## make check-deb           installs the package in a clean root by debootstrap, starts it, removes it (root, network; DEB_ROOT=DIR
##                          keeps that root for the next time)
check-deb: deb
	@scripts/check_deb.sh dist/sluice_*.deb $(DEB_ROOT)

# In make test: the package of a program that is built already, and what is in it.
.PHONY: deb-quick
deb-quick: man
	@rm -rf $(B)/deb-quick
	@mkdir -p $(B)/deb-quick
	@if command -v dpkg-shlibdeps >/dev/null; then scripts/make_deb.sh $(B)/sluice $(MAN) $(B)/deb-quick; fi
# Kubernetes' published schemas; where they cannot be had, what needs them is skipped.
tests/deploy/node_modules/.package-lock.json: tests/deploy/package-lock.json
	-cd tests/deploy && npm ci --no-audit --no-fund --silent --ignore-scripts

# A disk that does not answer, for programs that are started with it preloaded.
HANGING_DISK := $(B)/tests/support/hanging_disk.so
$(HANGING_DISK): tests/support/hanging_disk.c
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) -fPIC -shared -o $@ $<

.PHONY: test-deploy check-image check-image-cuda
## make test-deploy         what the documents point at, and their commands; the checks of the graph; deploy/: the Containerfile's rules and packages, the seccomp profile,
##                          the unit; how the program starts with little, nginx in front of it, the health check; where
##                          buildah is and root runs it, an image of this machine's files under that profile
test-deploy: $(B)/sluice $(HANGING_DISK) deb-quick tests/deploy/node_modules/.package-lock.json
	@$(TAP) tests/docs/check.py "tests/docs/commands.py $(B)/sluice" "tests/docs/run.py $(B)/sluice" "tests/docs/models.py $(B)/sluice" "scripts/model_table.py $(B)/sluice --check" tests/layers/check.py tests/layers/names.py tests/layers/hip_build.py "tests/deploy/check.py $(B)/sluice" "tests/deploy/start.py $(B)/sluice $(HANGING_DISK)" \
	  "tests/deploy/serving.py $(B)/sluice" "scripts/check_image.sh --quick $(B)/sluice" \
	  "scripts/check_image.sh --file deploy/container/Containerfile.cuda --quick $(B)/sluice" \
	  "scripts/check_deb.sh --quick $(B)/deb-quick"
## make check-image         every step of deploy/container/Containerfile, and what comes out under its seccomp profile
##                          (root, debootstrap, buildah and the network; some minutes)
## make check-image-cuda    the same of Containerfile.cuda, with kernels that this machine's nvcc makes
check-image:
	@scripts/check_image.sh $(IMAGE_ROOT)
check-image-cuda:
	@scripts/check_image.sh --file deploy/container/Containerfile.cuda $(IMAGE_ROOT)
