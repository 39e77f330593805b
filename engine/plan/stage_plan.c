#include "engine/plan/stage_plan.h"

#include "common/log.h"
#include "engine/reads/expert_layout.h"
#include "engine/forward/arithmetic.h"
#include "engine/plan/memory_plan_internal.h"
#include "engine/plan/open_device.h"
#include "engine/plan/plan_hosts.h"
#include "engine/plan/stage_costs.h"
#include "engine/tables/table_layout.h"

#include "model/arch/model_slice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often a split is chosen anew because a stage's plan took more than its bound. */
#define MAX_CHOICES 8u

static uint64_t add_sat(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- all plans as one ---- */

static void add_bytes(const struct sl_memory_plan *p, struct sl_memory_plan *w) {
    w->weight_bytes += p->weight_bytes;
    w->expert_bytes += p->expert_bytes;
    w->slot_bytes += p->slot_bytes;
    w->stream_bytes += p->stream_bytes;
    w->table_bytes += p->table_bytes;
    w->table_cache_bytes += p->table_cache_bytes;
    w->large_table_bytes += p->large_table_bytes;
    w->streamed_table_bytes += p->streamed_table_bytes;
    w->streamed_tables |= p->streamed_tables;
    w->tables_why = w->tables_why ? w->tables_why : p->tables_why;
    w->device_slot_bytes += p->device_slot_bytes;
    w->pinned_bytes += p->pinned_bytes;
    w->load_bytes += p->load_bytes;
    w->process_bytes += p->process_bytes;
    w->link_bytes += p->link_bytes;
    w->pinned_total_bytes += p->pinned_total_bytes;
    w->pinned_least_bytes += p->pinned_least_bytes;
    w->thread_bytes += p->thread_bytes;
    w->kernel_bytes += p->kernel_bytes;
    w->slack_bytes += p->slack_bytes;
    w->kv_bytes += p->kv_bytes;
    w->activation_bytes += p->activation_bytes;
    w->scratch_bytes += p->scratch_bytes;
    w->host_bytes += p->host_bytes;
    w->total_bytes += p->total_bytes;
    w->least_bytes += p->least_bytes;
    w->vram_total_bytes += p->vram_total_bytes;
    w->vram_least_bytes += p->vram_least_bytes;
    w->vram_budget_bytes = add_sat(w->vram_budget_bytes, p->vram_budget_bytes);
}

/* Rows of a host's process are summed, those of a stage stay its own. */
static void add_row(const struct sl_plan_row *row, struct sl_memory_plan *w) {
    for (uint32_t i = 0; !row->stage && i < w->n_rows; i++) {
        struct sl_plan_row *r = &w->rows[i];
        if (r->stage || r->host != row->host || strcmp(r->what, row->what) != 0)
            continue;
        r->bytes += row->bytes;
        if (strcmp(row->what, "threads") == 0)
            snprintf(r->detail, sizeof r->detail, "all stacks");
        return;
    }
    if (w->n_rows < SL_PLAN_MAX_ROWS)
        w->rows[w->n_rows++] = *row;
}

static void add_stage_rows(const struct sl_memory_plan *p, bool of_stage,
                           struct sl_memory_plan *w) {
    for (uint32_t k = 0; k < p->n_rows; k++)
        if ((p->rows[k].stage != 0) == of_stage)
            add_row(&p->rows[k], w);
}

/* Of all stages, then of each host's process. */
static void add_rows(const struct sl_stage_plans *plans, struct sl_memory_plan *w) {
    for (uint32_t i = 0; i < plans->n; i++)
        add_stage_rows(&plans->at[i].plan, true, w);
    for (uint32_t h = 0; h < plans->n_hosts; h++)
        for (uint32_t i = 0; i < plans->n; i++)
            if (plans->at[i].host == h)
                add_stage_rows(&plans->at[i].plan, false, w);
}

/* Classes are numbered by their first layer, so that a slice may number them otherwise. */
static void add_slots(const struct sl_expert_layout *whole, const struct sl_expert_layout *slice,
                      const struct sl_memory_plan *p, struct sl_memory_plan *w) {
    for (uint32_t c = 0; c < slice->n_class; c++)
        for (uint32_t k = 0; k < whole->n_class; k++)
            if (memcmp(&slice->classes[c].slot, &whole->classes[k].slot,
                       sizeof whole->classes[k].slot) == 0) {
                /* Where a stage has all of them resident each is as good as in a slot. */
                uint32_t all = slice->classes[c].n_expert;
                uint32_t *there = p->discrete ? w->device_class_slots : w->class_slots;
                there[k] += p->streaming ? 0 : all;
                w->class_slots[k] += p->class_slots[c];
                w->device_class_slots[k] += p->device_class_slots[c];
                break;
            }
    w->n_slots += p->n_slots;
    w->n_device_slots += p->n_device_slots;
    w->n_experts += p->n_experts;
    w->streaming |= p->streaming;
}

static void join_hosts(struct sl_stage_plans *plans) {
    struct sl_memory_plan *w = &plans->whole;
    sl_plan_hosts_sum(plans);
    w->n_hosts = plans->n_hosts;
    memcpy(w->hosts, plans->hosts, sizeof w->hosts);
    sl_plan_hosts_budget(plans, &w->budget_bytes, &w->pinned_budget_bytes);
    w->config.ram_bytes = w->budget_bytes;
}

static enum sl_status join(const struct sl_model *model, struct sl_stage_plans *plans,
                           struct sl_err *err) {
    struct sl_expert_layout whole, slice;
    struct sl_memory_plan *w = &plans->whole;
    SL_TRY(sl_expert_layout_make(model, &whole, err));
    *w = plans->at[0].plan;
    w->n_class = whole.n_class;
    w->n_logit_rows = plans->at[plans->n - 1].plan.n_logit_rows;
    w->n_slots = w->n_device_slots = w->n_experts = w->n_rows = 0;
    w->streaming = w->discrete = w->reads_back = false;
    memset(w->class_slots, 0, sizeof w->class_slots);
    memset(w->device_class_slots, 0, sizeof w->device_class_slots);
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < plans->n && status == SL_OK; i++) {
        const struct sl_memory_plan *p = &plans->at[i].plan;
        w->stages[i] = p->stages[i];
        w->discrete |= p->discrete;
        w->reads_back |= p->reads_back;
        if (i)
            add_bytes(p, w);
        status = sl_expert_layout_make(&plans->at[i].model, &slice, err);
        if (status != SL_OK)
            break;
        add_slots(&whole, &slice, p, w);
        sl_expert_layout_release(&slice);
    }
    add_rows(plans, w);
    join_hosts(plans);
    sl_expert_layout_release(&whole);
    return status;
}

