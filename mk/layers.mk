# The layer graph: each folder and the folders whose headers it may include (itself always).
# `make check-layers` proves it from the compiler's own dependency files.
LAYERS := common model backends expert_cache streaming engine server cli

LAYER_common   :=
LAYER_model    := common
LAYER_backends := common
LAYER_expert_cache := common
LAYER_streaming := common
LAYER_engine   := common model backends expert_cache streaming
LAYER_server   := common model engine
LAYER_cli      := common model backends streaming engine server
