# Several processes that have a model's layers between them.
CLUSTER_TEST := "tests/cluster/cluster.py $(B)/sluice demo/demo.gguf"

.PHONY: cluster
## make cluster             coordinators and workers: the same bits as one process, refusals, failures
cluster: $(B)/sluice
	$(TAP) $(CLUSTER_TEST)
