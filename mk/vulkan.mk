# The Vulkan backend: each backends/vulkan/shaders/NAME.comp becomes one SPIR-V module, embedded in the backends' archive.
# Vulkan's headers are needed to build it and its loader (libvulkan.so.1) to run it, which is opened at run time. Where the
# headers or glslc are missing everything else builds, and the backend says that it was left out.
#   WITH_VULKAN=auto|1|0  auto takes glslc and the headers when they are there, 1 fails without them, 0 leaves them out
#   GLSLC=/path/to/glslc
WITH_VULKAN ?= auto
GLSLC ?= $(firstword $(shell command -v glslc 2>/dev/null))
VULKAN_HEADERS := $(shell printf '\#include <vulkan/vulkan.h>\n\#ifdef VK_API_VERSION_1_3\nyes_1_3\n\#endif\n' | \
  $(CC) -E -P - 2>/dev/null | grep yes_1_3)
ifeq ($(WITH_VULKAN),0)
VULKAN_LACKS := WITH_VULKAN=0
else ifeq ($(GLSLC),)
VULKAN_LACKS := no glslc
else ifeq ($(VULKAN_HEADERS),)
VULKAN_LACKS := no headers of Vulkan 1.3
endif
ifeq ($(WITH_VULKAN),1)
ifneq ($(VULKAN_LACKS),)
$(error WITH_VULKAN=1, but there are $(VULKAN_LACKS); install glslc and libvulkan-dev, or give GLSLC=/path/to/glslc)
endif
endif

# Without it, one file stands for the backend.
VULKAN_ABSENT := backends/vulkan/absent.c
VULKAN_SRC := $(filter-out $(VULKAN_ABSENT),$(wildcard backends/vulkan/*.c))
SRC := $(filter-out $(if $(VULKAN_LACKS),$(VULKAN_SRC),$(VULKAN_ABSENT)),$(SRC))
VULKAN_PRIVATE_HEADERS := $(if $(VULKAN_LACKS),$(filter-out backends/vulkan/vulkan.h,$(wildcard backends/vulkan/*.h)))
VULKAN_SHADERS := $(if $(VULKAN_LACKS),,$(wildcard backends/vulkan/shaders/*.comp))
# All modes share them.
VULKAN_DIR := build/vulkan
# Each for devices whose fma rounds once, and for others, where it is computed in doubles.
VULKAN_SPV := $(VULKAN_SHADERS:backends/vulkan/shaders/%.comp=$(VULKAN_DIR)/%.spv) \
  $(VULKAN_SHADERS:backends/vulkan/shaders/%.comp=$(VULKAN_DIR)/%_doubles.spv)
VULKAN_GLSLC = $(GLSLC) --target-env=vulkan1.3 -O -Werror -MD -MF $(@:.spv=.d)

$(VULKAN_DIR)/%_doubles.spv: backends/vulkan/shaders/%.comp mk/vulkan.mk
	@mkdir -p $(@D)
	$(call say,glslc)
	$(VULKAN_GLSLC) -DDOUBLES -o $@ $<
$(VULKAN_DIR)/%.spv: backends/vulkan/shaders/%.comp mk/vulkan.mk
	@mkdir -p $(@D)
	$(call say,glslc)
	$(VULKAN_GLSLC) -o $@ $<

# The list of modules, rewritten only when it changes.
VULKAN_MODULES := $(B)/backends/vulkan/modules.S
define VULKAN_MODULES_TEXT
.section .rodata
$(foreach f,$(VULKAN_SPV),name_$(basename $(notdir $(f))): .asciz "$(basename $(notdir $(f)))"
.balign 64
data_$(basename $(notdir $(f))): .incbin "$(f)"
end_$(basename $(notdir $(f))):
)
.balign 8
.globl sl_vulkan_n_modules
sl_vulkan_n_modules: .quad $(words $(VULKAN_SPV))
.section .data.rel.ro, "aw"
.balign 8
.globl sl_vulkan_modules
sl_vulkan_modules:
$(foreach f,$(VULKAN_SPV),.quad name_$(basename $(notdir $(f))), data_$(basename $(notdir $(f))), end_$(basename $(notdir $(f))) - data_$(basename $(notdir $(f)))
)
.section .note.GNU-stack, ""
endef
$(shell mkdir -p $(dir $(VULKAN_MODULES)))
$(file >$(VULKAN_MODULES).new,$(VULKAN_MODULES_TEXT))
$(shell cmp -s $(VULKAN_MODULES).new $(VULKAN_MODULES) || cp $(VULKAN_MODULES).new $(VULKAN_MODULES))

$(B)/backends/vulkan/modules.o: $(VULKAN_MODULES) $(VULKAN_SPV)
	$(call say,as)
	$(CC) -c -o $@ $<
	$(if $(VULKAN_LACKS),@echo "  $(VULKAN_LACKS): built without Vulkan")
VULKAN_OBJ := $(B)/backends/vulkan/modules.o

# A loader for tests: it stands before the real one and fails when told to.
# In a folder of its own: a program that is to open it must not find the faulty libcuda.so.1 beside it.
FAULTY_VULKAN := $(if $(VULKAN_LACKS),,$(B)/tests/support/faulty_vulkan/libvulkan.so.1)
$(B)/tests/support/faulty_vulkan/libvulkan.so.1: tests/support/faulty_vulkan.c mk/vulkan.mk
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(DRIVER_FLAGS) -o $@ $< -lpthread

-include $(VULKAN_SPV:.spv=.d)
# What a shader includes no longer need be there (glslc has no -MP).
backends/vulkan/shaders/%.glsl: ;
