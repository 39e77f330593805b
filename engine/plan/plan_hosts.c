#include "engine/plan/plan_hosts.h"

#include "engine/plan/memory_plan_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of what is left when everything is resident, one part in so many goes to the prefix cache; as for
 * one device (memory_plan.c). */
#define CACHE_SHARE 8u

static uint64_t or_unbound(uint64_t bytes) {
    return bytes ? bytes : UINT64_MAX;
}

static bool is_speed(double bytes_per_s) {
    return isfinite(bytes_per_s) && bytes_per_s >= 0;
}

static enum sl_status add_host(const struct sl_host_config *c, struct sl_plan_host *out,
                               struct sl_err *err) {
    *out = (struct sl_plan_host){.ram_budget_bytes = c->ram_bytes,
                                 .pinned_budget_bytes = or_unbound(c->pinned_bytes),
                                 .ram_bytes_per_s = c->ram_bytes_per_s,
                                 .disk_bytes_per_s = c->disk_bytes_per_s};
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, c->name);
    if (!c->ram_bytes)
        return sl_fail(err, SL_ERR_CONFIG, "host '%s' has no budget of memory", out->name);
    if (!is_speed(c->ram_bytes_per_s) || !is_speed(c->disk_bytes_per_s))
        return sl_fail(err, SL_ERR_CONFIG,
                       "host '%s': a speed must be a number of bytes a second, or 0 for unknown",
                       out->name);
    return SL_OK;
}

enum sl_status sl_plan_hosts_find(const struct sl_engine_config *config,
                                  struct sl_stage_plans *plans, struct sl_err *err) {
    uint32_t n = config->n_hosts ? config->n_hosts : 1;
    memset(plans->hosts, 0, sizeof plans->hosts);
    plans->n_hosts = n;
    if (n > plans->n)
        return sl_fail(err, SL_ERR_CONFIG, "%u hosts for %u devices: each must have one", n,
                       plans->n);
    plans->hosts[0].ram_budget_bytes = or_unbound(config->ram_bytes);
    plans->hosts[0].pinned_budget_bytes = or_unbound(config->pinned_bytes);
    for (uint32_t h = 0; h < config->n_hosts; h++) {
        SL_TRY(add_host(&config->hosts[h], &plans->hosts[h], err));
    }
    for (uint32_t i = 0; i < plans->n; i++) {
        uint32_t h = config->n_hosts ? config->host_of[i] : 0;
        if (h >= n)
            return sl_fail(err, SL_ERR_CONFIG, "device %u is of host %u: there are %u", i, h, n);
        plans->at[i].host = h;
        plans->hosts[h].n_stages++;
    }
    for (uint32_t h = 0; h < n; h++)
        if (!plans->hosts[h].n_stages)
            return sl_fail(err, SL_ERR_CONFIG, "host '%s' has no device", plans->hosts[h].name);
    return SL_OK;
}

bool sl_stage_is_first_on_host(const struct sl_stage_plans *plans, uint32_t i) {
    for (uint32_t j = 0; j < i; j++)
        if (plans->at[j].host == plans->at[i].host)
            return false;
    return true;
}

static bool has_own_gpu(const struct sl_stage_plans *plans, uint32_t i) {
    for (uint32_t j = 0; j < plans->n; j++)
        if (j != i && plans->at[i].host == plans->at[j].host &&
            sl_device_is_same(plans->at[i].dev, plans->at[j].dev))
            return false;
    return true;
}

/* Devices of different backends, or of different hosts, copy nothing from one another. */
bool sl_stage_may_relay(const struct sl_stage_plans *plans, uint32_t i) {
    uint32_t n = 0;
    if (i >= plans->n_local)
        return false;
    for (uint32_t j = 0; j < plans->n; j++)
        n += plans->at[j].host == plans->at[i].host &&
             plans->at[j].dev->ops == plans->at[i].dev->ops && has_own_gpu(plans, j);
    return n > 1 && has_own_gpu(plans, i);
}

struct sl_plan_place sl_stage_place(const struct sl_stage_plans *plans,
                                    const struct sl_model *whole, uint32_t i) {
    struct sl_plan_place place = {.whole = whole,
                                  .stage = i,
                                  .n_stages = plans->n,
                                  .host = plans->at[i].host,
                                  .first_on_host = sl_stage_is_first_on_host(plans, i),
                                  .remote = i >= plans->n_local};
    for (uint32_t j = 0; j < plans->n; j++) {
        const struct sl_stage_plan *s = &plans->at[j];
        place.any_discrete |= sl_device_is_discrete(s->dev);
        place.any_reads_back |= s->host == place.host && !s->dev->caps.host_visible;
    }
    return place;
}

