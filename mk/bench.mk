# Benches of single layers of the house: bench/bench_*.c, one program each.
BENCH_SRC := $(wildcard bench/bench_*.c)
BENCH_BIN := $(BENCH_SRC:%.c=$(B)/%)

define bench_rule
$(B)/$(1:%.c=%): $(1) $(B)/lib/libsl_backends.a $(B)/lib/libsl_common.a
	@mkdir -p $$(@D)
	$(CC) $(CFLAGS_all) $(LDFLAGS_$(MODE)) -o $$@ $(1) $(B)/lib/libsl_backends.a $(B)/lib/libsl_common.a -lm -lpthread
endef
$(foreach t,$(BENCH_SRC),$(eval $(call bench_rule,$(t))))

.PHONY: benches
## make benches             build the kernel benches, build/release/bench/bench_*
benches: $(BENCH_BIN)

-include $(BENCH_BIN:=.d)
