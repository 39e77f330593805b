# Router traces through the expert cache, beside LRU, LFU, the best static choice and the optimum.
ROUTES_BIN := $(B)/tests/replay/test_replay
ROUTES_LIBS := $(B)/lib/libsl_expert_cache.a $(B)/lib/libsl_common.a

$(ROUTES_BIN): tests/replay/test_replay.c tests/replay/replay.c tests/replay/replay.h $(ROUTES_LIBS)
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $(filter %.c %.a,$^) -lm

.PHONY: replay test-replay
## make replay              hit rates of the expert cache on router traces, as a table
##                          (TRACE="FILE ..." replays recorded ones instead of the made-up)
replay: $(ROUTES_BIN)
	@$(ROUTES_BIN) $(TRACE)
REPLAY_TEST = "$(ROUTES_BIN) $(if $(filter release,$(MODE)),,--brief)"
test-replay: $(ROUTES_BIN)
	$(TAP) $(REPLAY_TEST)
