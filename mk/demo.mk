# The demo and its evaluation.
DEMO_MODEL := demo/demo.gguf
PORT ?= 8080

.PHONY: demo demo-stop eval
## make demo                install what is missing, build, serve the demo model, ask it a question
demo:
	@scripts/install_deps.sh build
	@$(MAKE) --no-print-directory $(SUBJOBS) MODE=release all
	@PORT=$(PORT) scripts/demo.sh start build/release/sluice $(DEMO_MODEL)

## make demo-stop           stop the demo's server
demo-stop:
	@scripts/demo.sh stop

## make eval                ask the demo model its 500 held-out questions over HTTP
eval:
	@scripts/install_deps.sh eval
	@$(MAKE) --no-print-directory $(SUBJOBS) MODE=release all
	@scripts/with_server.sh build/release/sluice $(DEMO_MODEL) -- demo/eval.py
