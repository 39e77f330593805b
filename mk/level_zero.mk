# The Level Zero backend: each backends/level_zero/kernels/NAME.cl becomes one SPIR-V module, or one for each tensor type of
# its list, embedded in the backends' archive. Level Zero's headers are needed to build it and its loader (libze_loader.so.1)
# to run it, which is opened at run time. Where the headers or a compiler are missing everything else builds, and the backend
# says that it was left out.
#   WITH_LEVEL_ZERO=auto|1|0  auto takes them when they are there, 1 fails without them, 0 leaves the backend out
#   OPENCL_CLANG=/path/to/clang-15, LLVM_SPIRV=/path/to/llvm-spirv-15: of one version
WITH_LEVEL_ZERO ?= auto
OPENCL_CLANG ?= $(firstword $(shell command -v clang-15 2>/dev/null))
LLVM_SPIRV ?= $(firstword $(shell command -v llvm-spirv-15 2>/dev/null))
SPIRV_VAL ?= $(firstword $(shell command -v spirv-val 2>/dev/null))
LZ_HEADERS := $(shell printf '\#include <level_zero/ze_api.h>\nyes_ze\n' | $(CC) -E -P - 2>/dev/null | grep yes_ze)
ifeq ($(WITH_LEVEL_ZERO),0)
LZ_LACKS := WITH_LEVEL_ZERO=0
else ifeq ($(OPENCL_CLANG),)
LZ_LACKS := no clang-15
else ifeq ($(LLVM_SPIRV),)
LZ_LACKS := no llvm-spirv-15
else ifeq ($(LZ_HEADERS),)
LZ_LACKS := no headers of Level Zero
endif
ifeq ($(WITH_LEVEL_ZERO),1)
ifneq ($(LZ_LACKS),)
$(error WITH_LEVEL_ZERO=1, but there are $(LZ_LACKS); install clang-15, llvm-spirv-15 and libze-dev, or give OPENCL_CLANG and LLVM_SPIRV)
endif
endif

