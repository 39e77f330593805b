# Several processes that have a model's layers between them.
CLUSTER_TEST := "tests/cluster/cluster.py $(B)/sluice demo/demo.gguf" "tests/cluster/refusals.py $(B)/sluice demo/demo.gguf" \
  "tests/cluster/hostile.py $(B)/sluice demo/demo.gguf"

# A worker whose GPU is lost; here over a driver without one.
CLUSTER_DEVICE := "tests/cluster/device.py $(B)/sluice $(dir $(FAULTY_CUDA)) $(FAKE_CUDA)"

.PHONY: cluster
## make cluster             coordinators and workers: the same bits as one process, refusals, failures, lost GPUs, hostile peers
##                          (MODE=tsan: without GPUs, and cluster-faults too; not in make test)
cluster: $(B)/sluice $(FAULTY_CUDA) $(FAKE_CUDA)
	$(if $(filter tsan,$(MODE)),$(TAP) --timeout 14400,$(TAP_SIDE)) $(CLUSTER_TEST) $(if $(filter tsan,$(MODE)),,$(CLUSTER_DEVICE))

.PHONY: cluster-engines
## make cluster-engines     workers as Slurm and Kubernetes start them: a real Slurm, and pods' commands in namespaces
cluster-engines: $(B)/sluice
	$(TAP) "tests/cluster/slurm.py $(B)/sluice" "tests/cluster/kubernetes.py $(B)/sluice"

.PHONY: cluster-links
## make cluster-links       the same bits over links of 1 and 10 Gbit/s, with delays, losses and cuts (root, iproute2, nftables)
cluster-links: $(B)/sluice
	$(TAP) "tests/cluster/shaped.py $(B)/sluice demo/demo.gguf"

CLUSTER_RUNS ?= 200
.PHONY: cluster-faults
## make cluster-faults      kill, stop, cut and slow machines by chance, CLUSTER_RUNS (200) times, or CLUSTER_EACH times each; full disks, memory cgroups
cluster-faults: $(B)/sluice
	tests/cluster/faults.py $(B)/sluice demo/demo.gguf $(if $(CLUSTER_EACH),--each $(CLUSTER_EACH),--runs $(CLUSTER_RUNS)) $(if $(CLUSTER_FAULTS),--only "$(CLUSTER_FAULTS)")

.PHONY: cluster-ten-thousand
## make cluster-ten-thousand  more than 10,000 tokens over 2, 3 and 5 processes, in every placement, beside one process; not in make test
cluster-ten-thousand: $(B)/sluice
	$(TAP) "tests/cluster/ten_thousand.py $(B)/sluice"
