# The dashboard: its renderer of Markdown in Node.js, and all of it in headless Chromium. `make test` takes part where
# a Chromium is there already, with the quicker half, and says so where none is: it is some 300 MB that nothing else
# needs.
BROWSER_TESTS := $(wildcard tests/browser/*.test.mjs)

.PHONY: browser browser-quick test-browser
browser: $(B)/sluice
	@MODE=$(MODE) $(TAP) $(foreach t,$(BROWSER_TESTS),"node --test-reporter=tap $(t)")
browser-quick: export BROWSER_QUICK = 1
browser-quick: browser
## make test-browser        the dashboard in headless Chromium, installed first (SCREENSHOTS=DIR also takes pictures)
test-browser:
	@scripts/install_deps.sh browser
	@$(SUBMAKE) browser
