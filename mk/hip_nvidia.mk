# The HIP backend on NVIDIA's cards: HIP's host side and the kernels as HIP's compiler takes them, over NVIDIA's driver and
# NVRTC (tests/support/hip_nvidia/). For tests alone: no part of a build, nor of what is installed. Needs CUDA 13's libnvrtc
# where it runs, and neither nvcc nor hipcc.
HIP_NVIDIA := $(B)/hip_nvidia
HIP_NVIDIA_LIB := $(HIP_NVIDIA)/lib/libamdhip64.so.6
HIP_NVIDIA_SRC := $(wildcard tests/support/hip_nvidia/*.c)
$(HIP_NVIDIA_LIB): $(HIP_NVIDIA_SRC) $(wildcard tests/support/hip_nvidia/*.h tests/support/hip_nvidia/*.cuh) backends/gpu/driver.h mk/hip_nvidia.mk
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) $(DRIVER_FLAGS) -o $@ $(HIP_NVIDIA_SRC)

# Over the emulated CUDA driver, which has kernels of its own and wants no code for them.
HIP_NVIDIA_RTC := $(HIP_NVIDIA)/simt/libnvrtc.so.13
$(HIP_NVIDIA_RTC): tests/support/fake_nvrtc.c
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) -fPIC -shared -o $@ $<

# The kernels' sources alone, and an image for no card.
define hip_nvidia_text
$(call hip_texts,$(HIP_SRC),$(HIP_HEADERS),$(HIP_C_HEADERS))
.section .rodata
.globl sl_hip_image_archs, sl_hip_n_images
sl_hip_image_archs: .asciz "gfx000"
none: .asciz "none"
.balign 8
sl_hip_n_images: .quad 1
.section .data.rel.ro, "aw"
.balign 8
.globl sl_hip_images
sl_hip_images: .quad none, none
endef
$(HIP_NVIDIA)/kernels.o: $(HIP_SRC) $(HIP_HEADERS) mk/hip.mk mk/hip_nvidia.mk
	@mkdir -p $(@D)
	$(call say,as)
	$(shell mkdir -p $(@D))$(file >$(HIP_NVIDIA)/kernels.S,$(hip_nvidia_text))
	$(CC) -c -o $@ $(HIP_NVIDIA)/kernels.S

HIP_NVIDIA_CONF := $(CONF_SRC:tests/conformance/%.c=$(HIP_NVIDIA)/%)
define hip_nvidia_rule
$(HIP_NVIDIA)/$(notdir $(1:%.c=%)): $(1) $(B)/tests/conformance/conformance.o $(HIP_NVIDIA)/kernels.o $(CONF_LIBS)
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_all) $(TEST_CFLAGS_$(MODE)) $(LDFLAGS_$(MODE)) $(TEST_LDFLAGS) -o $$@ $(1) $(B)/tests/conformance/conformance.o $(HIP_NVIDIA)/kernels.o $(CONF_LIBS) -lcmocka -lm -lpthread
endef
$(foreach t,$(CONF_SRC),$(eval $(call hip_nvidia_rule,$(t))))
$(HIP_NVIDIA)/sluice: $(B)/cli/main.o $(HIP_NVIDIA)/kernels.o $(LIBS)
	@mkdir -p $(@D)
	$(call say,link)
	$(CC) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $< $(HIP_NVIDIA)/kernels.o $(call link_libs,$(LAYERS)) $(LDLIBS)

HIP_NVIDIA_ENV = env LD_LIBRARY_PATH=$(HIP_NVIDIA)/lib:$$LD_LIBRARY_PATH

HIP_NVIDIA_SIMT_ENV = env LD_LIBRARY_PATH=$(HIP_NVIDIA)/lib:$(HIP_NVIDIA)/simt:$(SIMT) XDG_CACHE_HOME=$(abspath $(HIP_NVIDIA)/simt)
HIP_NVIDIA_FILES := $(HIP_NVIDIA)/sluice $(HIP_NVIDIA)/test_elementwise $(HIP_NVIDIA_LIB) $(HIP_NVIDIA_RTC) $(SIMT_DRIVER)

.PHONY: hip-nvidia hip-nvidia-simt hip-nvidia-conformance hip-nvidia-models
## make hip-nvidia          a program whose HIP backend runs on NVIDIA's cards, and HIP's runtime for it (docs/GPU-SUPPORT.md);
##                          hip-nvidia-conformance: every op there, hip-nvidia-models: whole small models (ONLY="type Q4_K");
##                          hip-nvidia-simt: some of it over the emulated CUDA driver, without a card
hip-nvidia-simt: $(HIP_NVIDIA_FILES)
	$(TAP) --timeout 3600 "tests/simt/hip_nvidia_symbols.py $(HIP_NVIDIA_LIB)" "$(HIP_NVIDIA_SIMT_ENV) $(HIP_NVIDIA)/test_elementwise --backend hip --reference fast" \
	  "$(HIP_NVIDIA_SIMT_ENV) tests/gpu/models.py $(HIP_NVIDIA)/sluice --device hip:0 --positions $(or $(POSITIONS),24) --jobs 2 --only '$(or $(ONLY),type Q4_K)'"
hip-nvidia: $(HIP_NVIDIA)/sluice $(HIP_NVIDIA_LIB)
hip-nvidia-conformance: $(HIP_NVIDIA_CONF) $(HIP_NVIDIA_LIB)
	$(TAP) --timeout 3600 $(foreach t,$(HIP_NVIDIA_CONF),"$(HIP_NVIDIA_ENV) $(t) --backend hip")
hip-nvidia-models: hip-nvidia
	$(TAP) --timeout 7200 "$(HIP_NVIDIA_ENV) tests/gpu/models.py $(HIP_NVIDIA)/sluice --device hip:0 --positions $(or $(POSITIONS),24) $(if $(ONLY),--only '$(ONLY)')"

-include $(HIP_NVIDIA_CONF:=.d)