/* ---- several stages ---- */

struct planner {
    const struct sl_model *model;
    struct sl_engine_config config; /* with budgets; no cache that is left open */
    struct sl_stage_plans *plans;   /* devices are open */
    bool none_here;                 /* the first stage has no layers */
    bool heat_asked, by_heat;       /* routing that is known had a part in the split */
};

/* pinned_bytes: 0 = no bound. */
static enum sl_status plan_stage(const struct planner *r, uint32_t i, uint64_t ram_bytes,
                                 uint64_t pinned_bytes, bool relays, struct sl_err *err) {
    struct sl_stage_plan *s = &r->plans->at[i];
    struct sl_engine_config c = r->config;
    struct sl_plan_place place = sl_stage_place(r->plans, r->model, i);
    place.relays = relays;
    sl_plan_host_config(r->plans, i, &c);
    c.ram_bytes = ram_bytes;
    c.pinned_bytes = pinned_bytes;
    c.vram_bytes = r->config.vram_each[i];
    return sl_memory_plan_make_stage(&s->model, &place, &c, s->dev, &s->plan, err);
}

/* Adds to a refusal what every stage of this split needs of its device's own memory. */
static void say_all_leasts(const struct sl_stage_plans *plans, struct sl_err *err) {
    size_t n = strlen(err->text), begin = n;
    for (uint32_t i = 0; i < plans->n && n < sizeof err->text; i++)
        if (sl_device_is_discrete(plans->at[i].dev))
            n += (size_t)snprintf(err->text + n, sizeof err->text - n, "%s%.0fMiB",
                                  n > begin ? "," : "; for all of them: --vram ",
                                  (double)plans->at[i].plan.vram_least_bytes / 0x1p20);
}

