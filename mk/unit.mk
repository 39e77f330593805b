# Tests. A unit test links its own folder's archive and those below it.

# Test programs are many. Optimising what is in them alone costs more than it saves; ld takes three times as long as gold,
# and most of what it copies is debug information, which a release's tests do without (MODE=debug has it).
TEST_CFLAGS_release := -O1 -g0
TEST_CFLAGS_asan := -O0
TEST_CFLAGS_tsan := -O0
TEST_LDFLAGS_release := -Wl,-S
GOLD := $(shell command -v ld.gold 2>/dev/null)
TEST_LDFLAGS := $(if $(GOLD),-fuse-ld=gold) $(TEST_LDFLAGS_$(MODE))

UNIT_SRC := $(filter-out $(if $(VULKAN_LACKS),tests/unit/backends/test_vulkan_%) $(if $(LZ_LACKS),tests/unit/backends/test_level_zero.c),$(wildcard tests/unit/*/test_*.c))
UNIT_BIN := $(UNIT_SRC:%.c=$(B)/%)

closure = $(sort $(1) $(LAYER_$(1)) $(foreach l,$(LAYER_$(1)),$(LAYER_$(l))))
unit_layer = $(patsubst tests/unit/%/,%,$(dir $(1)))

# Tests named for a device bring a card of their own (tests/support/card.h).
card = $(if $(findstring test_device,$(1)),$(B)/tests/support/card.o)
-include $(B)/tests/support/card.d

define unit_rule
$(B)/$(1:%.c=%): $(1) $(call card,$(1)) $(foreach l,$(call closure,$(call unit_layer,$(1))),$(B)/lib/libsl_$(l).a)
	@mkdir -p $$(@D)
	$$(call say,cc)
	$(CC) $(CFLAGS_all) $(TEST_CFLAGS_$(MODE)) $(LDFLAGS_$(MODE)) $(TEST_LDFLAGS) -o $$@ $(1) $(call card,$(1)) $$(call link_libs,$(call closure,$(call unit_layer,$(1)))) -lcmocka $(LDLIBS)
endef
$(foreach t,$(UNIT_SRC),$(eval $(call unit_rule,$(t))))
$(filter $(B)/tests/unit/backends/test_cuda_%,$(UNIT_BIN)): | $(FAKE_CUDA)
$(B)/tests/unit/backends/test_level_zero: | $(ZE_DRIVER)
$(filter $(B)/tests/unit/backends/test_hip%,$(UNIT_BIN)): | $(FAKE_HIP) $(FAKE_CUDA)

.PHONY: unit
## make unit                build and run the unit tests (MODE=release|debug|asan|tsan)
unit: $(UNIT_BIN)
	$(QUICK) $(TAP_SIDE) $(UNIT_BIN)

## make check-layers        prove the graphs of mk/layers.mk, of folders and of rooms, by includes and by calls;
##                          nothing outside backends/ names a backend
## make check-headers       compile each header alone
## make format, make lint   clang-format, clang-tidy
.PHONY: check-layers check-headers format check-format lint
check-layers: $(OBJ)
	@scripts/check_layers.sh $(B) $(foreach l,$(LAYERS),"$(l):$(LAYER_$(l))")
	@scripts/check_rooms.py . $(B) $(foreach r,$(ROOMS),"$(r):$(ROOM_$(r))") --no-circles $(NO_CIRCLES) \
	  --folders $(foreach l,$(LAYERS),"$(l):$(LAYER_$(l))")
	@scripts/check_names.py

HEADERS := $(filter-out $(VULKAN_PRIVATE_HEADERS) $(LZ_PRIVATE_HEADERS),$(foreach l,$(LAYERS),$(wildcard $(l)/*.h $(l)/*/*.h $(l)/*/*/*.h)))
check-headers:
	@for h in $(HEADERS); do \
	  echo "#include \"$$h\"" | $(CC) $(CFLAGS_common) -MF /dev/null -Werror -fsyntax-only -x c - || { echo "$$h does not compile alone"; exit 1; }; \
	done; echo "check-headers: $(words $(HEADERS)) headers compile alone"

C_FILES = $(shell git ls-files '*.c' '*.h')
format:
	clang-format -i $(C_FILES)
check-format:
	@clang-format --dry-run -Werror $(C_FILES) && echo "check-format: ok"
lint:
	clang-tidy --quiet $(filter %.c,$(C_FILES)) -- $(CFLAGS_common)

-include $(UNIT_BIN:=.d)
