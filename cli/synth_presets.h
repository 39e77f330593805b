/* Shapes of well-known models with grouped-query attention. */
#ifndef SL_CLI_SYNTH_PRESETS_H
#define SL_CLI_SYNTH_PRESETS_H

#include "model/synth/synth.h"

/* Sets what the preset says, with type mixes as in Q4_K_M files; false: it is none of these. */
bool sl_synth_preset(const char *name, struct sl_synth_config *c);

#endif
