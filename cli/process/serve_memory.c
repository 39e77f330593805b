#include "cli/process/serve_memory.h"

#include "backends/ops/kv.h"
#include "model/grammar/vocab_trie.h"
#include "server/exchange/memory.h"

#include <stdio.h>
#include <string.h>

/* One part in this many of what the smallest plan leaves goes to the server. */
#define SHARE_STREAMING 32u
#define SHARE_RESIDENT  2u

static void add_server(struct sl_process_memory *m, const struct sl_server_config *s) {
    sl_process_memory_add(
        m, "server", sl_server_memory_bytes(s),
        "bodies to %.1f MiB, %u connections, answers %.0f MiB, %u workers of "
        "%.0f MiB, store %.0f MiB",
        (double)s->max_body_bytes / 0x1p20, s->max_connections,
        (double)s->max_replies_bytes / 0x1p20, s->n_workers, (double)s->worker_bytes / 0x1p20,
        s->response_store_bytes == SL_NO_RESPONSE_STORE ? 0.0
                                                        : (double)s->response_store_bytes / 0x1p20);
}

/* Where several machines have stages, the server is on the first. */
static struct sl_plan_host of_this_machine(const struct sl_memory_plan *p) {
    if (p->n_hosts > 1)
        return p->hosts[0];
    return (struct sl_plan_host){.ram_budget_bytes = p->budget_bytes,
                                 .ram_total_bytes = p->total_bytes,
                                 .ram_least_bytes = p->least_bytes};
}

/* ---- the context ---- */

#define LEAST_CTX      8192u  /* the engine's own choice */
#define AGENTS_CTX     16384u /* coding agents' first prompt alone has more than 8,000 tokens */
#define SHARE_OF_FREE  4u /* of what is not needed, one part in so many goes to a larger context */
#define SHARE_OF_SLOTS 8u /* and of what expert slots take */

/* The bytes that sessions of ctx tokens take more than those of the plan, at most: layers that keep
 * the tail of a sequence alone take less. */
static uint64_t more_kv_bytes(const struct sl_memory_plan *p, uint32_t ctx) {
    uint64_t pages = (ctx + SL_KV_PAGE_TOKENS - 1) / SL_KV_PAGE_TOKENS;
    return (pages - p->session_pages) * p->config.parallel * p->page_bytes;
}

/* What a larger context may take. KV pages that streamed experts' slots pay for cost speed. */
static uint64_t room_for_kv(const struct sl_memory_plan *p) {
    uint64_t total = p->discrete ? p->vram_total_bytes : p->total_bytes;
    uint64_t budget = p->discrete ? p->vram_budget_bytes : p->budget_bytes;
    if (p->streaming)
        return (p->discrete ? p->device_slot_bytes : p->slot_bytes) / SHARE_OF_SLOTS;
    return budget == UINT64_MAX || budget < total ? 0 : (budget - total) / SHARE_OF_FREE;
}

/* Whether the plan for a larger context is as good as the base: the same placement, and nearly as
 * many slots. */
static bool as_good(const struct sl_memory_plan *base, const struct sl_memory_plan *p) {
    uint64_t slots = (uint64_t)p->n_slots + p->n_device_slots;
    uint64_t before = (uint64_t)base->n_slots + base->n_device_slots;
    return p->streaming == base->streaming && p->n_stages == base->n_stages &&
           slots * SHARE_OF_SLOTS >= before * (SHARE_OF_SLOTS - 1);
}

/* asked: it was given with --ctx. Then it is mentioned only where it is too little for agents. */
static void say_ctx(const struct sl_memory_plan *p, uint32_t trained, bool asked,
                    char out_note[SL_CTX_NOTE_BYTES]) {
    uint32_t ctx = p->config.ctx_tokens;
    const char *too_little = ctx < AGENTS_CTX ? "; coding agents need at least 16384" : "";
    if (asked && ctx >= AGENTS_CTX)
        return;
    if (trained > SL_MAX_CTX_TOKENS)
        trained = SL_MAX_CTX_TOKENS;
    if (!trained)
        snprintf(out_note, SL_CTX_NOTE_BYTES, "%u tokens a request (--ctx sets it)%s", ctx,
                 too_little);
    else if (asked)
        snprintf(out_note, SL_CTX_NOTE_BYTES, "%u tokens a request, as --ctx says%s", ctx,
                 too_little);
    else if (ctx >= trained)
        snprintf(out_note, SL_CTX_NOTE_BYTES,
                 "%u tokens a request, all that the model was made for (--ctx sets it)%s", ctx,
                 too_little);
    else
        snprintf(out_note, SL_CTX_NOTE_BYTES,
                 "%u tokens a request, of the %u that the model was made for: more would take too "
                 "much memory%s with %u session%s (--parallel, --ctx)%s",
                 ctx, trained, p->streaming ? " from its experts" : "", p->config.parallel,
                 p->config.parallel == 1 ? "" : "s", too_little);
}

