# sluice pull against a server of its own, that cuts, lies and redirects.
PULL_TEST = "tests/pull/pull.py $(B)/sluice"

.PHONY: test-pull soak-pull
## make test-pull           sluice pull against a server that cuts connections, lies and redirects (python3)
test-pull: $(B)/sluice
	$(TAP) $(PULL_TEST)

## make soak-pull           a file of 1 GiB through 50 cuts and some kills (a minute; not in `make test`)
soak-pull: $(B)/sluice
	tests/pull/soak.py $(B)/sluice $(SEED)
