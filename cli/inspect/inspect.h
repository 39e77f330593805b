/* What `sluice inspect` finds in a file; printed as text or JSON. */
#ifndef SL_CLI_INSPECT_H
#define SL_CLI_INSPECT_H

#include "model/arch/model.h"
#include "model/tokenizer/tokenizer.h"

#include <stdbool.h>

/* The purpose of a tensor, by its name alone, so that unknown architectures are counted too. */
enum sl_purpose {
    SL_PURPOSE_EMBEDDING,
    SL_PURPOSE_OUTPUT,
    SL_PURPOSE_ATTENTION,
    SL_PURPOSE_FFN,
    SL_PURPOSE_ROUTER,
    SL_PURPOSE_SHARED,
    SL_PURPOSE_EXPERTS,
    SL_PURPOSE_ADJUGATE, /* shared by several routed ones: with the dense weights */
    SL_PURPOSE_NORM,
    SL_PURPOSE_OTHER,
    SL_PURPOSE_NEXTN, /* all of the draft layers; and */
    SL_PURPOSE_MEDIA, /* what reads pictures and sound: nothing reads them */
    SL_PURPOSE_COUNT
};

struct sl_weight_sum {
    uint64_t n_tensors, n_elems, bytes;
    uint64_t bytes_of[SL_DTYPE_COUNT];
};

#define SL_EXPERT_PARTS 4u /* gate, up, down, or gate_up and down */
struct sl_layer_experts {
    uint64_t n_expert;     /* 0 = none in this layer */
    uint64_t n_used;       /* of these, for one token; 0 = not stated */
    uint64_t expert_bytes; /* one expert, all parts */
    uint64_t n_elems;      /* of all of them */
    struct {
        bool there;
        enum sl_dtype dtype;
    } part[SL_EXPERT_PARTS];
};

struct sl_inspect {
    struct sl_gguf *gguf;
    struct sl_model *model;  /* NULL: it would not run ... */
    struct sl_err model_err; /* ... for this reason */
    struct sl_tokenizer *tokenizer;
    struct sl_err tokenizer_err; /* why there is none; empty when the file has none */
    struct sl_str arch, name;    /* empty when absent */
    struct sl_weight_sum of[SL_PURPOSE_COUNT], total;
    uint32_t n_layer;     /* one above the last layer number in a tensor's name, without those that
                             draft tokens, which begin at nextn_layer */
    uint32_t nextn_layer; /* UINT32_MAX: there are none */
    struct sl_layer_experts layer[SL_MAX_LAYERS];
    uint64_t routed_per_token_bytes; /* what one token reads of the experts */
    uint64_t table_elems,
        table_bytes;                /* of which a token reads a few rows, besides its embedding */
    uint64_t dense_per_token_bytes; /* what every token reads: all but experts and such tables */
    uint64_t active_elems, n_token, n_merge;
};

extern const char *const sl_purpose_names[SL_PURPOSE_COUNT];
extern const char *const sl_expert_part_names[SL_EXPERT_PARTS];

/* Opens and counts. Fails only if the container itself cannot be read. */
enum sl_status sl_inspect_open(const char *path, struct sl_inspect *out,
                               struct sl_err *err) SL_MUST_CHECK;
void sl_inspect_release(struct sl_inspect *in);

/* The last layer in a row with the same experts as `first` (or also without any). */
uint32_t sl_inspect_same_until(const struct sl_inspect *in, uint32_t first);

/* Prints everything as one JSON object. Returns false when out of memory or stdout fails. */
bool sl_inspect_print_json(const struct sl_inspect *in, bool with_kv, bool with_tensors);

/* "u32", "string", ...; never NULL. */
const char *sl_gguf_type_name(enum sl_gguf_type type);

#endif
