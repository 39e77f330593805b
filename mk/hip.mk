# HIP kernels: each backends/kernels/NAME.cu becomes one bundle of code objects for HIP_ARCHS, embedded in the backends'
# archive. Without hipcc everything else builds, and the backend says that it has no kernels. No such code has run on a card
# (docs/GPU-SUPPORT.md).
#   WITH_HIP=auto|1|0   auto takes hipcc when it is there; 1 fails without it; 0 leaves the kernels out
#   HIP_ARCHS="gfx90a"  for these only: a card needs code for its very architecture; default: one of each kind that Debian's
#                       compiler knows. For all others the sources are embedded as well, and are compiled where the program
#                       runs (backends/hip/compile.h)
#   HIPCC=/path/to/hipcc
WITH_HIP ?= auto
ifeq ($(origin HIPCC),undefined)
HIPCC := $(firstword $(shell command -v hipcc 2>/dev/null) $(wildcard /opt/rocm/bin/hipcc))
endif
ifeq ($(WITH_HIP)$(HIPCC),1)
$(error WITH_HIP=1, but there is no hipcc on PATH or in /opt/rocm/bin; give HIPCC=/path/to/hipcc)
endif
HIP_ARCHS ?= gfx906 gfx90a gfx1030
HIP_SRC := $(wildcard backends/kernels/*.cu)
HIP_FLAGS := -x hip -std=c++17 -O3 -ffp-contract=off -I.

# All modes share them.
HIP_DIR := build/hip/$(subst $(space),_,$(strip $(HIP_ARCHS)))
HIP_BUNDLES := $(if $(HIPCC),$(if $(filter 0,$(WITH_HIP)),,$(HIP_SRC:backends/kernels/%.cu=$(HIP_DIR)/%.hipfb)))
$(HIP_DIR)/%.hipfb: backends/kernels/%.cu mk/hip.mk
	@mkdir -p $(@D)
	$(call say,hip)
	$(HIPCC) --genco $(HIP_FLAGS) $(HIP_ARCHS:%=--offload-arch=%) -MD -MF $(@:.hipfb=.d) -o $@ $<

# Their sources and all headers of them, for cards of other architectures: those are compiled for where the program runs.
# What stands for headers of the C library there: backends/kernels/hiprtc.h.
HIP_HEADERS := $(wildcard backends/kernels/*.cuh backends/kernels/*.h) backends/ops/activation.h backends/iq_codes.h \
  common/dtype.h common/limits.h
HIP_C_HEADERS := stdint.h stdbool.h stddef.h string.h
hip_label = $(subst /,_,$(subst .,_,$(1)))
# The texts of these sources $(1) and headers $(2), and what stands for the C library's $(3).
define hip_texts
.section .rodata
$(foreach f,$(1) $(2),text_$(call hip_label,$(f)): .incbin "$(f)"
.byte 0
)
$(foreach f,$(1),name_$(call hip_label,$(f)): .asciz "$(basename $(notdir $(f)))"
)
$(foreach f,$(2) $(3),name_$(call hip_label,$(f)): .asciz "$(f)"
)
.balign 8
.globl sl_hip_n_sources, sl_hip_n_headers
sl_hip_n_sources: .quad $(words $(1))
sl_hip_n_headers: .quad $(words $(2) $(3))
.section .data.rel.ro, "aw"
.balign 8
.globl sl_hip_sources, sl_hip_headers
sl_hip_sources:
$(foreach f,$(1),.quad name_$(call hip_label,$(f)), text_$(call hip_label,$(f))
)
sl_hip_headers:
$(foreach f,$(2),.quad name_$(call hip_label,$(f)), text_$(call hip_label,$(f))
)
$(foreach f,$(3),.quad name_$(call hip_label,$(f)), text_backends_kernels_hiprtc_h
)
.section .note.GNU-stack, ""
endef
HIP_TEXT_SRC := $(if $(HIP_BUNDLES),$(HIP_SRC))
HIP_TEXT_HEADERS := $(if $(HIP_BUNDLES),$(HIP_HEADERS))
HIP_TEXT_C_HEADERS := $(if $(HIP_BUNDLES),$(HIP_C_HEADERS))
HIP_TEXTS := $(HIP_TEXT_SRC) $(HIP_TEXT_HEADERS)
HIP_SOURCES := $(B)/backends/hip/sources.S
$(shell mkdir -p $(dir $(HIP_SOURCES)))$(file >$(HIP_SOURCES).new,$(call hip_texts,$(HIP_TEXT_SRC),$(HIP_TEXT_HEADERS),$(HIP_TEXT_C_HEADERS)))$(shell cmp -s $(HIP_SOURCES).new $(HIP_SOURCES) || cp $(HIP_SOURCES).new $(HIP_SOURCES))
$(B)/backends/hip/sources.o: $(HIP_SOURCES) $(HIP_TEXTS)
	$(call say,as)
	$(CC) -c -o $@ $<

HIP_IMAGES := $(B)/backends/hip/images.S
$(call write_images,$(HIP_IMAGES),hip,$(if $(HIP_BUNDLES),$(HIP_ARCHS)),$(HIP_BUNDLES))
$(B)/backends/hip/images.o: $(HIP_IMAGES) $(HIP_BUNDLES)
	$(call say,as)
	$(CC) -c -o $@ $<
	$(if $(HIP_BUNDLES),,@echo "  $(if $(filter 0,$(WITH_HIP)),WITH_HIP=0,no hipcc): built without HIP kernels")
OBJ += $(B)/backends/hip/images.o $(B)/backends/hip/sources.o

# What it makes of the kernels, as text.
HIP_CODE := $(foreach a,$(HIP_ARCHS),$(patsubst backends/kernels/%.cu,build/hip/$(a)/%.s,$(HIP_SRC)))
define hip_rule
build/hip/$(1)/%.s: backends/kernels/%.cu mk/hip.mk
	@mkdir -p $$(@D)
	$$(call say,hip)
	$(HIPCC) $(HIP_FLAGS) --cuda-device-only -S --offload-arch=$(1) -MD -MF $$(@:.s=.d) -o $$@ $$<
endef
$(foreach a,$(HIP_ARCHS),$(eval $(call hip_rule,$(a))))

.PHONY: hip-kernels
## make hip-kernels         whether the kernels compile for AMD's cards (HIP_ARCHS=gfx90a: for that one); needs hipcc
ifeq ($(HIPCC),)
hip-kernels:
	@echo "hip-kernels: no hipcc on PATH: not checked; install hipcc, or give HIPCC=/path/to/hipcc"
else
hip-kernels: $(HIP_CODE)
	@tests/simt/hip_code.py $^
endif

.PHONY: hip-rtc
## make hip-rtc             whether ROCm's hipRTC here compiles all kernels for HIP_ARCHS (gfx1031 unless said); minutes; no GPU
hip-rtc: $(B)/tests/unit/backends/test_hiprtc
	HIPRTC_ARCHS="$(if $(filter file,$(origin HIP_ARCHS)),gfx1031,$(HIP_ARCHS))" $<

-include $(HIP_CODE:.s=.d) $(HIP_BUNDLES:.hipfb=.d)
