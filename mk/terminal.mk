# What people type and read: sluice run and doctor, on pipes and pseudo terminals.
TERMINAL_TESTS = "tests/terminal/chat.py $(B)/sluice" "tests/terminal/doctor.py $(B)/sluice" "tests/terminal/help.py $(B)/sluice"

.PHONY: test-terminal
## make test-terminal       sluice run and doctor, on pipes and pseudo terminals (python3)
test-terminal: $(B)/sluice
	$(TAP_SIDE) $(TERMINAL_TESTS)
