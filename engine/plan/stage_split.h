/* Divides a model's layers over devices: whole layers, in order, at least one each.
 *
 * Without numbers from the user a split is chosen by what a token costs each device: the bytes that
 * its layers read, over its memory's speed, where bytes of experts that do not fit count many
 * times, and a little for each layer. The part of its reads that fits on a card is the part of the
 * experts that fits; if an earlier run's routing is known, that of the most used experts
 * (split_heat.h), so that layers that use a few experts a lot count for less. The slowest stage is
 * made as fast as possible, since sessions in flight wait for it; among such splits the sum is
 * minimised, which is what a single session waits for. A pure function. */
#ifndef SL_ENGINE_STAGE_SPLIT_H
#define SL_ENGINE_STAGE_SPLIT_H

#include "engine/types/config.h"
#include "model/arch/model.h"
#include "engine/plan/split_heat.h"

/* Numbers of layers, as in "20,28". */
struct sl_split {
    uint32_t n;         /* 0 = none are given: "auto" or NULL */
    bool none_at_first; /* the first device has none: it turns ids into rows, and the others do the
                         * rest; "0,20,28" or "0,auto" */
    uint32_t n_layer[SL_MAX_STAGES];
};
/* SL_ERR_CONFIG: not such a list, or the numbers do not add up to the model's layers (n_layer 0:
 * not known yet). */
enum sl_status sl_split_parse(const char *text, uint32_t n_layer, struct sl_split *out_split,
                              struct sl_err *err) SL_MUST_CHECK;

/* What a layer takes and reads. The bytes of memory are upper bounds. */
struct sl_split_layer {
    uint64_t fixed_bytes;  /* weights but routed experts, KV, activations: always there */
    uint64_t expert_bytes; /* all routed experts */
    double dense_token_bytes, routed_token_bytes; /* read by one token */
    bool joined; /* it is where the layer before it is: no stage begins with it */
};
struct sl_split_model {
    uint32_t n_layer;
    const struct sl_split_layer *layers; /* [n_layer]; embedding and output are in the first and the
                                            last one */
    /* For a stage that keeps experts elsewhere: slots for one layer's top-k, and tables. */
    uint64_t least_slot_bytes;
    enum sl_experts_where experts;    /* RESIDENT: all of them have to fit */
    const struct sl_split_heat *heat; /* NULL: all experts of a layer are used alike */
};
struct sl_split_card {
    uint64_t budget_bytes; /* UINT64_MAX = no bound */
    uint64_t stage_bytes;  /* what any stage takes there, independent of its layers */
    uint64_t bytes_per_s;  /* of its memory; 0 = unknown: then all cards are alike */
};

/* given: of it none_at_first alone. SL_ERR_CONFIG: no split fits; *out_least_bytes is a budget that
 * would do if each of the cards had it,
 * UINT64_MAX if layers that cannot be parted leave fewer runs than there are cards; err is left
 * unchanged. */
enum sl_status sl_split_choose(const struct sl_split_model *model,
                               const struct sl_split_card *cards, uint32_t n_cards,
                               bool none_at_first, struct sl_split *out_split,
                               uint64_t *out_least_bytes) SL_MUST_CHECK;
/* Whether some card has no room for all experts of its layers. */
bool sl_split_lacks_room(const struct sl_split_model *model, const struct sl_split_card *cards,
                         const struct sl_split *split);

#endif
