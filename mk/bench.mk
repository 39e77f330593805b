# Benches of single layers of the house: bench/bench_*.c, one program each.
BENCH_SRC := $(wildcard bench/bench_*.c)
# Beside UCX, where libucx-dev is installed.
UCX_LIBS := $(shell pkg-config --libs ucx 2>/dev/null)
BENCH_SRC := $(if $(UCX_LIBS),$(BENCH_SRC),$(filter-out bench/bench_net_ucx.c,$(BENCH_SRC)))
$(B)/bench/bench_net_ucx: CFLAGS_all += $(shell pkg-config --cflags ucx 2>/dev/null)
BENCH_BIN := $(BENCH_SRC:%.c=$(B)/%)

# The folder that a bench measures; backends unless said here.
BENCH_LAYER_matmul := cli backends
BENCH_LAYER_reader := streaming
BENCH_LAYER_rows := streaming
BENCH_LAYER_net := net
BENCH_LIBS_net_ucx = $(UCX_LIBS)
BENCH_LAYER_server := server engine model backends expert_cache streaming
BENCH_LAYER_grammar := model
BENCH_LAYER_sampler := engine model backends expert_cache streaming
bench_libs = $(foreach l,$(or $(BENCH_LAYER_$(1:bench/bench_%.c=%)),backends) common,$(B)/lib/libsl_$(l).a)

define bench_rule
$(B)/$(1:%.c=%): $(1) $(call bench_libs,$(1))
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_all) $(LDFLAGS_$(MODE)) -o $$@ $(1) $(call bench_libs,$(1)) $(if $(BENCH_LAYER_$(1:bench/bench_%.c=%)),$(LDLIBS)) $(BENCH_LIBS_$(1:bench/bench_%.c=%)) -lm -lpthread
endef
$(foreach t,$(BENCH_SRC),$(eval $(call bench_rule,$(t))))

.PHONY: benches
## make benches             build the kernel benches, build/release/bench/bench_*
benches: $(BENCH_BIN)

-include $(BENCH_BIN:=.d)