# Without it, one file stands for the backend.
LZ_ABSENT := backends/level_zero/absent.c
LZ_SRC := $(filter-out $(LZ_ABSENT),$(wildcard backends/level_zero/*.c))
SRC := $(filter-out $(if $(LZ_LACKS),$(LZ_SRC),$(LZ_ABSENT)),$(SRC))
LZ_PRIVATE_HEADERS := $(if $(LZ_LACKS),$(filter-out backends/level_zero/level_zero.h,$(wildcard backends/level_zero/*.h)))

# Tensor types that kernels of weights are compiled for.
LZ_FLOATS := F32 F16 BF16
LZ_QUANTS := Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 \
  IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S
# Their values come from tables: by subgroups they would spill.
LZ_TABLES := TQ1_0 TQ2_0 IQ2_K IQ3_K IQ4_K IQ5_K IQ6_K
LZ_TYPES_embed := $(LZ_FLOATS) $(LZ_QUANTS) $(LZ_TABLES)
LZ_TYPES_matmul_float := $(LZ_FLOATS)
LZ_TYPES_moe_float := $(LZ_FLOATS)
LZ_TYPES_head_float := $(LZ_FLOATS)
LZ_TYPES_head_turned := $(LZ_FLOATS) $(LZ_QUANTS) $(LZ_TABLES)
LZ_TYPES_matmul_quant := $(LZ_QUANTS) $(LZ_TABLES)
LZ_TYPES_head_quant := $(LZ_QUANTS) $(LZ_TABLES)
LZ_TYPES_moe_quant := $(LZ_QUANTS) $(LZ_TABLES)
# Kernels that are another one compiled for subgroups (backends/level_zero/kernels.h), and with what.
LZ_SUBGROUPS := matmul_quant_one matmul_quant_few moe_quant_one head_quant_one head_quant_few
$(foreach k,$(LZ_SUBGROUPS),$(eval LZ_TYPES_$(k) := $(LZ_QUANTS)))
lz_source = $(patsubst %_few,%,$(patsubst %_one,%,$(firstword $(subst ., ,$(1)))))
lz_flags = -DKERNEL=$(firstword $(subst ., ,$(1))) $(if $(findstring .,$(1)),-DTYPE=$(lastword $(subst ., ,$(1)))) \
  $(if $(filter $(firstword $(subst ., ,$(1))),$(LZ_SUBGROUPS)),-DSUBGROUPS $(if $(findstring _one,$(1)),-DTOK=1u))
LZ_KERNELS := $(if $(LZ_LACKS),,$(patsubst backends/level_zero/kernels/%.cl,%,$(wildcard backends/level_zero/kernels/*.cl)) $(LZ_SUBGROUPS))
# Names of modules: NAME, or NAME.TYPE.
LZ_MODULES := $(foreach k,$(LZ_KERNELS),$(if $(LZ_TYPES_$(k)),$(addprefix $(k).,$(LZ_TYPES_$(k))),$(k)))

# All modes share them. Not optimised here, since that makes instructions and types that SPIR-V lacks (freeze, i5): the driver's
# compiler does that. Nothing may be contracted.
LZ_DIR := build/level_zero
LZ_SPV := $(LZ_MODULES:%=$(LZ_DIR)/%.spv)
LZ_CLANG = $(OPENCL_CLANG) -c -x cl -cl-std=CL1.2 -target spir64-unknown-unknown -O2 -Xclang -disable-llvm-passes \
  -Xclang -disable-lifetime-markers -Xclang -finclude-default-header -emit-llvm -I. -Wall -Wno-unused-function -Wno-constant-logical-operand $(if $(findstring -Werror,$(CFLAGS)),-Werror)
define lz_rule
$(LZ_DIR)/$(2)$(1).spv: backends/level_zero/kernels/$(lz_source).cl mk/level_zero.mk
	@mkdir -p $$(@D)
	$$(call say,spirv)
	$(LZ_CLANG) $(lz_flags) $(3) -MD -MF $$(@:.spv=.d) -MT $$@ -o $$@.bc $$<
	$(LLVM_SPIRV) --spirv-max-version=1.2 --spirv-fp-contract=off $$@.bc -o $$@.new
	$(if $(SPIRV_VAL),$(SPIRV_VAL) --target-env opencl2.2 $$@.new)
	rm $$@.bc; mv $$@.new $$@
endef
$(foreach m,$(LZ_MODULES),$(eval $(call lz_rule,$(m),,)))

# The same without subgroups, by local memory: the tests' driver runs these in place of those, since PoCL has none.
LZ_EMULATED := $(foreach m,$(LZ_MODULES),$(if $(filter $(firstword $(subst ., ,$(m))),$(LZ_SUBGROUPS)),$(LZ_DIR)/emulated/$(m).spv))
$(foreach m,$(LZ_EMULATED:$(LZ_DIR)/emulated/%.spv=%),$(eval $(call lz_rule,$(m),emulated/,-DEMULATED)))

# The list of modules, rewritten only when it changes.
LZ_LIST := $(B)/backends/level_zero/modules.S
define lz_list_text
.section .rodata
$(foreach m,$(LZ_MODULES),name_$(m): .asciz "$(m)"
.balign 64
data_$(m): .incbin "$(LZ_DIR)/$(m).spv"
end_$(m):
)
.balign 8
.globl sl_level_zero_n_modules
sl_level_zero_n_modules: .quad $(words $(LZ_MODULES))
.section .data.rel.ro, "aw"
.balign 8
.globl sl_level_zero_modules
sl_level_zero_modules:
$(foreach m,$(LZ_MODULES),.quad name_$(m), data_$(m), end_$(m) - data_$(m)
)
.section .note.GNU-stack, ""
endef
$(shell mkdir -p $(dir $(LZ_LIST)))
$(file >$(LZ_LIST).new,$(lz_list_text))
$(shell cmp -s $(LZ_LIST).new $(LZ_LIST) || cp $(LZ_LIST).new $(LZ_LIST))

$(B)/backends/level_zero/modules.o: $(LZ_LIST) $(LZ_SPV)
	$(call say,as)
	$(CC) -c -o $@ $<
	$(if $(LZ_LACKS),@echo "  $(LZ_LACKS): built without Level Zero")
LZ_OBJ := $(B)/backends/level_zero/modules.o

# A driver for tests, over PoCL: tests/support/ze_driver/ze_test.h. Without OpenCL's headers there is none.
OPENCL_HEADERS := $(shell printf '\#define CL_TARGET_OPENCL_VERSION 120\n\#include <CL/cl.h>\nyes_cl\n' | $(CC) -E -P - 2>/dev/null | grep yes_cl)
ZE_DRIVER := $(if $(LZ_LACKS),,$(if $(OPENCL_HEADERS),$(B)/tests/support/ze_driver.so))
ZE_DRIVER_SRC := $(wildcard tests/support/ze_driver/*.c)
$(B)/tests/support/ze_driver.so: $(ZE_DRIVER_SRC) $(wildcard tests/support/ze_driver/*.h) mk/level_zero.mk | $(LZ_EMULATED)
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) $(DRIVER_FLAGS) -fvisibility=hidden -o $@ $(ZE_DRIVER_SRC) -lOpenCL -lpthread

-include $(LZ_SPV:.spv=.d) $(LZ_EMULATED:.spv=.d)
# What a kernel includes no longer need be there.
backends/level_zero/kernels/%.clh: ;
