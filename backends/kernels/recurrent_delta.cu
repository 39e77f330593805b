/* The delta rules. */
#include "backends/kernels/state_columns.cuh"

SL_COLUMNS_KERNELS(recurrent_delta, SL_COLUMNS_DELTA)
SL_COLUMNS_KERNELS(recurrent_delta_channel, SL_COLUMNS_CHANNEL_DELTA)
