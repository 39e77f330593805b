# Load: many streams at once for minutes. Its figures need a machine that does nothing else, so it is not in `make test`.
# A bound for prompts of some one and a half steps of 64 rows keeps the tail of the time between two tokens short.
LOAD_OPTIONS ?= --seconds 300 -- --max-stall-ms 12
.PHONY: load
## make load                64 streams for five minutes, among clients that break off and send garbage (Node.js)
load: $(B)/sluice
	MODE=$(MODE) node tests/load/load.mjs $(LOAD_OPTIONS)