/* Of the stages that have been planned, those that copy experts and might relay others' copies;
 * *out_last is one of them. */
static uint32_t count_copiers(const struct sl_stage_plans *plans, uint32_t *out_last) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < plans->n; i++) {
        const struct sl_memory_plan *p = &plans->at[i].plan;
        if (p->streaming && p->discrete && p->relays) {
            *out_last = i;
            n++;
        }
    }
    return n;
}

/* Again, without what others' copies would take there. */
static enum sl_status plan_only_copier(const struct planner *r, uint32_t i, struct sl_err *err) {
    struct sl_memory_plan *p = &r->plans->at[i].plan, *whole = &r->plans->whole;
    whole->least_bytes -= p->least_bytes;
    whole->vram_least_bytes -= p->vram_least_bytes;
    enum sl_status status = plan_stage(r, i, UINT64_MAX, 0, false, err);
    whole->least_bytes += p->least_bytes;
    whole->vram_least_bytes += p->vram_least_bytes;
    return status;
}

static enum sl_status refuse_stage(const struct planner *r, uint32_t i, enum sl_status status,
                                   const struct sl_err *why, struct sl_err *err) {
    const struct sl_stage_plan *s = &r->plans->at[i];
    const struct sl_hparams *hp = &s->model.hp;
    if (!hp->n_layer)
        return sl_fail(err, status, "the embedding, on %.40s: %.300s", s->dev->caps.name,
                       why->text);
    return sl_fail(err, status, "layers %u to %u of %u, on %.40s: %.300s", hp->first_layer,
                   hp->first_layer + hp->n_layer - 1, r->model->hp.n_layer, s->dev->caps.name,
                   why->text);
}

/* What every stage needs of its own memory, with all of the host's that it can use. The first
 * failure counts; the least budgets of all are added up in any case. */
static enum sl_status plan_alone(const struct planner *r, struct sl_err *err) {
    struct sl_stage_plans *plans = r->plans;
    struct sl_err why;
    enum sl_status first = SL_OK;
    uint32_t only = plans->n, n_failed = 0;
    plans->whole.least_bytes = plans->whole.vram_least_bytes = 0;
    for (uint32_t i = 0; i < plans->n; i++) {
        const struct sl_memory_plan *p = &plans->at[i].plan;
        enum sl_status status = plan_stage(r, i, UINT64_MAX, 0, sl_stage_may_relay(plans, i), &why);
        n_failed += status != SL_OK;
        if (status != SL_OK && first == SL_OK) {
            only = i;
            first = refuse_stage(r, i, status, &why, err);
            if (!p->least_bytes)
                return first; /* no budget would do */
        }
        plans->whole.least_bytes += p->least_bytes;
        plans->whole.vram_least_bytes += p->vram_least_bytes;
    }
    /* One that copies, or would if it were not for lack of room, and no other. */
    if (count_copiers(plans, &only) + n_failed == 1) {
        first = plan_only_copier(r, only, &why);
        if (first != SL_OK)
            first = refuse_stage(r, only, first, &why, err);
    }
    if (first != SL_OK && plans->whole.vram_least_bytes)
        say_all_leasts(plans, err);
    return first;
}

/* Divides each host's memory over its own stages: to each the least, and of the rest a part by what
 * it could use of it (slots for the experts that its card has no room for). */
static enum sl_status plan_with_hosts(const struct planner *r, struct sl_err *err) {
    struct sl_stage_plans *plans = r->plans;
    uint64_t ram[SL_MAX_STAGES] = {0}, pinned[SL_MAX_STAGES] = {0};
    enum sl_status status = SL_OK;
    for (uint32_t h = 0; h < plans->n_hosts && status == SL_OK; h++) {
        status = sl_plan_divide_ram(plans, h, ram, err);
        if (status == SL_OK)
            status = sl_plan_divide_pinned(plans, h, pinned, err);
    }
    for (uint32_t i = 0; i < plans->n && status == SL_OK; i++)
        status = plan_stage(r, i, ram[i], pinned[i], plans->at[i].plan.relays, err);
    return status;
}

