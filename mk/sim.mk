# Virtual time: fetch, look-ahead, cache and reader over a made-up disk and device, against the analytic ceilings.
SIM_BIN := $(B)/tests/sim/test_sim
SIM_SRC := tests/sim/test_sim.c tests/sim/sim.c tests/replay/replay.c
SIM_LIBS := $(call link_libs,$(call closure,engine))

$(SIM_BIN): $(SIM_SRC) tests/sim/sim.h tests/replay/replay.h $(SIM_LIBS)
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $(SIM_SRC) $(SIM_LIBS) $(LDLIBS)

.PHONY: sim test-sim
## make sim                 decoding and prompts in virtual time against the analytic ceilings, as a table
sim: $(SIM_BIN)
	@$(SIM_BIN)
SIM_TEST = "$(SIM_BIN) $(if $(filter release,$(MODE)),--checks,--brief)"
test-sim: $(SIM_BIN)
	$(TAP) $(SIM_TEST)
