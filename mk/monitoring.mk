# deploy/monitoring against a live /metrics: every metric and label that the dashboard for Grafana, the alerts and the
# documentation name.
.PHONY: test-monitoring
## make test-monitoring     the Grafana dashboard's and the alerts' expressions against a running server
test-monitoring: $(B)/sluice
	@$(TAP) "tests/monitoring/check.py $(B)/sluice"

.PHONY: test-alerts
## make test-alerts         the same with promtool, which it installs: alerts fire when they should, and only then
test-alerts:
	@scripts/install_deps.sh monitoring
	@$(SUBMAKE) test-monitoring
