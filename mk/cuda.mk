# CUDA kernels: each backends/kernels/NAME.cu becomes one fatbin with machine code for CUDA_ARCHS (and PTX of
# the newest, for GPUs to come), embedded in the backends' archive. Without nvcc everything else builds, and
# the backend says that it has no kernels.
#   WITH_CUDA=auto|1|0   auto takes nvcc when it is there; 1 fails without it; 0 leaves the kernels out
#   CUDA_ARCHS="90"      for these only; all: every one from 75 to 120 that the toolkit has (what is handed to others);
#                        default: the GPUs of this machine, or, where there is none, 75 to see that all compiles
#   NVCC=/path/to/nvcc
#   CUDA_KERNELS=/x/sm75_90   takes the fatbins that `make kernels` has made of these very sources elsewhere (its folder
#                        build/cuda/sm75_90, whose name says for which GPUs); nvcc is not needed
#   CUDA_ROUGH=1         where there is no GPU and no CUDA_ARCHS: not optimised, in a fifth of the time. All is compiled to
#                        machine code, and nothing runs it: for .ci/run, which is to see that alone. Not to be used
WITH_CUDA ?= auto
ifeq ($(origin NVCC),undefined)
NVCC := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
endif
ifneq ($(CUDA_KERNELS),)
override NVCC :=
else ifeq ($(WITH_CUDA),0)
override NVCC :=
else ifeq ($(WITH_CUDA)$(NVCC),1)
$(error WITH_CUDA=1, but there is no nvcc on PATH or in /usr/local/cuda/bin; give NVCC=/path/to/nvcc)
endif

