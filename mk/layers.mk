# The layer graph: each folder and the folders whose headers it may include (itself always).
# `make check-layers` proves it from the compiler's own dependency files.
LAYERS := common model backends expert_cache streaming net pull engine cluster server cli

LAYER_common   :=
LAYER_model    := common
LAYER_backends := common
LAYER_expert_cache := common
LAYER_streaming := common
LAYER_net      := common
LAYER_pull     := common
LAYER_engine   := common model backends expert_cache streaming
LAYER_cluster  := common model backends expert_cache streaming net engine
LAYER_server   := common model engine
LAYER_cli      := common model backends streaming net pull engine cluster server

# The rooms of a folder that has several, and the rooms beside it that each may include and call. A
# room stands behind those that it uses, so there is no circle; what stands in the folder itself
# comes last and may use all of them. In backends/ it comes first, behind the arguments of ops: the table that
# each backend fills, and what they share.
ROOMS := backends/ops backends backends/kernels backends/cpu/host backends/cpu/matmul backends/cpu backends/null backends/gpu backends/cuda backends/hip backends/vulkan backends/level_zero backends/registry \
  model/gguf model/arch model/tokenizer model/jinja model/grammar model/chat model/synth \
  engine/types engine/step engine/trace engine/sample engine/session engine/heat engine/lane engine/predict \
  engine/reads engine/tables engine/experts engine/weights engine/seq engine/pass engine/layers engine/kv engine/forward \
  engine/observe engine/stage engine/prefix engine/plan engine/schedule engine \
  server/types server/answer server/wire server/request server/exchange server/api server/observe server \
  cli/process cli/options cli/measure cli/bench cli/inspect cli/plan cli/run cli/serve cli

ROOM_backends/ops      :=
ROOM_backends          := backends/ops
ROOM_backends/kernels  := backends backends/ops
ROOM_backends/cpu/host :=
ROOM_backends/cpu/matmul := backends backends/ops
ROOM_backends/cpu      := backends backends/ops backends/cpu/host backends/cpu/matmul
ROOM_backends/null     := backends backends/ops
ROOM_backends/gpu      := backends backends/ops backends/kernels
ROOM_backends/cuda     := backends backends/ops backends/gpu backends/kernels
ROOM_backends/hip      := backends backends/ops backends/gpu backends/kernels
ROOM_backends/vulkan   := backends backends/ops
ROOM_backends/level_zero := backends backends/ops
ROOM_backends/registry := backends $(filter-out backends/registry,$(filter backends/%,$(ROOMS)))
ROOM_model/gguf      :=
ROOM_model/arch      := model/gguf
ROOM_model/tokenizer := model/gguf
ROOM_model/jinja     :=
ROOM_model/grammar   := model/tokenizer
ROOM_model/chat      := model/grammar model/jinja model/tokenizer
ROOM_model/synth     := model/arch model/gguf
ROOM_engine/types    :=
ROOM_engine/step     :=
ROOM_engine/trace    := engine/step
ROOM_engine/sample   := engine/types
ROOM_engine/session  := engine/sample engine/types
ROOM_engine/heat     :=
ROOM_engine/lane     :=
ROOM_engine/predict  :=
ROOM_engine/reads    := engine/trace engine/types
ROOM_engine/tables   := engine/reads engine/trace engine/types
ROOM_engine/experts  := engine/heat engine/lane engine/predict engine/reads engine/trace engine/types
ROOM_engine/weights  := engine/tables engine/types
ROOM_engine/seq      :=
ROOM_engine/pass     := engine/experts engine/lane engine/sample engine/seq engine/step engine/tables engine/trace engine/types engine/weights
ROOM_engine/layers   := engine/experts engine/lane engine/pass engine/seq engine/trace
ROOM_engine/kv       := engine/layers engine/seq engine/step engine/types
ROOM_engine/forward  := engine/experts engine/kv engine/layers engine/pass engine/sample engine/seq engine/step engine/tables engine/trace engine/types engine/weights
ROOM_engine/observe  := engine/experts engine/reads engine/types
ROOM_engine/stage    := engine/experts engine/forward engine/heat engine/kv engine/observe engine/step engine/tables engine/trace engine/types engine/weights
ROOM_engine/prefix   := engine/kv engine/layers engine/seq engine/types
ROOM_engine/plan     := engine/experts engine/forward engine/heat engine/kv engine/lane engine/layers engine/observe engine/pass engine/prefix engine/reads engine/sample engine/session engine/stage engine/tables engine/types engine/weights
ROOM_engine/schedule := engine/kv engine/observe engine/plan engine/prefix engine/sample engine/session engine/stage engine/step engine/trace engine/types
ROOM_engine          := $(filter engine/%,$(ROOMS))
ROOM_server/types    :=
ROOM_server/answer   :=
ROOM_server/wire     := server/types
ROOM_server/request  := server/answer server/types
ROOM_server/exchange := server/answer server/request server/types server/wire
ROOM_server/api      := server/answer server/exchange server/request server/types
ROOM_server/observe  := server/exchange server/types
ROOM_server          := $(filter server/%,$(ROOMS))
ROOM_cli/process     :=
ROOM_cli/options     := cli/process
ROOM_cli/measure     := cli/options cli/process
ROOM_cli/bench       := cli/measure cli/options cli/process
ROOM_cli/inspect     := cli/options
ROOM_cli/plan        := cli/measure cli/options cli/process
ROOM_cli/run         := cli/options
ROOM_cli/serve       := cli/measure cli/options cli/process
ROOM_cli             := $(filter cli/%,$(ROOMS))

# Rooms among whose files no call leads back to the file that it comes from.
NO_CIRCLES := $(filter engine engine/%,$(ROOMS)) cli/options
