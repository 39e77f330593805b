#include "engine/layers/section.h"

#include "engine/layers/layer_kind.h"

#include <stdio.h>

void sl_forward_section(const struct sl_forward *f, uint32_t layer, bool begins) {
    const struct sl_layer_weights *w = &f->layers[layer];
    char kind[SL_TALLY_KIND_BYTES];
    if (!f->dev->recording)
        return;
    snprintf(kind, sizeof kind, "%s and %s%s", w->mixer->name, w->ffn->name,
             w->shared_up.data ? ", one shared" : "");
    sl_device_section(f->dev, kind, begins);
}