ifneq ($(CUDA_KERNELS),)
override CUDA_ARCHS := $(subst _, ,$(patsubst sm%,%,$(notdir $(CUDA_KERNELS:%/=%))))
CUDA_SRC := $(wildcard backends/kernels/*.cu)
else ifneq ($(NVCC),)
ifeq ($(origin CUDA_ARCHS),undefined)
CUDA_ARCHS := $(strip $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u))
ifeq ($(CUDA_ARCHS),)
CUDA_ARCHS := 75
CUDA_NO_GPU := 1
CUDA_IS_ROUGH := $(filter 1,$(CUDA_ROUGH))
endif
else ifeq ($(CUDA_ARCHS),all)
override CUDA_ARCHS := $(filter 75 80 86 89 90 100 110 120,$(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code)))
endif
CUDA_SRC := $(wildcard backends/kernels/*.cu)
else
CUDA_ARCHS :=
CUDA_SRC :=
endif
empty :=
space := $(empty) $(empty)
# All modes share them.
CUDA_DIR := $(or $(CUDA_KERNELS:%/=%),build/cuda/sm$(subst $(space),_,$(strip $(CUDA_ARCHS)))$(CUDA_IS_ROUGH:1=_rough))
CUDA_FATBIN := $(CUDA_SRC:backends/kernels/%.cu=$(CUDA_DIR)/%.fatbin)
CUDA_GENCODE = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
  $(foreach a,$(lastword $(CUDA_ARCHS)),-gencode arch=compute_$(a),code=compute_$(a))
# ccache keeps them between trees. It must go by the dependency file: preprocessing once would not see what
# differs between architectures.
NVCC_CACHE := $(if $(filter ccache %/ccache,$(firstword $(CC))),CCACHE_DEPEND=1 $(firstword $(CC)))
# No contraction here either: what is fused is written as fmaf.
NVCC_FLAGS := -std=c++17 -O3 -I. -fmad=false $(if $(CUDA_IS_ROUGH),-Xcicc -O0 -Xptxas -O0)

ifeq ($(CUDA_KERNELS),)
$(CUDA_DIR)/%.fatbin: backends/kernels/%.cu mk/cuda.mk
	@mkdir -p $(@D)
	$(call say,nvcc)
	$(NVCC_CACHE) $(NVCC) $(NVCC_FLAGS) $(if $(findstring -Werror,$(CFLAGS)),-Werror all-warnings) $(CUDA_GENCODE) -MMD -MP -MF $(@:.fatbin=.d) -fatbin -c -o $@ $<
endif

# A list of images: whose (cuda, hip), for what, the files.
define images_text
.section .rodata
.globl sl_$(1)_image_archs
sl_$(1)_image_archs: .asciz "$(strip $(2))"
$(foreach f,$(3),name_$(basename $(notdir $(f))): .asciz "$(basename $(notdir $(f)))"
.balign $(if $(filter hip,$(1)),4096,64)
data_$(basename $(notdir $(f))): .incbin "$(f)"
)
.balign 8
.globl sl_$(1)_n_images
sl_$(1)_n_images: .quad $(words $(3))
.section .data.rel.ro, "aw"
.balign 8
.globl sl_$(1)_images
sl_$(1)_images:
$(foreach f,$(3),.quad name_$(basename $(notdir $(f))), data_$(basename $(notdir $(f)))
)
.section .note.GNU-stack, ""
endef
# Rewritten only when it changes.
write_images = $(shell mkdir -p $(dir $(1)))$(file >$(1).new,$(call images_text,$(2),$(3),$(4)))$(shell cmp -s $(1).new $(1) || cp $(1).new $(1))
CUDA_IMAGES := $(B)/backends/cuda/images.S
$(call write_images,$(CUDA_IMAGES),cuda,$(CUDA_ARCHS),$(CUDA_FATBIN))

$(B)/backends/cuda/images.o: $(CUDA_IMAGES) $(CUDA_FATBIN)
	$(call say,as)
	$(CC) -c -o $@ $<
	$(if $(CUDA_FATBIN),,@echo "  $(if $(filter 0,$(WITH_CUDA)),WITH_CUDA=0,no nvcc): built without CUDA kernels")
	$(if $(CUDA_NO_GPU),@echo "  this machine has no GPU: CUDA kernels are built for sm_75 only; newer GPUs run them more slowly: make CUDA_ARCHS=all")
	$(if $(CUDA_IS_ROUGH),@echo "  CUDA_ROUGH=1: CUDA kernels are not optimised; this program is for tests alone")
OBJ += $(B)/backends/cuda/images.o

# A driver for tests: libcuda's symbols over host memory. What it has per thread lies in the static block: of one that a
# thread allocates later, LeakSanitizer takes the bytes before it for the header of an older libc (where its address ends
# in 010), looks for pointers wherever those say, and dies of that.
DRIVER_FLAGS := -fPIC -shared -ftls-model=initial-exec
FAKE_CUDA := $(B)/tests/support/fake_cuda.so
FAKE_CUDA_SRC := $(wildcard tests/support/fake_cuda/*.c)
$(FAKE_CUDA): $(FAKE_CUDA_SRC) tests/support/fake_cuda/internal.h tests/support/fake_cuda.h backends/gpu/driver.h mk/cuda.mk
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) $(DRIVER_FLAGS) -o $@ $(FAKE_CUDA_SRC)

# The same with the symbols of ROCm's runtime, and with those alone that an old one has.
FAKE_HIP := $(B)/tests/support/fake_hip.so $(B)/tests/support/fake_hip_old.so
$(FAKE_HIP): $(FAKE_CUDA_SRC) tests/support/fake_cuda/internal.h tests/support/fake_cuda.h backends/gpu/driver.h mk/cuda.mk
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) $(DRIVER_FLAGS) -DFAKE_HIP $(if $(findstring old,$@),-DFAKE_HIP_OLD) -o $@ $(FAKE_CUDA_SRC)

# One that stands before a real driver, or that one, and fails when told to.
FAULTY_CUDA := $(B)/tests/support/faulty/libcuda.so.1
$(FAULTY_CUDA): tests/support/faulty_cuda.c tests/support/fake_cuda.h backends/gpu/driver.h mk/cuda.mk
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(DRIVER_FLAGS) -o $@ $<

# The same in front of ROCm's runtime, or of that one's other face.
FAULTY_HIP := $(B)/tests/support/faulty_hip/libamdhip64.so.6
$(FAULTY_HIP): tests/support/faulty_cuda.c tests/support/faulty_hip.h tests/support/fake_cuda.h backends/gpu/driver.h mk/cuda.mk
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(DRIVER_FLAGS) -DFAULTY_HIP -o $@ $<

.PHONY: kernels
## make kernels             CUDA kernels alone (CUDA_ARCHS=90 for quick ones; WITH_CUDA=0 leaves them out)
kernels: $(CUDA_FATBIN)

-include $(CUDA_FATBIN:.fatbin=.d)
