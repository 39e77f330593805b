# Tests of the engine once more, with every stage behind messages in bytes (tests/support/bytes_stage.h): the same
# sources, so the same bits, errors and cancellation are asked for.
BYTES_SRC := $(addprefix tests/,unit/engine/test_scheduler unit/engine/test_generate unit/engine/test_prefix \
  unit/engine/test_expert_map unit/engine/test_prefix_disk unit/engine/test_device_windows unit/engine/test_device_delta \
  unit/engine/test_device_prefix unit/engine/test_device_pipeline unit/engine/test_device_prompt_rows \
  determinism/test_device fault/test_disk_speed)
# Under ASan go those whose messages differ; the others would take two minutes for what these have shown.
ifeq ($(MODE),asan)
BYTES_SRC := $(filter-out %/determinism/test_device %/test_prefix %/test_generate %/test_device_delta %/test_device_windows,$(BYTES_SRC))
endif
BYTES_BIN := $(BYTES_SRC:%=$(B)/%_by_bytes)
BYTES_OBJ := $(B)/tests/support/bytes_stage.o $(B)/tests/support/bytes_stage_everywhere.o
BYTES_LIBS := $(call link_libs,$(call closure,engine))

$(BYTES_BIN): $(B)/%_by_bytes: %.c $(BYTES_OBJ) $(B)/tests/support/card.o $(BYTES_LIBS)
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(CFLAGS_all) $(TEST_CFLAGS_$(MODE)) $(LDFLAGS_$(MODE)) $(TEST_LDFLAGS) -DSTAGES_BEHIND_BYTES -Wl,--wrap=sl_engine_create -o $@ $< $(BYTES_OBJ) $(if $(findstring test_device,$<),$(B)/tests/support/card.o) $(BYTES_LIBS) -lcmocka $(LDLIBS)

.PHONY: stages
## make stages              tests of the engine once more, with each stage reached by messages in bytes alone
stages: $(BYTES_BIN)
	$(QUICK) $(TAP_SIDE) $(BYTES_BIN)

-include $(BYTES_BIN:=.d) $(BYTES_OBJ:.o=.d)
