# Fuzzing. tests/fuzz/fuzz_NAME.c defines LLVMFuzzerTestOneInput and has a fixed corpus of small files
# in tests/fuzz/corpus/NAME/. Two builds: libFuzzer with clang (build/fuzz) explores, and
# replay_main.c with gcc under ASan and UBSan (build/asan) runs the fixed corpus in every test run.
#
# The folder whose archive a target links, with those below it; model unless said here.
FUZZ_LAYER_http := server
FUZZ_LAYER_json := server
FUZZ_LAYER_splitter := server
FUZZ_LAYER_wire := server
FUZZ_LAYER_frames := cluster
FUZZ_LAYER_handshake := net
FUZZ_LAYER_stages := engine
FUZZ_LAYER_routes := expert_cache
# More libFuzzer arguments of a target, such as -max_len=4096.
FUZZ_ARGS_gguf := -max_len=16384
FUZZ_ARGS_grammar := -max_len=2048
FUZZ_ARGS_http := -max_len=8192 -dict=tests/fuzz/http.dict
FUZZ_ARGS_handshake := -max_len=2048
FUZZ_ARGS_marks := -max_len=1024 -dict=tests/fuzz/marks.dict
FUZZ_ARGS_schema := -max_len=4096
FUZZ_ARGS_wire := -max_len=2048 -dict=tests/fuzz/http.dict
FUZZ_ARGS_stages := -max_len=4096
FUZZ_ARGS_splitter := -max_len=2048
FUZZ_ARGS_template := -max_len=4096 -dict=tests/fuzz/template.dict
FUZZ_ARGS_template_cost := -max_len=2048 -dict=tests/fuzz/template.dict
FUZZ_SECONDS ?= 60
FUZZ_CC ?= clang

FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_NAMES := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%)
FUZZ_BIN := $(FUZZ_NAMES:%=$(B)/tests/fuzz/fuzz_%)
REPLAY_BIN := $(FUZZ_NAMES:%=$(B)/tests/fuzz/replay_%)
fuzz_layer = $(or $(FUZZ_LAYER_$(1)),model)

define fuzz_rules
$(B)/tests/fuzz/fuzz_$(1): tests/fuzz/fuzz_$(1).c $(foreach l,$(call closure,$(call fuzz_layer,$(1))),$(B)/lib/libsl_$(l).a)
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_all) -fsanitize=fuzzer -o $$@ $$< $$(call link_libs,$(call closure,$(call fuzz_layer,$(1)))) $(LDLIBS)
$(B)/tests/fuzz/replay_$(1): tests/fuzz/fuzz_$(1).c tests/fuzz/replay_main.c $(foreach l,$(call closure,$(call fuzz_layer,$(1))),$(B)/lib/libsl_$(l).a)
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) $(TEST_LDFLAGS) -o $$@ $$< tests/fuzz/replay_main.c $$(call link_libs,$(call closure,$(call fuzz_layer,$(1)))) $(LDLIBS)
.PHONY: fuzz-run-$(1)
fuzz-run-$(1): $(B)/tests/fuzz/fuzz_$(1)
	@mkdir -p build/fuzz/corpus/$(1) build/fuzz/found
	@echo "fuzz $(1): $(FUZZ_SECONDS) s"; \
	$$< -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 $(FUZZ_ARGS_$(1)) \
	  -artifact_prefix=build/fuzz/found/$(1)- build/fuzz/corpus/$(1) tests/fuzz/corpus/$(1) >build/fuzz/$(1).log 2>&1 \
	  || { tail -50 build/fuzz/$(1).log; echo "fuzz $(1): FAILED; input under build/fuzz/found, log build/fuzz/$(1).log"; exit 1; }; \
	grep -h 'stat::number_of_executed_units\|DONE' build/fuzz/$(1).log
endef
$(foreach n,$(FUZZ_NAMES),$(eval $(call fuzz_rules,$(n))))

.PHONY: fuzz fuzz-corpus fuzz-corpus-run
## make fuzz                explore each fuzz target for FUZZ_SECONDS (60) with libFuzzer (clang)
fuzz:
	@set -e; for n in $(FUZZ_NAMES); do $(MAKE) --no-print-directory MODE=fuzz CC=$(FUZZ_CC) fuzz-run-$$n; done
## make fuzz-corpus         run the fixed corpus of each fuzz target under ASan and UBSan
fuzz-corpus:
	@$(MAKE) --no-print-directory MODE=asan fuzz-corpus-run
fuzz-corpus-run: $(REPLAY_BIN)
	$(TAP) $(foreach n,$(FUZZ_NAMES),"$(B)/tests/fuzz/replay_$(n) tests/fuzz/corpus/$(n)")
-include $(FUZZ_BIN:=.d)
