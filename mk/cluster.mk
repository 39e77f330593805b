# Several processes that have a model's layers between them.
CLUSTER_TEST := "tests/cluster/cluster.py $(B)/sluice demo/demo.gguf"

.PHONY: cluster
## make cluster             coordinators and workers: the same bits as one process, refusals, failures
cluster: $(B)/sluice
	$(TAP) $(CLUSTER_TEST)

CLUSTER_RUNS ?= 200
.PHONY: cluster-faults
## make cluster-faults      kill, stop, cut and slow machines by chance, CLUSTER_RUNS (200) times
cluster-faults: $(B)/sluice
	tests/cluster/faults.py $(B)/sluice demo/demo.gguf --runs $(CLUSTER_RUNS)