static enum sl_status plan_both(const struct planner *r, struct sl_err *err) {
    enum sl_status status = plan_alone(r, err);
    return status == SL_OK ? plan_with_hosts(r, err) : status;
}

static enum sl_status cut(const struct planner *r, const struct sl_split *split,
                          struct sl_err *err) {
    uint32_t first = 0;
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < split->n && status == SL_OK; i++) {
        status = sl_model_slice(r->model, first, split->n_layer[i], &r->plans->at[i].model, err);
        if (i)
            sl_model_slice_drop_input(&r->plans->at[i].model);
        first += split->n_layer[i];
    }
    return status;
}

static enum sl_status refuse_split(const struct planner *r, uint64_t least, struct sl_err *err) {
    r->plans->whole.vram_least_bytes = 0;
    if (least == UINT64_MAX)
        return sl_fail(err, SL_ERR_CONFIG,
                       "the model cannot be divided over %u devices: some of its layers must be "
                       "where the layer before them is; name fewer with --device",
                       r->plans->n);
    for (uint32_t i = 0; i < r->plans->n; i++)
        r->plans->whole.vram_least_bytes += sl_device_is_discrete(r->plans->at[i].dev) ? least : 0;
    return sl_fail(err, SL_ERR_CONFIG,
                   "the model does not fit the memory of %u devices, however its layers are "
                   "divided: with %.0f MiB on each it does: --vram %.0fMiB; less with a smaller "
                   "context, fewer sessions or a smaller batch",
                   r->plans->n, (double)least / 0x1p20, (double)least / 0x1p20);
}

/* A budget for each card with which the plans fit, from one with which the bounds do. */
static uint64_t proven_least(const struct planner *r, struct sl_stage_costs *costs,
                             uint64_t least) {
    struct planner trial = *r;
    struct sl_split split;
    struct sl_err why;
    for (uint32_t i = 0; i < 2 * MAX_CHOICES; i++) {
        uint64_t next = 0;
        least = (least + 0xfffff) >> 20 << 20;
        for (uint32_t k = 0; k < r->plans->n; k++)
            if (sl_device_is_discrete(r->plans->at[k].dev))
                trial.config.vram_each[k] = costs->cards[k].budget_bytes = least;
        enum sl_status status =
            sl_split_choose(&costs->model, costs->cards, r->plans->n, r->none_here, &split, &next);
        if (status == SL_OK && cut(&trial, &split, &why) == SL_OK) {
            if (plan_alone(&trial, &why) == SL_OK || !sl_stage_costs_raise(costs, r->plans))
                return least;
            continue;
        }
        if (status != SL_ERR_CONFIG)
            return least;
        least = next;
    }
    return least;
}

static bool all_alike(const struct sl_stage_plans *plans) {
    bool alike = true;
    for (uint32_t i = 1; i < plans->n; i++)
        alike &= sl_devices_alike(plans->at[0].dev, plans->at[i].dev);
    return alike;
}

/* Where experts have to be elsewhere, what is known of routing says of which layers that costs
 * more. It is not asked where it does not matter. Nor where devices give other bits than one
 * another: there the split shows in the answers and in the names of kept prefixes, so it must not
 * change from start to start. */
static enum sl_status choose(struct planner *r, struct sl_stage_costs *costs,
                             struct sl_split *out_split, uint64_t *out_least) {
    const struct sl_split_model *m = &costs->model;
    uint32_t n = r->plans->n;
    enum sl_status status = sl_split_choose(m, costs->cards, n, r->none_here, out_split, out_least);
    if (status != SL_OK || r->heat_asked || !r->config.heat_file ||
        !sl_split_lacks_room(m, costs->cards, out_split) || !all_alike(r->plans))
        return status;
    r->heat_asked = true;
    if (!sl_stage_costs_add_heat(costs, r->model, r->config.heat_file))
        r->config.heat_file = NULL; /* a disk that hangs is waited for once */
    r->by_heat = m->heat != NULL;
    return m->heat ? sl_split_choose(m, costs->cards, n, r->none_here, out_split, out_least)
                   : status;
}

