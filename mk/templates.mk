# The chat template interpreter against Python's Jinja2 (package python3-jinja2; skipped without it).
# TEMPLATES is a folder of real chat templates, *.jinja; without it only the language is compared.
TEMPLATES ?= $(wildcard ../shared/testdata/templates)
TEMPLATE_RENDER := $(B)/tests/templates/render
TEMPLATE_LIBS := $(foreach l,$(call closure,model),$(B)/lib/libsl_$(l).a)

$(TEMPLATE_RENDER): tests/templates/render.c $(TEMPLATE_LIBS)
	@mkdir -p $(@D)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) $(LDFLAGS_$(MODE)) $(LDFLAGS) -o $@ $< $(call link_libs,$(call closure,model)) $(LDLIBS)

.PHONY: test-templates
## make test-templates      chat templates against Python's Jinja2, byte for byte
test-templates: $(TEMPLATE_RENDER)
	tests/run_tap.py $(if $(SUMMARY),--summary $(SUMMARY)) "/usr/bin/python3 -B tests/templates/run.py $(TEMPLATE_RENDER) $(TEMPLATES)"

FUZZ_ARGS_template := -max_len=4096 -dict=tests/fuzz/template.dict
