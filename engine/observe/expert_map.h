/* Where every routed expert is and how likely its layer uses it next, for people to look at.
 *
 * Caches and heat belong to the threads that run steps, so they alone can look at them, each at the
 * layers that it runs, its part: between two steps, and only when somebody has asked since it
 * looked last. Nobody waits for them: who asks gets what they saw before, with its age, and finds a
 * fresh picture the next time. A look costs some 12 ns an expert.
 *
 * Threads: ask and publish are those of who speaks with the parts, one look at a part at a time;
 * look is the part's; the rest any. Nothing is allocated after create. */
#ifndef SL_ENGINE_EXPERT_MAP_H
#define SL_ENGINE_EXPERT_MAP_H

#include "common/tier.h"
#include "engine/types/config.h"
#include "model/arch/model.h"

struct sl_cache;
struct sl_heat;

/* A cell: where the expert is (enum sl_tier) and its heat. */
#define SL_EXPERT_HEAT_STEPS 64u
static inline uint8_t sl_expert_cell(enum sl_tier tier, uint32_t heat) {
    return (uint8_t)((uint32_t)tier * SL_EXPERT_HEAT_STEPS + heat);
}
static inline enum sl_tier sl_expert_cell_tier(uint8_t cell) {
    return (enum sl_tier)(cell / SL_EXPERT_HEAT_STEPS);
}
/* h stands for a probability of (h / 63)^2 that the layer's next token uses the expert: small ones
 * stay apart. */
static inline uint32_t sl_expert_cell_heat(uint8_t cell) {
    return cell % SL_EXPERT_HEAT_STEPS;
}

struct sl_expert_map_shape {
    uint32_t n_layer, n_expert, k; /* layers with routed experts; 0 in a dense model */
    const uint32_t *model_layer;   /* [n_layer] which of the model's layers */
    bool has_heat;                 /* kept only where experts have to be chosen for slots */
    enum sl_tier computing;        /* the tier that experts are computed from */
};

struct sl_expert_map;

/* resident: every expert is in the computing tier and stays there. n_parts, at most SL_MAX_STAGES:
 * of the layers. */
enum sl_status sl_expert_map_create(const struct sl_model *model, enum sl_tier computing,
                                    bool resident, uint32_t n_parts, struct sl_expert_map **out_map,
                                    struct sl_err *err) SL_MUST_CHECK;
void sl_expert_map_destroy(struct sl_expert_map **map);
/* What create allocates at most, for the memory plan. */
size_t sl_expert_map_bytes(uint32_t n_layer, uint32_t n_expert);
const struct sl_expert_map_shape *sl_expert_map_shape(const struct sl_expert_map *m);

/* Copies the cells [n_layer, n_expert] as they were seen last and asks for another look; gives when
 * that was (sl_now_ns's clock), of the part that looked longest ago. */
uint64_t sl_expert_map_read(struct sl_expert_map *m, uint8_t *out_cells);

/* Routed layers [first, first + n) of the shape. */
struct sl_expert_map_part {
    uint32_t index; /* among the parts */
    uint32_t first, n;
};
/* Has somebody asked since the part's last publish? */
bool sl_expert_map_asked(const struct sl_expert_map *m, uint32_t part);
/* Where the part's cells [n, n_expert] are to be written, by who has been asked to look; the part
 * counts as not asked from now on. */
uint8_t *sl_expert_map_ask(struct sl_expert_map *m, const struct sl_expert_map_part *part);
/* They have been: this is how things stood at now_ns or later. */
void sl_expert_map_publish(struct sl_expert_map *m, const struct sl_expert_map_part *part,
                           uint64_t now_ns);

/* A tier of slots over the disk; cache NULL: all of the part's experts are there. */
struct sl_expert_map_tier {
    enum sl_tier tier;
    const struct sl_cache *cache;
};
/* The look itself, for who has caches and heat of n_layer layers: out_cells [n_layer, n_expert]. An
 * expert that is in several tiers is shown in the last of them. heat may be NULL. */
void sl_expert_map_look(uint32_t n_layer, uint32_t n_expert, const struct sl_heat *heat,
                        const struct sl_expert_map_tier *tiers, uint32_t n_tiers,
                        uint8_t *out_cells);

#endif
