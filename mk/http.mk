# The server against the official clients and raw sockets, on the real binary and the demo model
# (or SLUICE_TEST_MODEL). Without npm's package the client's tests are skipped, and say so.
HTTP_TESTS := $(wildcard tests/http/*.test.mjs) $(wildcard tests/clients/*.test.mjs)

HTTP_RUNS = $(foreach t,$(HTTP_TESTS),"node --test-reporter=tap $(t)")

.PHONY: test-http
## make test-http           official npm clients and raw sockets against the binary (needs Node.js); a sanitizer's
##                          (MODE=asan|tsan): its report is a failed test
test-http: $(B)/sluice tests/http/node_modules/.package-lock.json
	@MODE=$(MODE) $(TAP_SIDE) $(if $(filter tsan,$(MODE)),--timeout 2400) $(HTTP_RUNS)

tests/http/node_modules/.package-lock.json: tests/http/package-lock.json
	-cd tests/http && npm ci --no-audit --no-fund --silent

# Agents and libraries of more than a gigabyte: the tests that need them are skipped in other runs, unless they have been
# installed.
.PHONY: test-clients
## make test-clients        install coding agents and more client libraries (1.2 GB), and run them against the binary with the
##                          settings of docs/AGENTS.md (needs Node.js and npm)
test-clients: $(B)/sluice
	cd tests/clients && npm install --no-package-lock --no-audit --no-fund --silent
	@MODE=$(MODE) $(TAP) --timeout 14400 $(foreach t,$(wildcard tests/clients/*.test.mjs),"node --test-reporter=tap $(t)")
