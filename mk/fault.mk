# Faults: whole engines over disks that err, hang and lie, files that change, and memory that runs out. Some programs
# put themselves between the engine and libc; what they replace is named here.
FAULT_SRC := $(wildcard tests/fault/test_*.c)
FAULT_BIN := $(FAULT_SRC:%.c=$(B)/%)
FAULT_LIBS := $(call link_libs,$(call closure,engine))

WRAP_test_hang := pread
WRAP_test_prefix_disk := read write
WRAP_test_heat_disk := write fsync stat read
WRAP_test_device_heat := stat
WRAP_test_nomem := malloc calloc realloc posix_memalign aligned_alloc strdup free mmap munmap pthread_create

define fault_rule
$(B)/$(1:%.c=%): $(1) $(call card,$(1)) $(FAULT_LIBS)
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_all) $(TEST_CFLAGS_$(MODE)) $(LDFLAGS_$(MODE)) $(TEST_LDFLAGS) $(addprefix -Wl$(comma)--wrap=,$(WRAP_$(notdir $(1:%.c=%)))) -o $$@ $(1) $(call card,$(1)) $(FAULT_LIBS) -lcmocka $(LDLIBS)
endef
comma := ,
$(foreach t,$(FAULT_SRC),$(eval $(call fault_rule,$(t))))

# The program itself on a GPU that fails; here over a driver without one.
GPU_FAULTS := "tests/fault/gpu_faults.py $(B)/sluice demo/demo.gguf $(dir $(FAULTY_CUDA)) $(FAKE_CUDA) --vram-reserve-mib 8"

# The same through ROCm's runtime, with the program that has images for the emulated GPU: this driver's kernels do nothing,
# so hipcc is not needed. In release alone: but for what is HIP's the host side is CUDA's.
HIP_FAULTS := $(if $(filter release,$(MODE)),"tests/fault/gpu_faults.py --backend hip $(B)/simt/sluice demo/demo.gguf $(dir $(FAULTY_HIP)) \
  $(firstword $(FAKE_HIP)) --vram-reserve-mib 8")

# The same on a Vulkan device, of Mesa's on the CPU, in release alone: that device is slow enough.
VULKAN_FAULTS := $(if $(filter release,$(MODE)),"tests/fault/vulkan_faults.py $(B)/sluice $(B)/tests/support/faulty_vulkan")

HIP_FAULT_FILES := $(if $(HIP_FAULTS),$(B)/simt/sluice $(FAULTY_HIP) $(FAKE_HIP))

# How it divides a model among several.
GPU_PLANS := "tests/fault/gpu_plans.py $(B)/sluice demo/demo.gguf $(FAKE_CUDA)"

# What it writes, and what it must leave alone; limits on files.
FILE_FAULTS := "tests/fault/files.py $(B)/sluice"

.PHONY: fault
## make fault               whole engines over disks, files, memory and GPUs that fail
fault: $(FAULT_BIN) $(B)/sluice $(FAULTY_CUDA) $(FAKE_CUDA) $(FAULTY_VULKAN) $(HIP_FAULT_FILES)
	$(TAP_SIDE) $(FAULT_BIN) $(FILE_FAULTS) $(GPU_FAULTS) $(HIP_FAULTS) $(GPU_PLANS) $(VULKAN_FAULTS)

-include $(FAULT_BIN:=.d)
