/* Inside synth: the list of tensors of one synthetic model. */
#ifndef SL_MODEL_SYNTH_PLAN_H
#define SL_MODEL_SYNTH_PLAN_H

#include "model/synth/synth.h"

enum sl_synth_fill {
    SL_FILL_RANDOM,     /* standard deviation std */
    SL_FILL_NORM,       /* 1 + 0.1 * random */
    SL_FILL_EMBEDDING,  /* see synth.h */
    SL_FILL_SUCCESSOR,  /* the output matrix */
    SL_FILL_ROUTER,     /* popularity in column 0 */
    SL_FILL_ROPE_FREQS, /* Llama 3.1's frequency divisors */
};

struct sl_synth_tensor {
    char name[64];
    enum sl_dtype dtype;
    uint32_t n_dims;
    uint64_t ne[3];
    enum sl_synth_fill fill;
    float std;
    uint32_t file;         /* of the split */
    uint64_t offset_bytes; /* in that file's data section, then in the file */
};

struct sl_synth_plan {
    struct sl_synth_tensor *tensors;
    uint32_t n, cap;
};

static inline uint64_t sl_synth_rows(const struct sl_synth_tensor *t) {
    return t->ne[1] * t->ne[2];
}

/* Checks the config and lists its tensors; the caller frees plan->tensors, also after failure. */
enum sl_status sl_synth_plan(const struct sl_synth_config *c, struct sl_synth_plan *plan,
                             struct sl_err *err) SL_MUST_CHECK;

#endif