void sl_plan_host_config(const struct sl_stage_plans *plans, uint32_t i,
                         struct sl_engine_config *inout_config) {
    struct sl_engine_config *c = inout_config;
    if (!c->n_hosts)
        return;
    uint32_t h = plans->at[i].host;
    c->process_bytes = c->hosts[h].process_bytes;
    c->link_bytes = c->hosts[h].link_bytes;
    /* What drivers took and what rows name is this process's. */
    if (h == plans->at[0].host) {
        c->process_bytes += c->driver_bytes;
        return;
    }
    c->driver_bytes = 0;
    c->process_rows = NULL;
    c->n_process_rows = 0;
}

/* ---- dividing ---- */

struct share {
    uint64_t least, want; /* want: beyond the least */
};

/* Of stages that are not the host's: nothing. */
static bool divide(uint64_t budget, const struct sl_stage_plans *plans, uint32_t host,
                   const struct share shares[SL_MAX_STAGES], uint64_t out_bytes[SL_MAX_STAGES]) {
    uint64_t least = 0, all = 0;
    for (uint32_t i = 0; i < plans->n; i++)
        if (plans->at[i].host == host) {
            least += shares[i].least;
            all += shares[i].want;
        }
    if (budget < least)
        return false;
    uint64_t rest = budget - least;
    uint64_t more = rest > all ? (rest - all) / plans->hosts[host].n_stages : 0;
    double part = rest < all ? (double)rest / (double)all : 1;
    for (uint32_t i = 0; i < plans->n; i++) {
        if (plans->at[i].host != host)
            continue;
        uint64_t want = part < 1 ? (uint64_t)(part * (double)shares[i].want) : shares[i].want;
        out_bytes[i] = shares[i].least + want + more;
    }
    return true;
}

static uint64_t beyond(uint64_t all, uint64_t least) {
    return all > least ? all - least : 0;
}

uint64_t sl_plan_host_least(const struct sl_stage_plans *plans, uint32_t host) {
    uint64_t least = 0;
    for (uint32_t i = 0; i < plans->n; i++)
        least += plans->at[i].host == host ? plans->at[i].plan.least_bytes : 0;
    return least;
}

static enum sl_status refuse_ram(const struct sl_stage_plans *plans, uint32_t host,
                                 struct sl_err *err) {
    const struct sl_plan_host *h = &plans->hosts[host];
    double least = (double)sl_plan_host_least(plans, host) / 0x1p20;
    double budget = (double)h->ram_budget_bytes / 0x1p20;
    if (plans->n_hosts > 1)
        return sl_fail(err, SL_ERR_CONFIG,
                       "a budget of %.1f MiB is too small for host '%s' and its %u of %u devices: "
                       "at least %.0f MiB of its memory are needed; less with a smaller context, "
                       "fewer sessions or a smaller batch",
                       budget, h->name, h->n_stages, plans->n, least);
    return sl_fail(err, SL_ERR_CONFIG,
                   "a budget of %.1f MiB is too small for %u devices: at least %.0f MiB of the "
                   "host's memory are needed: --ram %.0fMiB; less with a smaller context, fewer "
                   "sessions or a smaller batch",
                   budget, plans->n, least, least);
}

static enum sl_status refuse_pinned(const struct sl_stage_plans *plans, uint32_t host,
                                    struct sl_err *err) {
    const struct sl_plan_host *h = &plans->hosts[host];
    uint64_t least = 0;
    for (uint32_t i = 0; i < plans->n; i++)
        least += plans->at[i].host == host ? plans->at[i].plan.pinned_least_bytes : 0;
    return sl_fail(err, SL_ERR_CONFIG,
                   "a bound of %.1f MiB for pinned memory is too small for %u devices%s%s: at "
                   "least %.0f MiB have to be pinned for them",
                   (double)h->pinned_budget_bytes / 0x1p20, h->n_stages,
                   *h->name ? " of host " : "", h->name,
                   (double)sl_plan_name_least(least) / 0x1p20);
}

