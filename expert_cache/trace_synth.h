/* Made-up router traces. Each layer scores its experts for each token by
 *   popularity (fixed) + topic (changes slowly) + context (changes fast) + noise
 * and takes the k best, as a router does. Seeded: the same configuration gives the same trace. */
#ifndef SL_EXPERT_CACHE_TRACE_SYNTH_H
#define SL_EXPERT_CACHE_TRACE_SYNTH_H

#include "common/status.h"
#include "expert_cache/trace.h"

enum sl_trace_kind {
    SL_TRACE_UNIFORM,  /* every expert alike, nothing to learn */
    SL_TRACE_SKEWED,   /* independent draws, Zipf-like popularity */
    SL_TRACE_LOCALITY, /* as real models: LRU of 19 % of the experts hits about 74 %, of 38 % 89 %,
                          and 45 % of a token's experts were the token before's */
    SL_TRACE_DRIFT,    /* skewed, and popularity is dealt anew every topic_tokens */
    SL_TRACE_TEXT,     /* as LOCALITY, but a sequence keeps to its subject: 512 tokens touch three
                          fifths */
    SL_TRACE_KINDS,
};

struct sl_trace_synth {
    enum sl_trace_kind kind;
    uint32_t n_layer, n_expert, k;
    uint32_t n_sequences;    /* decoded together, a row each */
    uint32_t n_tokens;       /* decoded by each sequence */
    uint32_t prefill_tokens; /* before them, in one chunk per sequence; 0: none */
    uint32_t turn_tokens;    /* another prefill after as many decoded ones; 0: never */
    uint32_t topic_tokens;   /* SL_TRACE_DRIFT */
    uint64_t seed;
};

/* The shape and the image's size. */
size_t sl_trace_synth_bytes(const struct sl_trace_synth *config);
/* A complete trace file into out [sl_trace_synth_bytes]. SL_ERR_INVALID, SL_ERR_NOMEM. */
enum sl_status sl_trace_synth(const struct sl_trace_synth *config, uint8_t *out,
                              struct sl_err *err) SL_MUST_CHECK;

#endif
