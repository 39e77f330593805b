#include "engine/layers/seq_shape.h"

#include "backends/ops/kv.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/ngrams.h"

uint32_t sl_seq_stores(const struct sl_layer_spec *spec, const struct sl_seq_config *c,
                       struct sl_seq_store out[SL_SEQ_STORES]) {
    uint32_t n = 0;
    const struct sl_mixer *mixer = sl_mixer_of(spec);
    out[n++] = mixer->keeps(spec, c->kv_dtype);
    for (uint32_t i = 0; mixer->keeps_more && mixer->keeps_more(spec, c->kv_dtype, i, &out[n]); i++)
        n++;
    if (spec->ngram.n_taps)
        out[n++] = sl_ngrams_keeps(spec);
    if (c->source)
        out[n++] = c->source->store;
    return n;
}

struct sl_seq_shape sl_seq_shape(const struct sl_model *model, const struct sl_seq_config *c) {
    struct sl_seq_shape shape = {.tail_gaps = true};
    for (uint32_t l = 0; l < model->hp.n_layer; l++) {
        struct sl_seq_store stores[SL_SEQ_STORES];
        uint32_t n = sl_seq_stores(&model->layers[l].spec, c, stores);
        for (uint32_t i = 0; i < n; i++) {
            const struct sl_seq_store *s = &stores[i];
            uint64_t bytes = 0;
            for (uint32_t p = 0; p < s->n_parts; p++)
                bytes += s->part_bytes[p];
            bool tail = sl_seq_is_tail(c, s);
            *(tail ? &shape.tail_bytes : &shape.page_bytes) += bytes;
            if (!s->repeatable)
                shape.once_bytes += bytes;
            shape.tail_gaps &= !tail || !s->repeatable;
            if (tail)
                sl_raise(&shape.tail_pages,
                         s->reach / SL_KV_PAGE_TOKENS + (s->reach % SL_KV_PAGE_TOKENS != 0));
        }
    }
    shape.tail_gaps &= shape.tail_bytes > 0;
    return shape;
}
