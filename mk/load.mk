# Load: many streams at once for minutes. Its figures need a machine that does nothing else, so it is not in `make test`.
LOAD_OPTIONS ?= --seconds 300
.PHONY: load
## make load                64 streams for five minutes, among clients that break off and send garbage (Node.js)
load: $(B)/sluice
	MODE=$(MODE) node tests/load/load.mjs $(LOAD_OPTIONS)
