/* The table of endpoints, and the small ones. */
#include "server/api/anthropic.h"
#include "server/api/handlers.h"
#include "server/api/ollama.h"
#include "server/guard.h"
#include "server/http.h"
#include "server/observe/about.h"
#include "server/observe/dashboard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void handle_health(struct sl_exchange *ex) {
    struct sl_server *s = ex->server;
    enum sl_server_state state = (enum sl_server_state)atomic_load(&s->state);
    struct sl_buf *b = &ex->reply;
    struct sl_err why;
    bool failed = sl_server_failed(s, &why);
    if (atomic_load(&s->draining)) {
        ex->reply_status = 503;
        sl_buf_puts(b, "{\"status\":\"shutting down\"}");
    } else if (failed) {
        /* Public, but for the reason: it names files and devices. */
        ex->reply_status = 503;
        sl_buf_puts(b, "{\"status\":\"error\",\"error\":");
        sl_buf_json_text(b, sl_guard_has_key(ex) ? why.text
                                                 : "the server has failed; the reason is in its "
                                                   "log, and here for those who send a key");
        sl_buf_puts(b, "}");
    } else if (state == SL_SERVER_READY) {
        sl_buf_puts(b, "{\"status\":\"ok\"}");
    } else {
        uint64_t done = atomic_load(&s->done_bytes), total = atomic_load(&s->total_bytes);
        ex->reply_status = 503;
        sl_buf_printf(b, "{\"status\":\"loading model\",\"progress\":%.4f}",
                      total ? (double)done / (double)total : 0.0);
    }
}

static void put_model(struct sl_buf *b, const struct sl_served *v, const char *name) {
    sl_buf_puts(b, "{\"id\":");
    sl_buf_json_text(b, name);
    sl_buf_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"sluice\",",
                  (long long)v->created_s);
    sl_buf_printf(b,
                  "\"context_length\":%u,\"max_model_len\":%u,"
                  "\"meta\":{\"n_ctx\":%u,\"n_ctx_train\":%u,\"n_vocab\":%u,\"size\":%llu,"
                  "\"architecture\":",
                  v->info.ctx_tokens, v->info.ctx_tokens, v->info.ctx_tokens, v->n_ctx_train,
                  v->info.n_vocab, (unsigned long long)v->size_bytes);
    sl_buf_json_text(b, v->arch);
    sl_buf_puts(b, "}}");
}

static void handle_models(struct sl_exchange *ex) {
    const struct sl_served *v = ex->server->served;
    if (sl_anthropic_client(ex)) {
        sl_anthropic_models(&ex->reply, v->names, v->n_names, v->created_s);
        return;
    }
    sl_buf_puts(&ex->reply, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < v->n_names; i++) {
        sl_buf_puts(&ex->reply, i ? "," : "");
        put_model(&ex->reply, v, v->names[i]);
    }
    sl_buf_puts(&ex->reply, "]}");
}

static void handle_model(struct sl_exchange *ex) {
    const char *id = ex->path + strlen(ex->route->path);
    const struct sl_served *v = ex->server->served;
    if (!sl_served_has_name(v, id))
        sl_http_fail(&ex->error, 404, "model_not_found", "model",
                     "the model '%.100s' does not exist; this server has '%.100s'", id,
                     v->names[0]);
    else if (sl_anthropic_client(ex))
        sl_anthropic_model(&ex->reply, id, v->created_s);
    else
        put_model(&ex->reply, v, id);
}