/* Where none was asked for: the model's, or the largest power of two below it that costs little. */
static void choose_ctx(const struct sl_model *model, struct sl_engine_config *config,
                       struct sl_memory_plan *p, char out_device[64]) {
    uint32_t trained = model->hp.n_ctx_train, chosen = p->config.ctx_tokens;
    if (config->ctx_tokens || trained <= LEAST_CTX)
        return;
    if (trained > SL_MAX_CTX_TOKENS)
        trained = SL_MAX_CTX_TOKENS;
    uint64_t room = room_for_kv(p);
    for (uint32_t ctx = trained; ctx > LEAST_CTX && chosen == p->config.ctx_tokens;) {
        if (more_kv_bytes(p, ctx) <= room) {
            struct sl_memory_plan larger;
            struct sl_engine_config c = *config;
            struct sl_err unused;
            c.ctx_tokens = ctx;
            if (sl_engine_plan(model, &c, &larger, out_device, &unused) == SL_OK &&
                as_good(p, &larger)) {
                chosen = ctx;
                *p = larger;
                break;
            }
        }
        uint32_t lower = LEAST_CTX;
        while (2 * lower < ctx)
            lower *= 2;
        ctx = lower;
    }
    config->ctx_tokens = chosen;
}

enum sl_status sl_serve_plan(const struct sl_model *model, const struct sl_tokenizer *tok,
                             struct sl_engine_config *config, struct sl_server_config *server,
                             struct sl_process_memory *m, struct sl_memory_plan *out_plan,
                             char out_device[64], char out_note[SL_CTX_NOTE_BYTES],
                             struct sl_err *err) {
    out_note[0] = '\0';
    struct sl_server_config least = *server;
    sl_server_fit(&least, SL_SERVER_LEAST_BYTES);
    *m = (struct sl_process_memory){.n = 0};
    add_server(m, &least);
    sl_process_memory_add(m, "vocabulary", sl_vocab_trie_most_bytes(tok),
                          "%u tokens as a tree, for answers constrained by a grammar",
                          sl_tokenizer_n_vocab(tok));
    sl_process_memory_apply(m, config);
    SL_TRY(sl_engine_plan(model, config, out_plan, out_device, err));
    struct sl_plan_host here = of_this_machine(out_plan);
    config->ram_bytes = here.ram_budget_bytes;
    config->devices_logged = true;
    if (config->device)
        config->device = out_plan->config.device;   /* auto that has found no GPU, and said why */
    config->heat_file = out_plan->config.heat_file; /* NULL after a disk that does not answer */
    /* With the least server and context. */
    uint64_t least_bytes = out_plan->least_bytes, least_here_bytes = here.ram_least_bytes;
    bool asked = config->ctx_tokens != 0;
    choose_ctx(model, config, out_plan, out_device);
    say_ctx(out_plan, model->hp.n_ctx_train, asked, out_note);
    here = of_this_machine(out_plan);
    uint64_t used = out_plan->streaming ? here.ram_least_bytes : here.ram_total_bytes;
    uint64_t left = here.ram_budget_bytes > used ? here.ram_budget_bytes - used : 0;
    uint64_t more = left / (out_plan->streaming ? SHARE_STREAMING : SHARE_RESIDENT);
    sl_server_fit(server, SL_SERVER_LEAST_BYTES + more);
    uint64_t grown = sl_server_memory_bytes(server);
    m->bytes = m->bytes - m->rows[0].bytes;
    /* The same row again with the final figures; what was measured stays as it was. */
    struct sl_process_memory rows = {.n = 0};
    add_server(&rows, server);
    m->rows[0] = rows.rows[0];
    m->bytes += grown;
    config->process_bytes = m->bytes;
    enum sl_status status = sl_engine_plan(model, config, out_plan, out_device, err);
    out_plan->least_bytes = least_bytes;
    if (out_plan->n_hosts > 1)
        out_plan->hosts[0].ram_least_bytes = least_here_bytes;
    return status;
}
