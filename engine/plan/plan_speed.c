#include "engine/plan/plan_speed.h"

#include "engine/experts/expert_layout.h"
#include "engine/experts/heat_store.h"
#include "model/arch/model_slice.h"

#include <math.h>
#include <stdlib.h>

struct sl_ceilings sl_ceilings(uint64_t dense_bytes, uint64_t routed_bytes, double hit_share,
                               double memory_bytes_per_s, double disk_bytes_per_s) {
    struct sl_ceilings c = {0, 0};
    double from_disk = (1 - hit_share) * (double)routed_bytes;
    if (memory_bytes_per_s <= 0 || (from_disk > 0 && disk_bytes_per_s <= 0))
        return c;
    double mem = ((double)dense_bytes + hit_share * (double)routed_bytes) / memory_bytes_per_s;
    double disk = from_disk > 0 ? from_disk / disk_bytes_per_s : 0;
    c.causal_tokens_per_s = 1 / (mem + disk);
    c.overlap_tokens_per_s = 1 / (mem > disk ? mem : disk);
    return c;
}

static double larger_of(double a, double b) {
    return a > b ? a : b;
}

struct sl_ceilings sl_ceilings_discrete(const struct sl_plan_speed *s,
                                        const struct sl_tier_rates *r) {
    struct sl_ceilings c = {0, 0};
    double routed = (double)s->routed_bytes, up = (1 - s->device_share) * routed;
    double read = (1 - s->hit_share) * routed;
    if (r->memory <= 0 || (up > 0 && r->link <= 0) || (read > 0 && r->disk <= 0))
        return c;
    double mem = ((double)s->dense_bytes + s->device_share * routed) / r->memory;
    double elsewhere = larger_of(up > 0 ? up / r->link : 0, read > 0 ? read / r->disk : 0);
    c.causal_tokens_per_s = 1 / (mem + elsewhere);
    c.overlap_tokens_per_s = 1 / larger_of(mem, elsewhere);
    return c;
}

uint64_t sl_dense_token_bytes(const struct sl_model *m) {
    uint64_t n = 0;
    if (sl_model_has_output(m))
        n = m->global[SL_G_OUTPUT]->size_bytes + m->global[SL_G_OUTPUT_NORM]->size_bytes;
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (uint32_t r = 0; r < SL_L_COUNT; r++)
            if (m->layers[i].t[r] && r != SL_L_EXPERTS_GATE && r != SL_L_EXPERTS_UP &&
                r != SL_L_EXPERTS_DOWN)
                n += m->layers[i].t[r]->size_bytes;
    return n;
}

static int hotter_first(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The part of a class's uses that go to its hottest experts, as many as it has slots. use is room
 * for the class's experts. */
static double class_hits(const struct sl_expert_layout *l, uint32_t class, uint32_t n_slots,
                         const struct sl_heat *heat, float *use) {
    size_t n = 0;
    double all = 0, hit = 0;
    for (uint32_t i = 0; i < l->n_layer; i++) {
        if (l->layer_class[i] != class)
            continue;
        const float *p = sl_heat_layer(heat, i);
        double sum = 0;
        for (uint32_t e = 0; e < l->n_expert; e++)
            sum += (double)p[e];
        for (uint32_t e = 0; e < l->n_expert; e++) /* every layer is used alike: k times a token */
            use[n++] = (float)((double)p[e] * l->k / sum);
        all += l->k;
    }
    qsort(use, n, sizeof *use, hotter_first);
    for (size_t i = 0; i < n && i < n_slots; i++)
        hit += (double)use[i];
    return n ? hit / all : 1;
}

static double uniform_hits(const struct sl_expert_layout *l, uint32_t class, uint32_t n_slots) {
    double n = (double)l->classes[class].n_layer * l->n_expert;
    return n > n_slots ? n_slots / n : 1;
}

/* Bytes that a token touches in a class's layers. */
static double class_token_bytes(const struct sl_expert_layout *l, uint32_t class) {
    double sum = 0;
    for (uint32_t i = 0; i < l->n_layer; i++)
        if (l->layer_class[i] == class)
            sum += (double)l->layers[i].expert_bytes * l->k;
    return sum;
}

/* The heat of an earlier run, or NULL. A file that was not taken over leaves all experts alike. */
static struct sl_heat *open_heat(const struct sl_model *model, const struct sl_expert_layout *l,
                                 const char *path) {
    struct sl_err why;
    struct sl_heat *heat = NULL;
    if (!path)
        return NULL;
    struct sl_heat_config shape = {.n_layer = l->n_layer,
                                   .n_expert = l->n_expert,
                                   .k = l->k,
                                   .fingerprint = sl_model_fingerprint(model)};
    if (sl_heat_create(&shape, &heat, &why) != SL_OK)
        return NULL;
    bool differs = false;
    sl_heat_store_peek(path, heat);
    for (uint32_t i = 0; i < l->n_layer && !differs; i++)
        for (uint32_t e = 1; e < l->n_expert && !differs; e++)
            differs = fabsf(sl_heat_layer(heat, i)[e] - sl_heat_layer(heat, i)[0]) > 0;
    if (!differs)
        sl_heat_destroy(&heat);
    return heat;
}

enum sl_status sl_plan_speed_make(const struct sl_model *model, const struct sl_memory_plan *plan,
                                  const char *heat_file, struct sl_plan_speed *out_speed,
                                  struct sl_err *err) {
    struct sl_expert_layout l;
    struct sl_plan_speed s = {.dense_bytes = sl_dense_token_bytes(model),
                              .resident_share = 1,
                              .hit_share = 1,
                              .device_share = 1};
    enum sl_status st = sl_expert_layout_make(model, &l, err);
    if (st != SL_OK)
        return st;
    s.routed_bytes = l.token_bytes;
    if (plan->streaming) {
        struct sl_heat *heat = open_heat(model, &l, heat_file);
        float *use = malloc((size_t)l.n_layer * l.n_expert * sizeof *use);
        double hits = 0, resident = 0, all = 0, on_device = 0;
        if (!use)
            st = sl_fail(err, SL_ERR_NOMEM, "no memory for a table of experts");
        for (uint32_t c = 0; c < l.n_class && st == SL_OK; c++) {
            uint32_t all_slots = l.classes[c].n_layer * l.n_expert;
            uint32_t device = plan->device_class_slots[c], n = plan->class_slots[c] + device;
            n = n < all_slots ? n : all_slots;
            device = device < all_slots ? device : all_slots;
            double bytes = class_token_bytes(&l, c);
            hits += bytes * (heat ? class_hits(&l, c, n, heat, use) : uniform_hits(&l, c, n));
            on_device +=
                bytes * (heat ? class_hits(&l, c, device, heat, use) : uniform_hits(&l, c, device));
            resident += bytes * uniform_hits(&l, c, n);
            all += bytes;
        }
        s.from_heat = heat != NULL;
        s.hit_share = all > 0 ? hits / all : 1;
        s.resident_share = all > 0 ? resident / all : 1;
        s.device_share = all > 0 ? on_device / all : 1;
        free(use);
        if (heat)
            sl_heat_destroy(&heat);
    }
    sl_expert_layout_release(&l);
    if (st == SL_OK)
        *out_speed = s;
    return st;
}
