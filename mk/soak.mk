# Soak: the streaming server under ASan, in a memory cgroup, on a disk that fails. Half an hour.
SOAK := $(B)/tests/soak/sluice

$(SOAK): tests/soak/faults.c $(B)/cli/main.o $(LIBS)
	@mkdir -p $(@D)
	$(call say,link)
	$(CC) $(CFLAGS_all) -Wconversion $(LDFLAGS_$(MODE)) $(LDFLAGS) -Wl,--wrap=sl_reader_complete -o $@ $< $(B)/cli/main.o $(call link_libs,$(LAYERS)) $(LDLIBS)

.PHONY: soak soak-build
soak-build: $(SOAK)
## make soak                half an hour of mixed requests on a failing disk, under ASan in 1 GiB
soak:
	@$(MAKE) --no-print-directory MODE=asan soak-build
	tests/soak/soak.py $(SOAK_OPTIONS)
-include $(SOAK).d
