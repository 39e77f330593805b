# Budgets: the real binary inside a memory cgroup of exactly --ram. Needs root; skipped, with the reason, where no
# cgroup can be made.
.PHONY: test-budget
## make test-budget         --ram as a hard limit, inside memory cgroups (needs root)
test-budget: $(B)/sluice
	$(TAP) "tests/budget/test_budget.py $(B)/sluice"
