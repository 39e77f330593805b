# Comparison with llama.cpp, from the npm package node-llama-cpp: development only.
PEER := tests/peer
PEER_LIBS := $(PEER)/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
PEER_SRC := build/peer/src

$(PEER)/node_modules/.installed: $(PEER)/package.json
	cd $(PEER) && npm install --no-package-lock --omit=optional --ignore-scripts --no-audit --no-fund >/dev/null
	@touch $@

# Headers and chat templates only, from the source bundle inside the package. The templates are for test_answer_forms, and for
# make test-templates TEMPLATES=build/peer/src/models/templates.
$(PEER_SRC)/.extracted: $(PEER)/node_modules/.installed
	@rm -rf $(PEER_SRC) && mkdir -p build/peer
	git clone -q --no-checkout $(PEER)/node_modules/node-llama-cpp/llama/gitRelease.bundle $(PEER_SRC) 2>/dev/null
	cd $(PEER_SRC) && git checkout -q HEAD -- include ggml/include models/templates
	@touch $@

build/peer/llama_peer: $(PEER)/llama_peer.c $(PEER_SRC)/.extracted
	$(call say,cc)
	gcc -O2 -Wall -Wextra -I$(PEER_SRC)/include -I$(PEER_SRC)/ggml/include -o $@ $< \
	  -L$(PEER_LIBS) -l:libllama.v0.5.0.so -l:libggml.v0.5.0.so -l:libggml-base.so -lm \
	  "-Wl,-rpath,$(CURDIR)/$(PEER_LIBS)"

.PHONY: test-peer peer
peer: build/peer/llama_peer build/peer/dequant
## make test-peer           compare log-probabilities and tokenizers with llama.cpp (npm package, development only)
test-peer:
	@scripts/install_deps.sh peer
	@$(MAKE) --no-print-directory MODE=release all peer
	GGML_DIR="$(CURDIR)/$(PEER_LIBS)" tests/run_tap.py --timeout 1800 "build/peer/dequant $(PEER_LIBS)/libggml-base.so" "$(PEER)/run.py build/release/sluice build/peer/llama_peer" \
	  "node $(PEER)/tokenizer.mjs build/release/sluice ../shared/testdata/vocab build/peer/llama_peer" \
	  "$(PEER)/tokenizer_splits.py build/release/sluice"

.PHONY: gpu-models
## make gpu-models          small models of every architecture on a GPU, beside the CPU and in every placement (GPU=cuda:0);
##                          servers on it: eight requests at once, known texts, and what the next server finds on disk
gpu-models:
	@$(MAKE) --no-print-directory MODE=release all
	tests/run_tap.py --timeout 3600 "tests/gpu/models.py build/release/sluice --device $(or $(GPU),cuda:0)" \
	  "tests/gpu/restarts.py build/release/sluice --device $(or $(GPU),cuda:0)"

# Dequantisation against ggml's, bit for bit.
build/peer/dequant: $(PEER)/dequant.c $(B)/lib/libsl_backends.a $(B)/lib/libsl_common.a
	@mkdir -p $(@D)
	$(call say,cc)
	$(CC) $(filter-out -MMD -MP,$(CFLAGS_all)) -o $@ $^ -ldl -lm -lpthread
