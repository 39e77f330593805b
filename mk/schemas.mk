# The public JSON Schema test suite against the schema compiler. SCHEMA_SUITE is a checkout of
# json-schema-org/JSON-Schema-Test-Suite, which is not part of this repository.
SCHEMA_TEXTS := $(B)/tests/schemas/schema_texts
$(SCHEMA_TEXTS): tests/schemas/schema_texts.c $(B)/lib/libsl_model.a $(B)/lib/libsl_common.a
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) -o $@ $^ $(LDLIBS)

.PHONY: schema-suite
## make schema-suite SCHEMA_SUITE=DIR   how much of the public JSON Schema test suite compiles, and is answered right: as
##                          the standard reads a schema and by default, with strict and without
schema-suite: $(SCHEMA_TEXTS)
	tests/schemas/suite.py $(SCHEMA_TEXTS) $(SCHEMA_SUITE) --open --strict --least-compiled 1150 --least-valid 97
	tests/schemas/suite.py $(SCHEMA_TEXTS) $(SCHEMA_SUITE) --open --least-compiled 1150 --least-valid 97
	tests/schemas/suite.py $(SCHEMA_TEXTS) $(SCHEMA_SUITE) --strict --least-compiled 1150
	tests/schemas/suite.py $(SCHEMA_TEXTS) $(SCHEMA_SUITE) --least-compiled 1150
