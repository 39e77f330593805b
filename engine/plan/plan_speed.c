#include "engine/plan/plan_speed.h"

#include "engine/reads/expert_layout.h"
#include "engine/heat/heat_store.h"
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

/* Bytes of a tensor that a token reads: of adjugate experts only those that its experts share. */
static uint64_t of_token(const struct sl_layer *layer, enum sl_layer_role role) {
    const struct sl_experts_spec *x = &layer->spec.experts;
    uint64_t n = layer->t[role]->size_bytes;
    if (role < SL_L_ADJUGATE_GATE || role > SL_L_ADJUGATE_DOWN)
        return n;
    return n / sl_experts_adjugate(x) * sl_experts_adjugate_used(x);
}

uint64_t sl_dense_token_bytes(const struct sl_model *m) {
    uint64_t n = 0;
    static const enum sl_global_role output[] = {SL_G_OUTPUT, SL_G_OUTPUT_NORM, SL_G_STREAMS_DOWN,
                                                 SL_G_STREAMS_UP};
    for (uint32_t i = 0; sl_model_has_output(m) && i < sizeof output / sizeof output[0]; i++)
        n += m->global[output[i]] ? m->global[output[i]]->size_bytes : 0;
    for (uint32_t i = 0; i < sl_answer_layers(&m->hp); i++)
        for (uint32_t r = 0; r < SL_L_COUNT; r++)
            if (m->layers[i].t[r] && !sl_role_is_expert((enum sl_layer_role)r))
                n += of_token(&m->layers[i], (enum sl_layer_role)r);
    return n;
}

static int hotter_first(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* What is known of routing; of a slice's first layer with experts, which that is in the heat. */
struct known {
    struct sl_heat *heat; /* NULL: nothing */
    uint32_t first;
};

/* The part of a class's uses that go to its hottest experts, as many as it has slots. use is room
 * for the class's experts. */
static double class_hits(const struct sl_expert_layout *l, uint32_t class, uint32_t n_slots,
                         const struct known *known, float *use) {
    size_t n = 0;
    double all = 0, hit = 0;
    for (uint32_t i = 0; i < l->n_layer; i++) {
        if (l->layer_class[i] != class)
            continue;
        const float *p = sl_heat_layer(known->heat, known->first + i);
        double sum = 0;
        for (uint32_t e = 0; e < l->layers[i].n_expert; e++)
            sum += (double)p[e];
        for (uint32_t e = 0; e < l->layers[i].n_expert; e++) /* a token uses k of them */
            use[n++] = (float)((double)p[e] * l->layers[i].k / sum);
        all += l->layers[i].k;
    }
    qsort(use, n, sizeof *use, hotter_first);
    for (size_t i = 0; i < n && i < n_slots; i++)
        hit += (double)use[i];
    return n ? hit / all : 1;
}

static double uniform_hits(const struct sl_expert_layout *l, uint32_t class, uint32_t n_slots) {
    double n = l->classes[class].n_expert;
    return n > n_slots ? n_slots / n : 1;
}

/* Bytes that a token touches in a class's layers. */
static double class_token_bytes(const struct sl_expert_layout *l, uint32_t class) {
    double sum = 0;
    for (uint32_t i = 0; i < l->n_layer; i++)
        if (l->layer_class[i] == class)
            sum += (double)l->layers[i].expert_bytes * l->layers[i].k;
    return sum;
}

/* The heat of an earlier run, or NULL. A file that was not taken over leaves all experts alike. */
static struct sl_heat *open_heat(const struct sl_model *model, const struct sl_expert_layout *l,
                                 const char *path) {
    struct sl_err why;
    struct sl_heat *heat = NULL;
    if (!path)
        return NULL;
    struct sl_heat_config shape;
    sl_expert_layout_heat(l, sl_model_fingerprint(model), &shape);
    if (sl_heat_create(&shape, &heat, &why) != SL_OK)
        return NULL;
    bool differs = false;
    sl_heat_store_peek(path, heat);
    for (uint32_t i = 0; i < l->n_layer && !differs; i++)
        for (uint32_t e = 1; e < l->layers[i].n_expert && !differs; e++)
            differs = fabsf(sl_heat_layer(heat, i)[e] - sl_heat_layer(heat, i)[0]) > 0;
    if (!differs)
        sl_heat_destroy(&heat);
    return heat;
}

static double hits_of(const struct sl_expert_layout *l, uint32_t class, uint32_t n_slots,
                      const struct known *known, float *use) {
    return known->heat ? class_hits(l, class, n_slots, known, use)
                       : uniform_hits(l, class, n_slots);
}

/* Slots of each class, in the host's memory and in a device's. */
struct slots {
    const uint32_t *host, *device;
};

/* The shares of what tokens route to. */
static enum sl_status find_shares(const struct sl_expert_layout *l, const struct slots *slots,
                                  const struct known *known, struct sl_plan_speed *s,
                                  struct sl_err *err) {
    float *use = malloc(((size_t)l->n_all + 1) * sizeof *use);
    double hits = 0, resident = 0, all = 0, on_device = 0;
    if (!use)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a table of experts");
    for (uint32_t c = 0; c < l->n_class; c++) {
        uint32_t all_slots = l->classes[c].n_expert;
        uint32_t device = slots->device[c], n = slots->host[c] + device;
        n = n < all_slots ? n : all_slots;
        device = device < all_slots ? device : all_slots;
        double bytes = class_token_bytes(l, c);
        hits += bytes * hits_of(l, c, n, known, use);
        on_device += bytes * hits_of(l, c, device, known, use);
        resident += bytes * uniform_hits(l, c, n);
        all += bytes;
    }
    s->from_heat = known->heat != NULL;
    s->hit_share = all > 0 ? hits / all : 1;
    s->resident_share = all > 0 ? resident / all : 1;
    s->device_share = all > 0 ? on_device / all : 1;
    free(use);
    return SL_OK;
}

/* Of a model, or a slice with its own layout. slots NULL: all experts are resident. */
static enum sl_status find_speed(const struct sl_model *model, const struct sl_expert_layout *l,
                                 const struct slots *slots, const struct known *known,
                                 struct sl_plan_speed *out, struct sl_err *err) {
    *out = (struct sl_plan_speed){.dense_bytes = sl_dense_token_bytes(model),
                                  .routed_bytes = l->token_bytes,
                                  .resident_share = 1,
                                  .hit_share = 1,
                                  .device_share = 1};
    return slots ? find_shares(l, slots, known, out, err) : SL_OK;
}

enum sl_status sl_plan_speed_make(const struct sl_model *model, const struct sl_memory_plan *plan,
                                  const char *heat_file, struct sl_plan_speed *out_speed,
                                  struct sl_err *err) {
    struct sl_expert_layout l;
    struct sl_plan_speed s;
    struct slots slots = {plan->class_slots, plan->device_class_slots};
    SL_TRY(sl_expert_layout_make(model, &l, err));
    struct known known = {plan->streaming ? open_heat(model, &l, heat_file) : NULL, 0};
    enum sl_status status = find_speed(model, &l, plan->streaming ? &slots : NULL, &known, &s, err);
    if (known.heat)
        sl_heat_destroy(&known.heat);
    sl_expert_layout_release(&l);
    if (status == SL_OK)
        *out_speed = s;
    return status;
}

/* ---- several hosts ---- */

static enum sl_status stage_speed(const struct sl_model *model, const struct sl_plan_stage *stage,
                                  bool is_first, struct known *known, struct sl_plan_speed *out,
                                  struct sl_err *err) {
    struct sl_model slice;
    struct sl_expert_layout l;
    struct slots slots = {stage->class_slots, stage->device_class_slots};
    SL_TRY(sl_model_slice(model, stage->first_layer, stage->n_layer, &slice, err));
    if (!is_first)
        sl_model_slice_drop_input(&slice);
    enum sl_status status = sl_expert_layout_make(&slice, &l, err);
    if (status == SL_OK) {
        status = find_speed(&slice, &l, stage->streaming ? &slots : NULL, known, out, err);
        known->first += l.n_layer;
        sl_expert_layout_release(&l);
    }
    sl_model_slice_release(&slice);
    return status;
}

enum sl_status sl_plan_stage_speeds(const struct sl_model *model, const struct sl_memory_plan *plan,
                                    const char *heat_file,
                                    struct sl_plan_speed out_speeds[SL_MAX_STAGES],
                                    struct sl_err *err) {
    struct sl_expert_layout l;
    SL_TRY(sl_expert_layout_make(model, &l, err));
    struct known known = {plan->streaming ? open_heat(model, &l, heat_file) : NULL, 0};
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < plan->n_stages && status == SL_OK; i++)
        status = stage_speed(model, &plan->stages[i], !i, &known, &out_speeds[i], err);
    if (known.heat)
        sl_heat_destroy(&known.heat);
    sl_expert_layout_release(&l);
    return status;
}

