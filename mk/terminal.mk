# sluice run on pipes and pseudo terminals.
TERMINAL_TESTS = "tests/terminal/chat.py $(B)/sluice"

.PHONY: test-terminal
## make test-terminal       sluice run on pipes and on pseudo terminals (python3)
test-terminal: $(B)/sluice
	$(TAP_SIDE) $(TERMINAL_TESTS)