/* Where there is one host its own refusal says so. */
static bool some_host_lacks(const struct sl_stage_plans *plans) {
    bool lacks = false;
    for (uint32_t h = 0; h < plans->n_hosts && plans->n_hosts > 1; h++)
        lacks |= sl_plan_host_least(plans, h) > plans->hosts[h].ram_budget_bytes;
    return lacks;
}

/* What layers and devices take where tables are streamed. */
static enum sl_status without_tables(const struct planner *r, struct sl_stage_costs *costs,
                                     struct sl_err *err) {
    struct sl_engine_config config = r->config;
    config.tables = SL_TABLES_STREAMED;
    sl_stage_costs_release(costs);
    *costs = (struct sl_stage_costs){0};
    return sl_stage_costs_make(r->model, &config, r->plans, costs, err);
}

/* Divides the layers, and plans each stage with all of the host's memory that it can use. */
static enum sl_status divide(struct planner *r, const struct sl_split *given, struct sl_err *err) {
    struct sl_stage_costs costs = {0};
    struct sl_split split = *given;
    enum sl_status status = SL_OK;
    /* Stages may do without the large tables, if they have to. */
    bool sheds = r->config.tables == SL_TABLES_AUTO && sl_tables_large(r->model);
    if (!given->n)
        status = sl_stage_costs_make(r->model, &r->config, r->plans, &costs, err);
    for (uint32_t i = 0; status == SL_OK && i < MAX_CHOICES; i++) {
        uint64_t least = 0;
        if (!given->n)
            status = choose(r, &costs, &split, &least);
        if (status == SL_ERR_CONFIG && least != UINT64_MAX && sheds) {
            sheds = false;
            status = without_tables(r, &costs, err);
            if (status == SL_OK)
                status = choose(r, &costs, &split, &least);
        }
        if (status == SL_ERR_CONFIG && sl_stage_costs_free_host(&costs, r->plans))
            status = choose(r, &costs, &split, &least); /* what the host lacks its own plan says */
        if (status == SL_ERR_CONFIG)
            status =
                refuse_split(r, least == UINT64_MAX ? least : proven_least(r, &costs, least), err);
        else if (status != SL_OK)
            status = sl_fail(err, status, "no memory for dividing the layers");
        if (status == SL_OK)
            status = cut(r, &split, err);
        if (status != SL_OK)
            break;
        status = plan_alone(r, err);
        bool again = status == SL_ERR_CONFIG || (status == SL_OK && some_host_lacks(r->plans));
        if (!again || given->n || i + 1 == MAX_CHOICES || !sl_stage_costs_raise(&costs, r->plans))
            break;
        status = SL_OK;
    }
    sl_stage_costs_release(&costs);
    return status;
}

/* Would it do without the pages that were asked for? */
static enum sl_status blame_cache(const struct planner *r, const struct sl_split *split,
                                  struct sl_err *err) {
    struct planner without = *r;
    struct sl_err other;
    struct sl_memory_plan *whole = &r->plans->whole;
    uint64_t least = whole->least_bytes, vram_least = whole->vram_least_bytes;
    without.config.cache_ram_bytes = 0;
    if (r->config.cache_ram_bytes && r->config.ram_bytes && !r->config.n_hosts &&
        divide(&without, split, &other) == SL_OK && plan_with_hosts(&without, &other) == SL_OK)
        (void)!sl_plan_refuse_cache(r->config.cache_ram_bytes, r->config.ram_bytes, least,
                                    whole->least_bytes, err);
    whole->least_bytes = least;
    whole->vram_least_bytes = vram_least;
    return SL_ERR_CONFIG;
}