enum sl_status sl_plan_divide_ram(const struct sl_stage_plans *plans, uint32_t host,
                                  uint64_t out_bytes[SL_MAX_STAGES], struct sl_err *err) {
    struct share shares[SL_MAX_STAGES] = {0};
    for (uint32_t i = 0; i < plans->n; i++) {
        const struct sl_memory_plan *p = &plans->at[i].plan;
        shares[i] = (struct share){p->needed_bytes, beyond(p->total_bytes, p->needed_bytes)};
    }
    return divide(plans->hosts[host].ram_budget_bytes, plans, host, shares, out_bytes)
               ? SL_OK
               : refuse_ram(plans, host, err);
}

enum sl_status sl_plan_divide_pinned(const struct sl_stage_plans *plans, uint32_t host,
                                     uint64_t out_bytes[SL_MAX_STAGES], struct sl_err *err) {
    struct share shares[SL_MAX_STAGES] = {0};
    uint64_t budget = plans->hosts[host].pinned_budget_bytes;
    for (uint32_t i = 0; i < plans->n; i++) {
        const struct sl_memory_plan *p = &plans->at[i].plan;
        uint64_t least = p->pinned_least_bytes;
        shares[i] = (struct share){least, beyond(p->pinned_total_bytes, least)};
        if (plans->at[i].host == host && budget == UINT64_MAX)
            out_bytes[i] = 0;
    }
    if (budget == UINT64_MAX)
        return SL_OK;
    if (!divide(budget, plans, host, shares, out_bytes))
        return refuse_pinned(plans, host, err);
    for (uint32_t i = 0; i < plans->n; i++)
        if (plans->at[i].host == host && !out_bytes[i])
            out_bytes[i] = 1; /* none, which is not the same as no bound */
    return SL_OK;
}

/* Of what a host has left. part: what of each page it keeps. */
static uint64_t spare_on_host(const struct sl_stage_plans *plans, uint32_t host, double part) {
    uint64_t ram = plans->hosts[host].ram_budget_bytes, total = 0;
    for (uint32_t i = 0; i < plans->n; i++)
        total += plans->at[i].host == host ? plans->at[i].plan.total_bytes : 0;
    uint64_t share = ram > total ? (ram - total) / CACHE_SHARE : 0;
    if (part >= 1)
        return share;
    double pages = part > 0 ? (double)share / part : INFINITY;
    return pages < 0x1p63 ? (uint64_t)pages : UINT64_MAX;
}

/* A host keeps its stages' part of a page; pages that a device gave up are all copied to the first
 * stage's host. */
uint64_t sl_plan_spare_for_cache(const struct sl_stage_plans *plans) {
    uint64_t kv = 0, kv_of[SL_MAX_STAGES] = {0}, least = UINT64_MAX;
    for (uint32_t i = 0; i < plans->n; i++) {
        const struct sl_memory_plan *p = &plans->at[i].plan;
        if (p->streaming)
            return 0;
        kv += p->kv_bytes;
        kv_of[p->pages_discrete ? plans->at[0].host : plans->at[i].host] += p->kv_bytes;
    }
    for (uint32_t h = 0; h < plans->n_hosts && kv; h++) {
        uint64_t spare = spare_on_host(plans, h, (double)kv_of[h] / (double)kv);
        least = spare < least ? spare : least;
    }
    return least < kv ? least : kv;
}

/* ---- sums ---- */

void sl_plan_hosts_note_least(struct sl_stage_plans *plans) {
    for (uint32_t h = 0; h < plans->n_hosts; h++)
        plans->hosts[h].ram_least_bytes = sl_plan_host_least(plans, h);
}

void sl_plan_hosts_sum(struct sl_stage_plans *plans) {
    for (uint32_t h = 0; h < plans->n_hosts; h++) {
        struct sl_plan_host *host = &plans->hosts[h];
        host->ram_total_bytes = host->pinned_total_bytes = 0;
    }
    for (uint32_t i = 0; i < plans->n; i++) {
        struct sl_plan_host *host = &plans->hosts[plans->at[i].host];
        host->ram_total_bytes += plans->at[i].plan.total_bytes;
        host->pinned_total_bytes += plans->at[i].plan.pinned_total_bytes;
    }
}

static uint64_t add_sat(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void sl_plan_hosts_budget(const struct sl_stage_plans *plans, uint64_t *out_ram_bytes,
                          uint64_t *out_pinned_bytes) {
    *out_ram_bytes = *out_pinned_bytes = 0;
    for (uint32_t h = 0; h < plans->n_hosts; h++) {
        *out_ram_bytes = add_sat(*out_ram_bytes, plans->hosts[h].ram_budget_bytes);
        *out_pinned_bytes = add_sat(*out_pinned_bytes, plans->hosts[h].pinned_budget_bytes);
    }
}
