# The whole test run, and the parts that it is made of. Each part adds its counts to $(SUMMARY) when that is given;
# `make test` gives one file and closes with their sum.
TAP = tests/run_tap.py $(if $(SUMMARY),--summary $(SUMMARY))
# For tests that ask for bits and not for what a disk does: models in memory, read past the page cache as on a disk.
QUICK = SLUICE_TEST_QUICK_DIR=$$(scripts/quick_dir.sh)
# Programs of few threads run two at a time.
TAP_SIDE = $(TAP) --jobs 2
SUBMAKE = $(MAKE) --no-print-directory

# Intel's Level Zero driver, which comes with ocloc, opens a library in a way that sanitizers end a program for. Tests
# that need a driver name theirs.
ifneq ($(filter asan tsan,$(MODE)),)
export ZE_ENABLE_ALT_DRIVERS ?= none
endif

# Chat templates against Python's Jinja2. The oracle is Debian's python3-jinja2, so Debian's python3.
RENDER := $(B)/tests/templates/render
TEMPLATES ?= ../shared/testdata/templates
$(RENDER): tests/templates/render.c $(B)/lib/libsl_model.a $(B)/lib/libsl_common.a
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) -o $@ $^ $(LDLIBS)

.PHONY: test-programs test-parts test-templates test-side test
# All that the parts need: a part that waits for a compiler lets others go first, and the longest would end the run alone.
test-programs: $(B)/sluice $(UNIT_BIN) $(CONF_BIN) $(if $(filter release,$(MODE)),$(DET_BIN) $(SIMT_PROGRAMS) $(HANGING_DISK),$(DET_QUICK) $(REPLAY_BIN)) \
  $(FAULT_BIN) $(BYTES_BIN) $(RENDER) $(ROUTES_BIN) $(SIM_BIN) $(FAULTY_CUDA) $(FAKE_CUDA) $(FAULTY_VULKAN) $(HIP_FAULT_FILES) $(ZE_DRIVER)
TEMPLATES_TEST = "/usr/bin/python3 tests/templates/run.py $(if $(filter asan,$(MODE)),--every 7) $(RENDER) $(TEMPLATES)"
test-templates: $(RENDER)
	$(TAP) $(TEMPLATES_TEST)
# Programs of one thread, and the HTTP tests that fill the other CPU meanwhile; the longest first.
test-side: $(RENDER) $(ROUTES_BIN) $(SIM_BIN) $(B)/sluice tests/http/node_modules/.package-lock.json
	@MODE=$(MODE) $(TAP_SIDE) $(TEMPLATES_TEST) $(HTTP_RUNS) $(REPLAY_TEST) $(SIM_TEST)
# Three parts at a time, so that one that runs its programs one by one, or waits, leaves no CPU idle: those first.
TEST_PARTS = fault cluster unit $(if $(filter release,$(MODE)),browser-quick test-budget determinism simt,determinism-quick) conformance \
  $(if $(filter release,$(MODE)),test-deploy cluster-engines cluster-links test-routing test-monitoring) test-pull test-terminal \
  stages $(if $(filter asan,$(MODE)),fuzz-corpus-run) test-side
## make test-parts          everything for one MODE: units, conformance, faults, determinism, templates, replay, HTTP
test-parts: test-programs
	@$(SUBMAKE) -k $(if $(findstring -j,$(MAKEFLAGS)),,-j3) $(TEST_PARTS)

# Do synthetic models route like a real one?
.PHONY: test-routing
test-routing: $(B)/sluice $(ROUTES_BIN)
	$(TAP) "tests/replay/synth_routing.py $(B)/sluice $(ROUTES_BIN)"

# Under TSan: what has threads, or is called from several. These programs start none, or only plan.
NO_THREADS := $(addprefix test_,answer_forms answer_grammar answer_parts device_stages disk_demand dry expert_fetch \
  expert_probe fields formats frame hosts layer_run math memory memory_budget memory_fit micro_batch pass_through prediction_score \
  prefetch_trial prefix_tree prompt_shares prompt_slices read_depth read_pace read_plan reader sampler sampler_blocks sampler_select session_states setup \
  slab slot_reads splitter stage_message step stop synth wire)
# ... and those whose threads meet as in others: test_device_pipeline has the same with other layers, and test_device_drafts,
# test_device_embeddings and test_device_draft_layer run whole answers again and again through the scheduler and stages that test_scheduler
# and test_device_pipeline bring together.
THREADS_ALIKE := test_device_delta test_device_drafts test_device_embeddings test_device_draft_layer
TSAN_UNIT := $(filter-out $(foreach t,$(NO_THREADS) $(THREADS_ALIKE),$(B)/tests/unit/%/$(t)),$(filter $(foreach l,\
  engine server backends streaming net cluster,$(B)/tests/unit/$(l)/%),$(UNIT_BIN)))
.PHONY: tsan-programs test-tsan
# Of the faults what cancels and quits while others work; `make fault MODE=tsan` runs all, which takes minutes.
TSAN_FAULT := $(filter %/test_hang,$(FAULT_BIN))
TSAN_BYTES := $(filter %/test_scheduler_by_bytes %/test_device_pipeline_by_bytes,$(BYTES_BIN))
tsan-programs: $(TSAN_UNIT) $(TSAN_FAULT) $(TSAN_BYTES)
test-tsan: tsan-programs
	$(QUICK) $(TAP_SIDE) $(TSAN_UNIT) $(TSAN_FAULT) $(TSAN_BYTES)

## make test                install what is missing, build, run everything that needs no GPU: a release build, all of
##                          it again under ASan and UBSan, and what has threads under TSan
COUNTS := build/test.counts
test:
	@scripts/install_deps.sh test
	@mkdir -p build; rm -f $(COUNTS) $(COUNTS).failed
	@$(SUBMAKE) $(SUBJOBS) MODE=release test-programs
	@$(SUBMAKE) $(SUBJOBS) MODE=asan test-programs
	@$(SUBMAKE) $(SUBJOBS) MODE=tsan tsan-programs
	@rc=0; \
	echo "== release"; $(SUBMAKE) MODE=release SUMMARY=$(COUNTS) test-parts || rc=1; \
	echo "== ASan and UBSan, and TSan"; \
	$(SUBMAKE) MODE=tsan SUMMARY=$(COUNTS) test-tsan & tsan=$$!; \
	$(SUBMAKE) MODE=asan SUMMARY=$(COUNTS) test-parts || rc=1; \
	wait $$tsan || rc=1; \
	scripts/sum_counts.sh $(COUNTS) || rc=1; exit $$rc
