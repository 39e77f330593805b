/* Where every routed expert is and how likely its layer uses it next, for people to look at.
 *
 * Caches and heat belong to the threads that run steps, so only these can read them, each for the
 * layers that it runs, its part: between two steps, and only if somebody has asked since the last
 * time. Nobody waits for them: a reader gets the previous picture, with its age, and finds a fresh
 * one the next time. Taking it costs some 12 ns an expert.
 *
 * Threads: ask and publish belong to whoever talks to the parts, one call on a part at a time; look
 * belongs to the part; the rest to any thread. Nothing is allocated after create. */
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
/* h stands for a probability of (h / 63)^2 that the layer's next token uses the expert, so that
 * small ones can be told apart. */
static inline uint32_t sl_expert_cell_heat(uint8_t cell) {
    return cell % SL_EXPERT_HEAT_STEPS;
}

struct sl_expert_map_shape {
    uint32_t n_layer;               /* layers with routed experts; 0 in a dense model */
    uint32_t n_expert;              /* of a layer, the most */
    uint32_t k;                     /* of which a row uses so many, the most likewise */
    const uint32_t *model_layer;    /* [n_layer] which of the model's layers */
    const uint32_t *layer_n_expert; /* [n_layer] each layer's own; cells beyond say nothing */
    bool has_heat;                  /* kept only if experts have to be chosen for slots */
    enum sl_tier computing;         /* the tier that experts are computed from */
};

struct sl_expert_map;

/* resident: every expert is in the computing tier and stays there. n_parts: into which the layers
 * are divided, at most SL_MAX_STAGES. */
enum sl_status sl_expert_map_create(const struct sl_model *model, enum sl_tier computing,
                                    bool resident, uint32_t n_parts, struct sl_expert_map **out_map,
                                    struct sl_err *err) SL_MUST_CHECK;
void sl_expert_map_destroy(struct sl_expert_map **map);
/* The most that create allocates, for the memory plan. */
size_t sl_expert_map_bytes(uint32_t n_layer, uint32_t n_expert);
const struct sl_expert_map_shape *sl_expert_map_shape(const struct sl_expert_map *m);

/* Copies the cells [n_layer, n_expert] as last published and asks for a new picture; returns when
 * that was (sl_now_ns's clock), for the part that was read longest ago. */
uint64_t sl_expert_map_read(struct sl_expert_map *m, uint8_t *out_cells);

/* Routed layers [first, first + n) of the shape. */
struct sl_expert_map_part {
    uint32_t index; /* among the parts */
    uint32_t first, n;
};
/* Has somebody asked since the part's last publish? */
bool sl_expert_map_asked(const struct sl_expert_map *m, uint32_t part);
/* Where to write the part's cells [n, n_expert], for whoever has been asked to look; the part
 * counts as not asked from now on. */
uint8_t *sl_expert_map_ask(struct sl_expert_map *m, const struct sl_expert_map_part *part);
/* The cells are written: this is how things stood at now_ns or later. */
void sl_expert_map_publish(struct sl_expert_map *m, const struct sl_expert_map_part *part,
                           uint64_t now_ns);

/* A tier of slots above the disk; cache NULL: it has all of the part's experts. */
struct sl_expert_map_tier {
    enum sl_tier tier;
    const struct sl_cache *cache;
};
/* Reads the cells, called by whoever has caches and heat of n_layer layers: out_cells [n_layer,
 * n_expert]. An expert in several tiers is shown in the last of them. heat may be NULL where no
 * tier has a cache; else it says how many experts a layer has, and cells beyond are 0. */
void sl_expert_map_look(uint32_t n_layer, uint32_t n_expert, const struct sl_heat *heat,
                        const struct sl_expert_map_tier *tiers, uint32_t n_tiers,
                        uint8_t *out_cells);

#endif