double sl_stage_link_rate(const struct sl_memory_plan *p, uint32_t stage) {
    const struct sl_plan_stage *s = &p->stages[stage];
    double ram = p->hosts[s->host].ram_bytes_per_s;
    if (!s->discrete)
        return INFINITY;
    return s->link_bytes_per_s + (s->lane && s->link_bytes_per_s > 0 && ram > 0 ? ram : 0);
}

/* Seconds for so many bytes; INFINITY where the speed is not known. */
static double seconds(double bytes, double bytes_per_s) {
    return bytes <= 0 ? 0 : bytes_per_s > 0 ? bytes / bytes_per_s : INFINITY;
}

struct stage_seconds {
    double memory, link, disk;
};

static struct stage_seconds stage_seconds(const struct sl_memory_plan *p, uint32_t i,
                                          const struct sl_plan_speed *s) {
    const struct sl_plan_stage *stage = &p->stages[i];
    const struct sl_plan_host *host = &p->hosts[stage->host];
    double routed = (double)s->routed_bytes, dense = (double)s->dense_bytes;
    double disk = seconds((1 - s->hit_share) * routed, host->disk_bytes_per_s);
    if (!stage->discrete)
        return (struct stage_seconds){seconds(dense + s->hit_share * routed, host->ram_bytes_per_s),
                                      0, disk};
    return (struct stage_seconds){
        seconds(dense + s->device_share * routed, stage->memory_bytes_per_s),
        seconds((1 - s->device_share) * routed, sl_stage_link_rate(p, i)), disk};
}

struct sl_ceilings sl_ceilings_hosts(const struct sl_memory_plan *plan,
                                     const struct sl_plan_speed *speeds,
                                     double *out_pipelined_tokens_per_s) {
    double memory = 0, waits = 0, slowest = 0, disk[SL_MAX_STAGES] = {0};
    double other = 0; /* what runs at the same time as all else, at best */
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        struct stage_seconds t = stage_seconds(plan, i, &speeds[i]);
        double *host_disk = &disk[plan->stages[i].host];
        memory += t.memory;
        waits += larger_of(t.link, t.disk);
        *host_disk += t.disk;
        other = larger_of(other, larger_of(t.link, *host_disk));
        slowest = larger_of(slowest, t.memory);
    }
    *out_pipelined_tokens_per_s = 1 / larger_of(slowest, other); /* 0 where something is unknown */
    return (struct sl_ceilings){1 / (memory + waits), 1 / larger_of(memory, other)};
}
