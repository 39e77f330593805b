/* Sections of what is recorded, by kinds of layer (sl_device_section). */
#ifndef SL_ENGINE_LAYERS_SECTION_H
#define SL_ENGINE_LAYERS_SECTION_H

#include "engine/pass/pass_internal.h"

/* What is recorded from here on belongs to the layer, which begins with it or does not. */
void sl_forward_section(const struct sl_forward *f, uint32_t layer, bool begins);

#endif
