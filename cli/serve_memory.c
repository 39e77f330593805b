#include "cli/serve_memory.h"

#include "model/grammar/vocab_trie.h"
#include "server/exchange/memory.h"

#include <string.h>

/* Of what the least plan leaves, one part in so many goes to the server. */
#define SHARE_STREAMING 32u
#define SHARE_RESIDENT  2u

static void add_server(struct sl_process_memory *m, const struct sl_server_config *s) {
    sl_process_memory_add(
        m, "server", sl_server_memory_bytes(s),
        "bodies to %.1f MiB, %u connections, answers %.0f MiB, %u workers of "
        "%.0f MiB, kept responses %.0f MiB",
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

enum sl_status sl_serve_plan(const struct sl_model *model, const struct sl_tokenizer *tok,
                             struct sl_engine_config *config, struct sl_server_config *server,
                             struct sl_process_memory *m, struct sl_memory_plan *out_plan,
                             char out_device[64], struct sl_err *err) {
    struct sl_server_config least = *server;
    sl_server_fit(&least, SL_SERVER_LEAST_BYTES);
    *m = (struct sl_process_memory){.n = 0};
    add_server(m, &least);
    sl_process_memory_add(m, "vocabulary", sl_vocab_trie_most_bytes(tok),
                          "%u tokens as a tree, for answers that a grammar binds",
                          sl_tokenizer_n_vocab(tok));
    sl_process_memory_apply(m, config);
    enum sl_status status = sl_engine_plan(model, config, out_plan, out_device, err);
    if (status != SL_OK)
        return status;
    const struct sl_plan_host here = of_this_machine(out_plan);
    config->ram_bytes = here.ram_budget_bytes;
    config->devices_logged = true;
    if (config->device)
        config->device = out_plan->config.device;   /* auto that has found no GPU, and said why */
    config->heat_file = out_plan->config.heat_file; /* NULL after a disk that does not answer */
    uint64_t least_bytes = out_plan->least_bytes;   /* with the least server */
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
    status = sl_engine_plan(model, config, out_plan, out_device, err);
    out_plan->least_bytes = least_bytes;
    return status;
}
