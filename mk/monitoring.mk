# deploy/monitoring against a live /metrics: every metric and label that the dashboard for Grafana, the alerts and the
# documentation name.
.PHONY: test-monitoring
## make test-monitoring     the Grafana dashboard's and the alerts' expressions against a running server
test-monitoring: $(B)/sluice
	@$(TAP) "tests/monitoring/check.py $(B)/sluice"
