# Conformance: every op on every device that this machine has, against the CPU's plain-C definition.
# Each tests/conformance/test_*.c is one program; conformance.c holds what they share. Nearly all of the time
# is one thread's: they run side by side, but on a BACKEND that is asked for one by one.
# Devices that are software (Mesa's Vulkan on the CPU) have some of the programs, in release, under validation layers.
CONF_SRC := $(wildcard tests/conformance/test_*.c)
CONF_BIN := $(CONF_SRC:%.c=$(B)/%)
CONF_LIBS := $(B)/lib/libsl_backends.a $(B)/lib/libsl_common.a
# Where the archive has products without a sanitizer's checks, these go before it: those that this machine can run.
CPU_LACKS := $(filter-out $(shell grep -m 1 -w -o -E 'avx512bw|avx512_vnni' /proc/cpuinfo),avx512bw avx512_vnni)
CONF_PRODUCTS := $(if $(filter asan,$(MODE)),$(patsubst %.c,$(B)/checked/%.o,$(filter-out \
  $(if $(filter avx512bw,$(CPU_LACKS)),%_avx512.c) $(if $(CPU_LACKS),%_vnni.c),$(PRODUCT_SRC))))

$(B)/tests/conformance/conformance.o: tests/conformance/conformance.c
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(CFLAGS_all) -c -o $@ $<

define conf_rule
$(B)/$(1:%.c=%): $(1) $(B)/tests/conformance/conformance.o $(CONF_PRODUCTS) $(CONF_LIBS)
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_all) $(LDFLAGS_$(MODE)) $(TEST_LDFLAGS) -o $$@ $(1) $(B)/tests/conformance/conformance.o $(CONF_PRODUCTS) $(CONF_LIBS) -lcmocka -lm -lpthread
endef
$(foreach t,$(CONF_SRC),$(eval $(call conf_rule,$(t))))

# Of attention the test with windows, chunks and caps on scores: that of windows alone would run the same kernels.
VULKAN_LAYERS := $(if $(filter release,$(MODE)),"tests/conformance/vulkan_layers.py $(B)/sluice $(B)/tests/support/faulty_vulkan \
  $(patsubst %,$(B)/tests/conformance/test_%,elementwise kv norm rope recurrent rows scale router matmul) \
  '$(B)/tests/conformance/test_attention --test caps'")

# The Level Zero backend over the tests' driver: a part of its conformance, whole runs, and what fails. All of it: BACKEND=pocl.
LZ_POCL := $(if $(filter release,$(MODE)),"tests/conformance/level_zero_pocl.py $(B)/sluice $(B)/tests/support/ze_driver.so \
  $(patsubst %,$(B)/tests/conformance/test_%,elementwise index kv norm recurrent rope rows scale) \
  '$(B)/tests/conformance/test_router --test shapes --test groups --test ids' \
  '$(B)/tests/conformance/test_matmul --test few' '$(B)/tests/conformance/test_moe --test address' \
  '$(B)/tests/conformance/test_attention --test values' '$(B)/tests/conformance/test_latent --test attention'")
# What Intel's offline compiler makes of its kernels.
LZ_OCLOC := $(if $(filter release,$(MODE)),"tests/conformance/level_zero_ocloc.py $(LZ_DIR)")
LZ_POCL_ENV = env $$(tests/conformance/level_zero_pocl.py --env $(B)/tests/support/ze_driver.so)

.PHONY: conformance pocl-conformance pocl-models
## make conformance         every op on every device against its plain-C definition (BACKEND=cuda: on that one; simt32: on a
##                          GPU that is emulated, simt64: with waves of 64, as HIP has the kernels; pocl: level_zero's kernels
##                          on the CPU)
ifeq ($(BACKEND),simt32)
conformance: simt-conformance
else ifeq ($(BACKEND),simt64)
conformance: simt64-conformance
else ifeq ($(BACKEND),pocl)
conformance: pocl-conformance
else
conformance: $(CONF_BIN) $(CUDA_FATBIN) $(if $(VULKAN_LAYERS),$(B)/sluice $(FAULTY_VULKAN) $(ZE_DRIVER) $(LZ_SPV))
	$(if $(BACKEND),$(TAP),$(TAP_SIDE)) $(foreach t,$(CONF_BIN),"$(t)$(if $(BACKEND), --backend $(BACKEND))") \
	  "tests/conformance/fatbin_archs.py '$(strip $(CUDA_ARCHS))' $(CUDA_FATBIN)" \
	  $(if $(BACKEND),,$(VULKAN_LAYERS) $(LZ_POCL) $(LZ_OCLOC))
endif
pocl-conformance: $(CONF_BIN) $(ZE_DRIVER)
	$(TAP_SIDE) --timeout 3600 $(foreach t,$(CONF_BIN),"$(LZ_POCL_ENV) $(t) --backend level_zero") \
	  $(patsubst %,"$(LZ_POCL_ENV) ZE_TEST_PLAIN=1 $(B)/tests/conformance/test_% --backend level_zero",matmul moe latent)

## make pocl-models         whole small models through the Level Zero backend and its kernels, run on the CPU (ONLY="qwen3moe f32")
pocl-models: $(B)/sluice $(ZE_DRIVER)
	$(TAP) --timeout 7200 "$(LZ_POCL_ENV) tests/gpu/models.py $(B)/sluice --device level_zero:0 --positions $(or $(POSITIONS),24) --jobs 2 $(if $(ONLY),--only '$(ONLY)')"

-include $(CONF_BIN:=.d) $(B)/tests/conformance/conformance.d $(CONF_PRODUCTS:.o=.d)
