#include "engine/observe/expert_map.h"

#include "engine/reads/expert_layout.h"
#include "expert_cache/expert_cache.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct sl_expert_map {
    struct sl_expert_map_shape shape;
    uint32_t *model_layer, *layer_n_expert;
    uint32_t n_parts;
    atomic_uint asked; /* a bit for each part */
    pthread_mutex_t lock;
    /* Under lock. */
    uint64_t seen_ns[SL_MAX_STAGES];
    uint8_t *cells; /* [n_layer, n_expert] */
    uint8_t *seen;  /* the same, for who asks the parts: not under lock */
};

size_t sl_expert_map_bytes(uint32_t n_layer, uint32_t n_expert) {
    return sizeof(struct sl_expert_map) + 2 * n_layer * sizeof(uint32_t) +
           2 * (size_t)n_layer * n_expert;
}

static size_t n_cells(const struct sl_expert_map *m) {
    return (size_t)m->shape.n_layer * m->shape.n_expert;
}

static enum sl_status take_shape(const struct sl_expert_layout *l, struct sl_expert_map *m) {
    m->shape.n_layer = l->n_layer;
    m->shape.n_expert = l->n_expert;
    m->shape.k = l->k;
    m->model_layer = calloc(l->n_layer + 1, sizeof *m->model_layer);
    m->layer_n_expert = calloc(l->n_layer + 1, sizeof *m->layer_n_expert);
    m->cells = malloc(n_cells(m) + 1);
    m->seen = malloc(n_cells(m) + 1);
    if (!m->model_layer || !m->layer_n_expert || !m->cells || !m->seen)
        return SL_ERR_NOMEM;
    for (uint32_t i = 0; i < l->n_layer; i++) {
        m->model_layer[i] = l->layers[i].model_layer;
        m->layer_n_expert[i] = l->layers[i].n_expert;
    }
    m->shape.model_layer = m->model_layer;
    m->shape.layer_n_expert = m->layer_n_expert;
    return SL_OK;
}

enum sl_status sl_expert_map_create(const struct sl_model *model, enum sl_tier computing,
                                    bool resident, uint32_t n_parts, struct sl_expert_map **out_map,
                                    struct sl_err *err) {
    struct sl_expert_layout layout;
    SL_TRY(sl_expert_layout_make(model, &layout, err));
    struct sl_expert_map *m = calloc(1, sizeof *m);
    if (m) {
        pthread_mutex_init(&m->lock, NULL);
        m->n_parts = n_parts;
        atomic_init(&m->asked, UINT32_MAX); /* the first look is the engine's own */
        m->shape.has_heat = !resident;
        m->shape.computing = computing;
    }
    enum sl_status status = m ? take_shape(&layout, m) : SL_ERR_NOMEM;
    sl_expert_layout_release(&layout);
    if (status != SL_OK) {
        sl_expert_map_destroy(&m);
        return sl_fail(err, status, "no memory for the map of experts");
    }
    memset(m->cells, sl_expert_cell(resident ? computing : SL_TIER_DISK, 0), n_cells(m));
    *out_map = m;
    return SL_OK;
}

void sl_expert_map_destroy(struct sl_expert_map **pm) {
    struct sl_expert_map *m = *pm;
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    free(m->model_layer);
    free(m->layer_n_expert);
    free(m->cells);
    free(m->seen);
    free(m);
    *pm = NULL;
}

const struct sl_expert_map_shape *sl_expert_map_shape(const struct sl_expert_map *m) {
    return &m->shape;
}

uint64_t sl_expert_map_read(struct sl_expert_map *m, uint8_t *out_cells) {
    pthread_mutex_lock(&m->lock);
    memcpy(out_cells, m->cells, n_cells(m));
    uint64_t seen_ns = UINT64_MAX;
    for (uint32_t i = 0; i < m->n_parts; i++)
        seen_ns = m->seen_ns[i] < seen_ns ? m->seen_ns[i] : seen_ns;
    pthread_mutex_unlock(&m->lock);
    atomic_store(&m->asked, UINT32_MAX);
    return seen_ns;
}

bool sl_expert_map_asked(const struct sl_expert_map *m, uint32_t part) {
    return atomic_load_explicit(&m->asked, memory_order_relaxed) >> part & 1;
}

static uint32_t heat_step(float probability) {
    float p = probability > 0 ? probability : 0; /* a NaN is none */
    return (uint32_t)lrintf(sqrtf(p < 1 ? p : 1) * (SL_EXPERT_HEAT_STEPS - 1));
}

void sl_expert_map_look(uint32_t n_layer, uint32_t n_expert, const struct sl_heat *heat,
                        const struct sl_expert_map_tier *tiers, uint32_t n_tiers,
                        uint8_t *out_cells) {
    for (uint32_t layer = 0; layer < n_layer; layer++) {
        const float *p = heat ? sl_heat_layer(heat, layer) : NULL;
        uint32_t n = heat ? sl_heat_config(heat)->layers[layer].n_expert : n_expert;
        for (uint32_t i = n; i < n_expert; i++)
            out_cells[i] = sl_expert_cell(SL_TIER_DISK, 0);
        for (uint32_t i = 0; i < n; i++) {
            enum sl_tier tier = SL_TIER_DISK;
            struct sl_expert_id id = {(uint16_t)layer, (uint16_t)i};
            for (uint32_t t = 0; t < n_tiers; t++)
                if (!tiers[t].cache || sl_cache_is_ready(tiers[t].cache, id))
                    tier = tiers[t].tier;
            out_cells[i] = sl_expert_cell(tier, p ? heat_step(p[i]) : 0);
        }
        out_cells += n_expert;
    }
}

uint8_t *sl_expert_map_ask(struct sl_expert_map *m, const struct sl_expert_map_part *part) {
    /* Before the look: who asks while it lasts gets another one. */
    atomic_fetch_and(&m->asked, ~(1u << part->index));
    return m->seen + (size_t)part->first * m->shape.n_expert;
}

/* A cell that names no tier is none of ours: it is shown as on disk. */
void sl_expert_map_publish(struct sl_expert_map *m, const struct sl_expert_map_part *part,
                           uint64_t now_ns) {
    size_t first = (size_t)part->first * m->shape.n_expert, n = (size_t)part->n * m->shape.n_expert;
    pthread_mutex_lock(&m->lock);
    for (size_t i = first; i < first + n; i++)
        m->cells[i] = sl_expert_cell_tier(m->seen[i]) <= SL_TIER_DEVICE
                          ? m->seen[i]
                          : sl_expert_cell(SL_TIER_DISK, 0);
    m->seen_ns[part->index] = now_ns;
    pthread_mutex_unlock(&m->lock);
}