#define INLINE SL_ROUTE_INLINE
#define JOB    SL_ROUTE_JOB
/*   method  path                    prefix kind  model  public quiet handler */
static const struct sl_route routes[] = {
    {"GET", "/", false, INLINE, false, true, true, sl_dashboard_handle},
    {"GET", "/dashboard/", true, INLINE, false, true, true, sl_dashboard_handle},
    {"GET", "/health", false, INLINE, false, true, true, handle_health},
    {"GET", "/v1/health", false, INLINE, false, true, true, handle_health},
    {"GET", "/metrics", false, INLINE, false, false, true, sl_metrics_handle},
    {"GET", "/v1/models", false, INLINE, true, false, true, handle_models},
    {"GET", "/v1/models/", true, INLINE, true, false, true, handle_model},
    {"GET", "/props", false, INLINE, true, false, true, sl_props_handle},
    {"GET", "/slots", false, INLINE, true, false, true, sl_slots_handle},
    {"GET", "/v1/sluice/machine", false, INLINE, true, false, true, sl_machine_handle},
    {"GET", "/v1/sluice/experts", false, INLINE, true, false, true, sl_experts_handle},
    {"POST", "/v1/chat/completions", false, JOB, true, false, false, sl_chat_handle},
    {"POST", "/v1/responses", false, JOB, true, false, false, sl_responses_handle},
    {"POST", "/v1/responses/input_tokens", false, JOB, true, false, false,
     sl_responses_count_handle},
    {"GET", "/v1/responses/", true, JOB, true, false, false, sl_response_get_handle},
    {"DELETE", "/v1/responses/", true, JOB, true, false, false, sl_response_delete_handle},
    {"POST", "/v1/chat/completions/input_tokens", false, JOB, true, false, false,
     sl_chat_count_handle},
    {"POST", "/v1/messages", false, JOB, true, false, false, sl_messages_handle},
    {"POST", "/v1/messages/count_tokens", false, JOB, true, false, false, sl_count_tokens_handle},
    {"POST", "/v1/completions", false, JOB, true, false, false, sl_completions_handle},
    {"POST", "/v1/embeddings", false, JOB, true, false, false, sl_embeddings_handle},
    {"POST", "/completion", false, JOB, true, false, false, sl_native_handle},
    {"POST", "/infill", false, JOB, true, false, false, sl_infill_handle},
    {"GET", "/api/version", false, INLINE, false, false, true, sl_ollama_version_handle},
    {"GET", "/api/tags", false, INLINE, true, false, true, sl_ollama_tags_handle},
    {"GET", "/api/ps", false, INLINE, true, false, true, sl_ollama_ps_handle},
    {"POST", "/api/show", false, JOB, true, false, true, sl_ollama_show_handle},
    {"POST", "/api/chat", false, JOB, true, false, false, sl_ollama_chat_handle},
    {"POST", "/api/generate", false, JOB, true, false, false, sl_ollama_generate_handle},
    {"POST", "/api/embed", false, JOB, true, false, false, sl_ollama_embed_handle},
    {"POST", "/api/embeddings", false, JOB, true, false, false, sl_ollama_embeddings_handle},
    {"POST", "/tokenize", false, JOB, true, false, false, sl_tokenize_handle},
    {"POST", "/detokenize", false, JOB, true, false, false, sl_detokenize_handle},
    {"POST", "/apply-template", false, JOB, true, false, false, sl_apply_template_handle},
};
#undef INLINE
#undef JOB
#define N_ROUTES (sizeof routes / sizeof *routes)
_Static_assert(N_ROUTES <= SL_MAX_ROUTES, "SL_MAX_ROUTES");

const struct sl_route *sl_routes(uint32_t *out_n) {
    *out_n = (uint32_t)N_ROUTES;
    return routes;
}

/* Without the prefix, as clients ask whose base URL lacks it. */
static const char *const aliases[][2] = {
    {"/chat/completions", "/v1/chat/completions"},
    {"/completions", "/v1/completions"},
    {"/responses", "/v1/responses"},
    {"/embeddings", "/v1/embeddings"},
    {"/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"},
    {"/responses/input_tokens", "/v1/responses/input_tokens"},
    {"/messages", "/v1/messages"},
    {"/messages/count_tokens", "/v1/messages/count_tokens"},
    {"/models", "/v1/models"},
};

char *sl_route_path(const char *path) {
    char *clean = strdup(path), *end = clean;
    if (!clean)
        return NULL;
    for (const char *p = path; *p; p++)
        if (*p != '/' || end == clean || end[-1] != '/')
            *end++ = *p;
    *end = '\0';
    /* The dashboard's files are no folders: links in them would lead elsewhere. */
    if (end - clean > 1 && end[-1] == '/' && strncmp(clean, "/dashboard/", 11) != 0)
        end[-1] = '\0';
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (strcmp(clean, aliases[i][0]) == 0) {
            free(clean);
            return strdup(aliases[i][1]);
        }
    }
    return clean;
}

const struct sl_route *sl_route_find(const char *method, const char *path, const char **out_allow,
                                     struct sl_http_error *e) {
    static const char *const allows[] = {
        [1] = "GET, HEAD, OPTIONS",
        [2] = "POST, OPTIONS",
        [3] = "GET, HEAD, POST, OPTIONS",
        [4] = "DELETE, OPTIONS",
        [5] = "GET, HEAD, DELETE, OPTIONS",
        [6] = "POST, DELETE, OPTIONS",
        [7] = "GET, HEAD, POST, DELETE, OPTIONS",
    };
    unsigned known = 0;
    const char *use = "";
    *out_allow = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        const struct sl_route *r = &routes[i];
        if (r->prefix ? strncmp(path, r->path, strlen(r->path)) != 0 : strcmp(path, r->path) != 0)
            continue;
        bool get = strcmp(r->method, "GET") == 0;
        if (strcmp(method, r->method) == 0 || (get && strcmp(method, "HEAD") == 0))
            return r;
        known |= get ? 1u : strcmp(r->method, "POST") == 0 ? 2u : 4u;
        use = r->method;
    }
    if (!known) {
        sl_http_fail(e, 404, "unknown_url", NULL, "there is no endpoint %.16s %.100s", method,
                     path);
        return NULL;
    }
    *out_allow = allows[known];
    if (strcmp(method, "OPTIONS") != 0)
        sl_http_fail(e, 405, "method_not_allowed", NULL, "%.16s is not allowed on %.100s; use %s",
                     method, path, (known & (known - 1)) == 0 ? use : allows[known]);
    return NULL;
}
