# HIP kernels: each backends/kernels/NAME.cu becomes one bundle of code objects for HIP_ARCHS, embedded in the backends'
# archive. Without hipcc everything else builds, and the backend says that it has no kernels. No such code has run on a card
# (docs/GPU-SUPPORT.md).
#   WITH_HIP=auto|1|0   auto takes hipcc when it is there; 1 fails without it; 0 leaves the kernels out
#   HIP_ARCHS="gfx90a"  for these only: a card needs code for its very architecture; default: one of each kind that Debian's
#                       compiler knows
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

HIP_IMAGES := $(B)/backends/hip/images.S
$(call write_images,$(HIP_IMAGES),hip,$(if $(HIP_BUNDLES),$(HIP_ARCHS)),$(HIP_BUNDLES))
$(B)/backends/hip/images.o: $(HIP_IMAGES) $(HIP_BUNDLES)
	$(call say,as)
	$(CC) -c -o $@ $<
	$(if $(HIP_BUNDLES),,@echo "  $(if $(filter 0,$(WITH_HIP)),WITH_HIP=0,no hipcc): built without HIP kernels")
OBJ += $(B)/backends/hip/images.o

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

-include $(HIP_CODE:.s=.d) $(HIP_BUNDLES:.hipfb=.d)
