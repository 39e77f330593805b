# Determinism: whole runs on synthetic models, compared bit for bit over everything that must not show.
DET_SRC := $(wildcard tests/determinism/test_*.c)
DET_BIN := $(DET_SRC:%.c=$(B)/%)
DET_LIBS := $(call link_libs,$(call closure,engine))

define det_rule
$(B)/$(1:%.c=%): $(1) $(call card,$(1)) $(DET_LIBS)
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_all) $(TEST_CFLAGS_$(MODE)) $(LDFLAGS_$(MODE)) $(TEST_LDFLAGS) -o $$@ $(1) $(call card,$(1)) $(DET_LIBS) -lcmocka $(LDLIBS)
endef
$(foreach t,$(DET_SRC),$(eval $(call det_rule,$(t))))

.PHONY: determinism
## make determinism         whole runs bit for bit over schedules, threads, instruction sets
determinism: $(DET_BIN)
	$(QUICK) $(TAP_SIDE) $(DET_BIN)

# The part that also runs under ASan: there it chooses fewer settings by itself.
DET_QUICK := $(B)/tests/determinism/test_placement
.PHONY: determinism-quick
determinism-quick: $(DET_QUICK)
	$(QUICK) $(TAP) $(DET_QUICK)

-include $(DET_BIN:=.d)
