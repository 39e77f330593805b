# What people type and read: sluice run and doctor, on pipes and pseudo terminals.
TERMINAL_TESTS = "tests/terminal/chat.py $(B)/sluice" "tests/terminal/doctor.py $(B)/sluice" "tests/terminal/help.py $(B)/sluice" \
  "tests/terminal/complete.py $(B)/sluice"

.PHONY: test-terminal
## make test-terminal       sluice run, doctor, --help and completion, on pipes and pseudo terminals (python3)
test-terminal: $(B)/sluice
	$(TAP_SIDE) $(TERMINAL_TESTS)