static enum sl_status plan_several(struct planner *r, const struct sl_split *split,
                                   struct sl_err *err) {
    struct sl_stage_plans *plans = r->plans;
    bool cache_open = r->config.cache_ram_bytes == SL_CACHE_RAM_AUTO;
    if (cache_open)
        r->config.cache_ram_bytes = 0;
    enum sl_status status = divide(r, split, err);
    sl_plan_hosts_note_least(plans); /* one could do without the cache */
    if (status == SL_OK)
        status = plan_with_hosts(r, err);
    if (status == SL_ERR_CONFIG)
        status = blame_cache(r, split, err);
    if (status != SL_OK)
        return status;
    uint64_t least = plans->whole.least_bytes;
    if (cache_open && (r->config.cache_ram_bytes = sl_plan_spare_for_cache(plans)) != 0) {
        status = plan_both(r, err);
        if (status == SL_ERR_CONFIG) { /* least budgets are rounded up: it was a little too much */
            r->config.cache_ram_bytes = 0;
            status = plan_both(r, err);
        }
    }
    if (status == SL_OK)
        status = join(r->model, plans, err);
    plans->whole.least_bytes = least; /* likewise */
    plans->whole.split_by_heat = r->by_heat;
    return status;
}

static enum sl_status plan_one(const struct planner *r, struct sl_err *err) {
    struct sl_stage_plans *plans = r->plans;
    struct sl_engine_config c = r->config;
    sl_plan_host_config(plans, 0, &c);
    if (c.n_hosts) {
        c.ram_bytes = c.hosts->ram_bytes;
        c.pinned_bytes = c.hosts->pinned_bytes;
    }
    enum sl_status status =
        sl_memory_plan_make(r->model, &c, plans->at->dev, &plans->at->plan, err);
    plans->whole = plans->at->plan;
    if (status != SL_OK)
        return status;
    sl_plan_hosts_note_least(plans);
    sl_plan_hosts_sum(plans);
    plans->hosts->ram_budget_bytes = plans->whole.budget_bytes;
    plans->whole.n_hosts = 1;
    plans->whole.hosts[0] = plans->hosts[0];
    return SL_OK;
}

/* ---- opening ---- */

/* This machine, with the budgets that config has for it, and those of the remote devices. */
static enum sl_status name_hosts(struct sl_engine_config *config, struct sl_stage_plans *plans,
                                 struct sl_err *err) {
    const struct sl_remote_stages *remote = config->remote;
    struct sl_host_config *hosts = calloc(1 + (size_t)remote->n_hosts, sizeof *hosts);
    if (!hosts)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a list of machines");
    snprintf(hosts->name, sizeof hosts->name, "here");
    hosts->ram_bytes = config->ram_bytes ? config->ram_bytes : UINT64_MAX;
    hosts->pinned_bytes = config->pinned_bytes;
    hosts->process_bytes = config->process_bytes - config->driver_bytes;
    hosts->link_bytes = config->link_bytes;
    memcpy(hosts + 1, remote->hosts, remote->n_hosts * sizeof *hosts);
    config->hosts = plans->host_configs = hosts;
    config->n_hosts = 1 + remote->n_hosts;
    for (uint32_t i = 0; i < plans->n; i++)
        config->host_of[i] = i < plans->n_local ? 0 : 1 + remote->host_of[i - plans->n_local];
    return SL_OK;
}

static enum sl_status open_and_plan(const struct sl_model *model,
                                    const struct sl_engine_config *config,
                                    const struct sl_device_names *names,
                                    const struct sl_split *split, struct sl_stage_plans *out_plans,
                                    struct sl_err *err) {
    struct sl_device *dev[SL_MAX_STAGES] = {0};
    struct sl_stage_plans p = {.n = names->n, .n_local = names->n_local};
    struct planner r = {.model = model, .plans = &p, .none_here = split->none_at_first};
    p.at = calloc(p.n, sizeof *p.at);
    if (!p.at)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the plans of %u devices", p.n);
    enum sl_status status = sl_devices_open(config, names, dev, &r.config, err);
    for (uint32_t i = 0; i < p.n; i++) {
        p.at[i].dev = dev[i];
        p.at[i].model = *model;
    }
    if (status == SL_OK && config->remote)
        status = name_hosts(&r.config, &p, err);
    if (status == SL_OK)
        status = sl_plan_hosts_find(&r.config, &p, err);
    if (status == SL_OK && p.n == 1) {
        status = plan_one(&r, err);
    } else if (status == SL_OK) {
        status = plan_several(&r, split, err);
        r.config.process_rows = NULL; /* borrowed for this call */
    }
    if (status == SL_OK) {
        *out_plans = p;
        return SL_OK;
    }
    out_plans->whole.least_bytes = p.whole.least_bytes;
    out_plans->whole.vram_least_bytes = p.whole.vram_least_bytes;
    sl_stage_plans_release(&p);
    return status;
}

