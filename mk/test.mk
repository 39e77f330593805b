# The whole test run. Each part appends its counts to build/test.counts; the last line sums them.
TESTS_SUM := build/test.counts
JOBS := $(shell nproc)
SUBMAKE = $(MAKE) --no-print-directory -j$(JOBS)

.PHONY: test test-release test-asan test-tsan
## make test                install what is missing, build, run everything that needs no GPU
test:
	@scripts/install_deps.sh test
	@rm -f $(TESTS_SUM); mkdir -p build
	@$(SUBMAKE) MODE=release all test-programs
	@$(SUBMAKE) MODE=asan all test-programs
	@$(SUBMAKE) MODE=tsan test-programs-tsan
	@rc=0; for part in "release test-release" "asan test-asan" "tsan test-tsan"; do \
	  set -- $$part; $(MAKE) --no-print-directory MODE=$$1 $$2 || rc=1; done; \
	scripts/sum_counts.sh $(TESTS_SUM) || rc=1; exit $$rc
