# The CUDA kernels on the CPU (tests/support/simt/simt.h): the sources of backends/kernels/ compiled as C++, behind a
# driver that runs them, behind the CUDA backend as it is. Without g++ what needs it is skipped, and says so.
# All modes share it: what it has to find, it finds by itself.
ifeq ($(origin CXX),default)
CXX := $(shell command -v g++)
endif
SIMT := build/simt
SIMT_CXX := $(if $(CXX),$(if $(filter ccache %/ccache,$(firstword $(CC))),$(firstword $(CC))) $(CXX))
# As nvcc takes them: no contraction, and no aliasing by type. A misaligned address is an error on a GPU.
SIMT_FLAGS := -std=gnu++17 -O1 $(if $(filter x86_64,$(shell uname -m)),-march=native) -ffp-contract=off -fno-math-errno \
  -fno-strict-aliasing -fno-exceptions -fno-rtti -fPIC -fvisibility=hidden -fno-extern-tls-init -I. -Itests/support/simt \
  -Wall -Wextra -Wno-unknown-pragmas -fsanitize=alignment -fsanitize-undefined-trap-on-error -MMD -MP
SIMT_KERNELS := $(patsubst backends/kernels/%.cu,$(SIMT)/%.o,$(wildcard backends/kernels/*.cu))
SIMT_DRIVER := $(SIMT)/libcuda.so.1

# The same as HIP's compiler takes them, with machine_hip.cuh, behind the HIP backend: on waves of 64 lanes, or of 32.
SIMT_HIP := $(SIMT)/hip
SIMT_HIP_DRIVER := $(SIMT_HIP)/libamdhip64.so.6
SIMT_ALL := $(SIMT) $(SIMT_HIP)
SIMT_DEFINES_hip := -DSIMT_HIP -DFAKE_HIP

# In the folder $(1): objects, the library of kernels, and a driver $(2) that runs them.
define simt_face
$(1)/%.o: backends/kernels/%.cu mk/simt.mk
	@mkdir -p $$(@D)
	$$(call say,c++)
	$(SIMT_CXX) $(SIMT_FLAGS) $(SIMT_DEFINES_$(notdir $(1))) -x c++ -include tests/support/simt/kernel.h -c -o $$@ $$<
$(1)/table.o: tests/support/simt/table.cc mk/simt.mk
	@mkdir -p $$(@D)
	$$(call say,c++)
	$(SIMT_CXX) $(filter-out -fvisibility=hidden,$(SIMT_FLAGS)) -c -o $$@ $$<
$(1)/simt.o: tests/support/simt/simt.c mk/simt.mk
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_common) $(SIMT_DEFINES_$(notdir $(1))) -O2 -g -fPIC -c -o $$@ $$<
# Apart from the driver: what is thread_local here is the kernels' shared memory, all of it.
$(1)/libsimt.so: $(SIMT_KERNELS:$(SIMT)/%=$(1)/%) $(1)/table.o $(1)/simt.o
	$$(call say,link)
	$(CXX) -shared -Wl,-z,defs -o $$@ $$^ -lm
$(2): $(FAKE_CUDA_SRC) tests/support/fake_cuda/internal.h tests/support/fake_cuda.h tests/support/simt/simt.h $(1)/libsimt.so
	$$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_common)) -O2 -g $(DRIVER_FLAGS) $(SIMT_DEFINES_$(notdir $(1))) -DFAKE_CUDA_SIMT -o $$@ $(FAKE_CUDA_SRC) -L$(1) -l:libsimt.so '-Wl,-rpath,$$$$ORIGIN'
# Does it find what it says? Kernels with mistakes, and a list of its own.
$(1)/wrong.o: tests/simt/wrong.cu mk/simt.mk
	@mkdir -p $$(@D)
	$$(call say,c++)
	$(SIMT_CXX) $(SIMT_FLAGS) $(SIMT_DEFINES_$(notdir $(1))) -DSIMT_SHUFFLED_FRAGMENTS -x c++ -include tests/support/simt/kernel.h -c -o $$@ $$<
$(1)/test_simt: tests/simt/test_simt.c $(1)/wrong.o $(1)/simt.o
	$$(call say,cc)
	$(CC) $(CFLAGS_common) $(SIMT_DEFINES_$(notdir $(1))) -O1 -o $$@ $$^ -lcmocka -lm
-include $(SIMT_KERNELS:$(SIMT)/%.o=$(1)/%.d) $(1)/table.d $(1)/simt.d $(1)/wrong.d $(1)/test_simt.d
endef
$(eval $(call simt_face,$(SIMT),$(SIMT_DRIVER)))
$(eval $(call simt_face,$(SIMT_HIP),$(SIMT_HIP_DRIVER)))

# Instead of the kernels' machine code: their files' names, which is all that this driver needs.
define simt_images_text
.section .rodata
.globl sl_$(1)_image_archs
sl_$(1)_image_archs: .asciz "$(2)"
$(foreach f,$(SIMT_KERNELS),$(1)_$(basename $(notdir $(f))): .asciz "$(basename $(notdir $(f)))"
)
.balign 8
$(1)_code: $(3)
.balign 8
.globl sl_$(1)_n_images
sl_$(1)_n_images: .quad $(words $(SIMT_KERNELS))
.section .data.rel.ro, "aw"
.balign 8
.globl sl_$(1)_images
sl_$(1)_images:
$(foreach f,$(SIMT_KERNELS),.quad $(1)_$(basename $(notdir $(f))), $(1)_code
)

endef
SIMT_IMAGES_TEXT = $(call simt_images_text,cuda,90,.quad 0xba55ed50)$(call simt_images_text,hip,gfx90a,.ascii "__CLANG_OFFLOAD_BUNDLE__").section .note.GNU-stack$(comma) ""
$(SIMT)/images.o: mk/simt.mk $(wildcard backends/kernels/*.cu)
	@mkdir -p $(@D)
	$(shell mkdir -p $(@D))$(file >$(SIMT)/images.S,$(SIMT_IMAGES_TEXT))
	$(CC) -c -o $@ $(SIMT)/images.S

# Programs of this mode with those images before the archive's.
SIMT_CONF := $(CONF_SRC:tests/conformance/%.c=$(B)/simt/%)
define simt_rule
$(B)/simt/$(notdir $(1:%.c=%)): $(1) $(B)/tests/conformance/conformance.o $(SIMT)/images.o $(CONF_LIBS)
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_all) $(TEST_CFLAGS_$(MODE)) $(LDFLAGS_$(MODE)) $(TEST_LDFLAGS) -o $$@ $(1) $(B)/tests/conformance/conformance.o $(SIMT)/images.o $(CONF_LIBS) -lcmocka -lm -lpthread
endef
$(foreach t,$(CONF_SRC),$(eval $(call simt_rule,$(t))))
$(B)/simt/sluice: $(B)/cli/main.o $(SIMT)/images.o $(LIBS)
	@mkdir -p $(@D)
	$(call say,link)
	$(CC) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $< $(SIMT)/images.o $(call link_libs,$(LAYERS)) $(LDLIBS)

SIMT_TEST := $(SIMT_ALL:%=%/test_simt)

SIMT_ENV = env LD_LIBRARY_PATH=$(SIMT) SIMT_RAN=$(SIMT)/ran
SIMT_HIP_ENV = env LD_LIBRARY_PATH=$(SIMT_HIP) SIMT_RAN=$(SIMT_HIP)/ran SIMT_WAVE=$(or $(WAVE),64)

# Every op on the emulated GPU, and which kernels that did not reach: `make conformance BACKEND=simt32`. As HIP's, on waves
# of 64: BACKEND=simt64 (WAVE=32: on waves of 32).
.PHONY: simt simt-conformance simt64-conformance simt-models simt64-models
simt-conformance: $(SIMT_CONF) $(SIMT_DRIVER) $(SIMT_TEST)
	rm -f $(SIMT)/ran
	$(TAP_SIDE) --timeout 3600 $(SIMT_TEST) $(foreach t,$(SIMT_CONF),"$(SIMT_ENV) $(t) --backend cuda")
	$(TAP) "tests/simt/ran.py $(SIMT)/libsimt.so $(SIMT)/ran"
simt64-conformance: $(SIMT_CONF) $(SIMT_HIP_DRIVER) $(SIMT_TEST)
	rm -f $(SIMT_HIP)/ran
	$(TAP_SIDE) --timeout 3600 $(SIMT_TEST) $(foreach t,$(SIMT_CONF),"$(SIMT_HIP_ENV) $(t) --backend hip")
	$(TAP) "tests/simt/ran.py $(SIMT_HIP)/libsimt.so $(SIMT_HIP)/ran"

# The part of it that `make test` has, whose conformance programs hold the CPU's kernels to the definition.
SIMT_QUICK = $(SIMT_TEST) $(patsubst %,"$(SIMT_ENV) $(B)/simt/test_% --backend cuda --reference fast",elementwise kv norm rope rows scale streams index blocks router \
  send recurrent latent matmul) "$(SIMT_ENV) $(B)/simt/test_moe --backend cuda --reference fast --test listed" \
  "$(SIMT_ENV) $(B)/simt/test_attention --backend cuda --reference fast --test values" \
  $(patsubst %,"$(SIMT_HIP_ENV) $(B)/simt/test_% --backend hip --reference fast",elementwise router recurrent send) \
  "$(SIMT_HIP_ENV) $(B)/simt/test_attention --backend hip --reference fast --test values"
## make simt                some conformance of the CUDA and HIP kernels, run on the CPU (all: make conformance BACKEND=simt32, simt64)
ifeq ($(CXX),)
SIMT_PROGRAMS :=
simt:
	$(TAP) "sh -c 'echo \"1..0 # SKIP no g++: the CUDA kernels were not run on the CPU\"; exit 77'"
else
SIMT_PROGRAMS := $(SIMT_TEST) $(SIMT_CONF) $(SIMT_DRIVER) $(SIMT_HIP_DRIVER)
simt: $(SIMT_PROGRAMS)
	$(TAP_SIDE) $(SIMT_QUICK)
endif

## make simt-models         whole small models through the CUDA backend and its kernels, run on the CPU (ONLY="gpt-oss f32")
simt-models: $(B)/simt/sluice $(SIMT_DRIVER)
	$(TAP) --timeout 7200 "$(SIMT_ENV) tests/gpu/models.py $(B)/simt/sluice --positions $(or $(POSITIONS),24) --jobs 2 $(if $(ONLY),--only '$(ONLY)')"

## make simt64-models       the same through the HIP backend, on waves of 64 and on two devices (WAVE=32: of 32)
simt64-models: $(B)/simt/sluice $(SIMT_HIP_DRIVER)
	$(TAP) --timeout 7200 "$(SIMT_HIP_ENV) FAKE_CUDA_DEVICES=2 tests/gpu/models.py $(B)/simt/sluice --device hip:0 --positions $(or $(POSITIONS),24) --jobs 2 $(if $(ONLY),--only '$(ONLY)')"

-include $(SIMT_CONF:=.d)