/* Whoever has a GPU, or gave a budget for one, should see that it is not used, and why. */
static void tell_host(const struct sl_engine_config *config, enum sl_status status,
                      const struct sl_err *why) {
    bool given = config->n_vram || config->vram_bytes;
    if (given || status != SL_ERR_UNSUPPORTED) /* that is: no driver, or no GPU for us */
        sl_warn("computing on the CPU%s (--device sets it): %s",
                given ? ", --vram is not used" : "", why->text);
    else
        sl_info("computing on the CPU (--device sets it): %s", why->text);
}

/* Why nobody takes any of a backend's devices unasked. */
static const char *why_none(const struct sl_device_found *found, uint32_t n) {
    for (uint32_t i = 0; i < n && i <= SL_DEVICE_MAX_NUMBER; i++)
        if (found[i].why_not.text[0])
            return found[i].why_not.text;
    return n ? "only software devices are there: name them by number" : "no device";
}

/* The first of a backend's devices that the model fits. One that has no more memory than another
 * that was tried in vain is not tried. */
static enum sl_status open_first(const struct sl_model *model,
                                 const struct sl_engine_config *config,
                                 const struct sl_backend *backend, const struct sl_split *split,
                                 struct sl_stage_plans *out_plans, struct sl_err *why) {
    struct sl_device_found *found = calloc(SL_DEVICE_MAX_NUMBER + 1, sizeof *found);
    uint32_t n_remote = config->remote ? config->remote->n : 0;
    struct sl_device_names names = {.n = 1 + n_remote, .n_local = 1, .any = true};
    uint64_t most_bytes = 0;
    uint32_t n = 0, n_tried = 0;
    if (!found)
        return sl_fail(why, SL_ERR_NOMEM, "no memory for a list of devices");
    enum sl_status status = SL_ERR_UNSUPPORTED;
    if (!backend->may_be_here || backend->may_be_here(why))
        status = sl_devices_look(backend, found, SL_DEVICE_MAX_NUMBER + 1, &n, why);
    if (status == SL_OK)
        status = sl_fail(why, SL_ERR_UNSUPPORTED, "%s", why_none(found, n));
    for (uint32_t i = 0; i < n && i <= SL_DEVICE_MAX_NUMBER; i++) {
        if (found[i].why_not.text[0] || found[i].software ||
            (n_tried && found[i].memory_bytes <= most_bytes))
            continue;
        names.at[0] = (struct sl_device_ref){backend, i};
        status = open_and_plan(model, config, &names, split, out_plans, why);
        if (status == SL_OK)
            break;
        most_bytes = found[i].memory_bytes;
        n_tried++;
    }
    free(found);
    return status;
}

/* Adds why a backend was passed over to why others were, as far as there is room. */
static void add_why(const struct sl_err *why, struct sl_err *all) {
    size_t n = strlen(all->text), room = sizeof all->text - n;
    if (room > 3)
        snprintf(all->text + n, room, "%s%.*s", n ? "; " : "", (int)room - 3, why->text);
}

