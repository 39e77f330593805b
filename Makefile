# Sluice. `make` builds build/release/sluice; `make help` lists the rest.
MODE ?= release
ifeq ($(origin CC),default)
CC := gcc
endif
B := build/$(MODE)
.DEFAULT_GOAL := all
JOBS := $(shell nproc)
# Of a make within this one: as many as was asked for, else JOBS.
SUBJOBS = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
# What is made is named; V=1 shows the commands.
ifndef V
.SILENT:
endif
say = @echo "  $(1) $@"

include mk/layers.mk

WARN := -Wall -Wextra -Wshadow -Wundef -Wvla -Wstrict-prototypes -Wmissing-prototypes
# No contraction: every op's result is defined by its source, whatever the instruction set.
CFLAGS_common := -std=gnu11 -I. -D_GNU_SOURCE -pthread -ffp-contract=off -fno-math-errno $(WARN) -MMD -MP
CFLAGS_release := -O3 -g
CFLAGS_debug := -O0 -g3
# Lines for their reports, no more: full debug information costs a quarter of the time and most of the disk.
CFLAGS_asan := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_tsan := -O1 -g1 -fsanitize=thread
CFLAGS_coverage := -O0 -g --coverage
# clang's libFuzzer; see mk/fuzz.mk
CFLAGS_fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
LDFLAGS_coverage := --coverage
LDFLAGS_fuzz := -fsanitize=address,undefined
CFLAGS_all = $(CFLAGS_common) $(CFLAGS_$(MODE)) $(CFLAGS)
# libcurl brings thirty libraries: only into programs that pull. libedit: only where lines are typed.
LDLIBS := -Wl,--push-state,--as-needed -lcurl -ledit -Wl,--pop-state -lmicrohttpd -lgnutls -ljansson -lpcre2-8 -luring -lm -lpthread

# What cannot be ends the program there; a release goes on where it safely can.
$(foreach m,debug asan tsan coverage fuzz,$(eval CFLAGS_$(m) += -DSL_STRICT))

ifeq ($(CFLAGS_$(MODE)),)
$(error MODE=$(MODE) is not one of release, debug, asan, tsan, coverage, fuzz)
endif

# Kernels read no untrusted input, and clang takes minutes to instrument them.
KERNEL_fuzz := -fno-sanitize=all
# Most of what the tests compute under ASan is in kernels. Optimised and with fewer checks they take half the time
# to run and to compile. Null pointers and ends of objects are still seen by ASan, and an index past a local array by
# -fsanitize=bounds; a vector access past a local array, or an address that wraps, is not: `make conformance
# MODE=asan KERNEL_asan=`, after a clean, has every check. (The warning is false: a tile's first turn sets its sum.)
KERNEL_asan := -O2 --param asan-stack=0 -fno-sanitize=null,object-size,pointer-overflow -Wno-maybe-uninitialized
# What products read and write is checked before they run, by backends/cpu/matmul_watch.c: that takes a third of the time
# or less. So a release's serve, which take longest of all to compile. Conformance under ASan has them instrumented
# (mk/conformance.mk).
PRODUCT_B := $(if $(filter asan tsan,$(MODE)),build/release,$(B))

# Kernels for an instruction set live in files named for it and are compiled for it; which of them
# runs is decided at run time. Outside the kernels every narrowing is explicit (-Wconversion): most
# of the rest handles what came from a file or a socket.
ISA_avx2 := -mavx2 -mfma -mf16c -mbmi2
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_vnni := $(ISA_avx512) -mavx512vnni -mavx512vbmi -mavx512bf16
isa_flags = $(foreach i,avx2 avx512 vnni,$(if $(findstring _$(i).c,$<),$(ISA_$(i))))

SRC := $(foreach l,$(LAYERS),$(wildcard $(l)/*.c $(l)/*/*.c $(l)/*/*/*.c))
include mk/vulkan.mk
include mk/level_zero.mk
PRODUCT_SRC := $(wildcard backends/cpu/matmul/*.c)
OBJ := $(patsubst %.c,$(B)/%.o,$(filter-out $(PRODUCT_SRC),$(SRC))) $(PRODUCT_SRC:%.c=$(PRODUCT_B)/%.o) $(VULKAN_OBJ) $(LZ_OBJ)
include mk/cuda.mk
include mk/hip.mk
include mk/web.mk
LIBS := $(foreach l,$(LAYERS),$(B)/lib/libsl_$(l).a)
# Link order: users before what they use.
REV_LAYERS := $(shell echo $(LAYERS) | tr ' ' '\n' | tac)
link_libs = $(foreach l,$(REV_LAYERS),$(if $(filter $(l),$(1)),$(B)/lib/libsl_$(l).a))

.PHONY: all release clean help
## make                     build build/release/sluice (MODE=debug|asan|tsan: build/MODE/sluice; V=1 shows commands)
## make clean               remove build/
all: $(B)/sluice
release:
	@$(MAKE) --no-print-directory MODE=release all

$(B)/sluice: $(B)/cli/main.o $(LIBS)
	$(call say,link)
	$(CC) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $< $(call link_libs,$(LAYERS)) $(LDLIBS)

$(B)/%.o: %.c Makefile mk/layers.mk
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(CFLAGS_all) $(isa_flags) $(if $(filter backends/cpu/%,$(filter-out backends/cpu/host/%,$<)),$(KERNEL_$(MODE)),-Wconversion) -c -o $@ $<

ifneq ($(PRODUCT_B),$(B))
$(PRODUCT_B)/%.o: %.c Makefile mk/layers.mk
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(CFLAGS_common) $(CFLAGS_release) $(CFLAGS) $(isa_flags) -c -o $@ $<
endif

# Products with a sanitizer's checks.
$(B)/checked/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(CFLAGS_all) $(isa_flags) $(KERNEL_$(MODE)) -c -o $@ $<

define layer_archive
$(B)/lib/libsl_$(1).a: $$(filter-out $(B)/cli/main.o,$$(filter $(B)/$(1)/% $(PRODUCT_B)/$(1)/%,$(OBJ)))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar rcs $$@ $$^
endef
$(foreach l,$(LAYERS),$(eval $(call layer_archive,$(l))))

include mk/unit.mk
include mk/bench.mk
include mk/budget.mk
include mk/conformance.mk
include mk/simt.mk
include mk/hip_nvidia.mk
include mk/determinism.mk
include mk/fault.mk
include mk/stages.mk
include mk/fuzz.mk
include mk/cluster.mk
include mk/browser.mk
include mk/monitoring.mk
include mk/http.mk
include mk/replay.mk
include mk/schemas.mk
include mk/sim.mk
include mk/demo.mk
include mk/load.mk
include mk/peer.mk
include mk/pull.mk
include mk/soak.mk
include mk/terminal.mk
include mk/install.mk
include mk/test.mk

clean:
	rm -rf build

help:
	@sed -n 's/^## //p' Makefile mk/*.mk

-include $(OBJ:.o=.d)