/* The first device in the registry's order that the model fits, else the host. */
static enum sl_status open_any(const struct sl_model *model, const struct sl_engine_config *config,
                               const struct sl_device_names *host, const struct sl_split *split,
                               struct sl_stage_plans *out_plans, struct sl_err *err) {
    struct sl_engine_config c = *config;
    struct sl_err why, all = {{0}};
    enum sl_status least = SL_ERR_UNSUPPORTED; /* else a device was there */
    const struct sl_backend *b;
    bool tried = false;
    for (uint32_t i = 0; (!c.cpu_isa || !*c.cpu_isa) && (b = sl_backend_at(i)); i++) {
        if (b->hidden || b->named_only || b->kind == SL_DEVICE_HOST)
            continue;
        enum sl_status status = open_first(model, &c, b, split, out_plans, &why);
        if (status == SL_OK && !c.devices_logged)
            sl_info("computing on %s: it was found and the model fits (--device sets it)",
                    out_plans->at[0].dev->caps.name);
        if (status == SL_OK)
            return SL_OK;
        least = status == SL_ERR_UNSUPPORTED ? least : status;
        add_why(&why, &all);
        tried = true;
    }
    if (tried) {
        tell_host(config, least, &all);
        c.vram_bytes = c.n_vram = 0;
    }
    out_plans->whole.least_bytes = out_plans->whole.vram_least_bytes = 0;
    c.device = host->at[0].backend->name; /* decided; the next plan need not look again */
    return open_and_plan(model, &c, host, split, out_plans, err);
}

/* The embedding is looked up by the host: a card would have nothing to do. */
static enum sl_status check_none_here(const struct sl_engine_config *config,
                                      struct sl_device_names *names, struct sl_err *err) {
    if (!config->remote)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--split %s: only with --workers can this machine be without layers",
                       config->split);
    names->any = false;
    if (names->n_local != 1 || names->at[0].backend != sl_backend_of_host())
        return sl_fail(err, SL_ERR_CONFIG,
                       "--split %s leaves this machine without layers: its device is --device %s",
                       config->split, sl_backend_of_host()->name);
    return SL_OK;
}

enum sl_status sl_stage_plans_open(const struct sl_model *model,
                                   const struct sl_engine_config *config,
                                   struct sl_stage_plans *out_plans, struct sl_err *err) {
    struct sl_split split;
    struct sl_device_names names;
    *out_plans = (struct sl_stage_plans){.n = 0};
    enum sl_status status = sl_split_parse(config->split, model->hp.n_layer, &split, err);
    if (status == SL_OK)
        status = sl_device_names(config, model->hp.n_layer, split.n, &names, err);
    if (status == SL_OK && model->hp.n_draft && ((names.n > 1 && !names.any) || config->remote))
        status = sl_fail(err, SL_ERR_UNSUPPORTED,
                         "the model's own layer can draft tokens on one device that has all "
                         "layers: give one --device and no --workers, or --draft off");
    if (status == SL_OK && split.none_at_first)
        status = check_none_here(config, &names, err);
    if (status != SL_OK)
        return status;
    return names.any ? open_any(model, config, &names, &split, out_plans, err)
                     : open_and_plan(model, config, &names, &split, out_plans, err);
}

void sl_stage_plans_release(struct sl_stage_plans *plans) {
    for (uint32_t i = 0; plans->at && i < plans->n; i++) {
        sl_device_close(&plans->at[i].dev);
        sl_model_slice_release(&plans->at[i].model);
    }
    free(plans->at);
    free(plans->host_configs);
    plans->at = NULL;
    plans->host_configs = NULL;
    plans->n = 0;
}

void sl_stage_plans_device(const struct sl_memory_plan *whole, char out_name[64]) {
    const struct sl_plan_stage *first = &whole->stages[0];
    bool alike = *first->model != 0;
    for (uint32_t i = 1; i < whole->n_stages && alike; i++)
        alike = strcmp(whole->stages[i].model, first->model) == 0;
    if (whole->n_stages <= 1)
        snprintf(out_name, 64, "%s", first->device);
    else if (alike)
        snprintf(out_name, 64, "%u x %.50s", whole->n_stages, first->model);
    else
        snprintf(out_name, 64, "%.28s + %.28s%s", first->device, whole->stages[1].device,
                 whole->n_stages > 2 ? " ..." : "");
}
