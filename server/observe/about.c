/* What the server says of itself: /props, /slots, /metrics. */
#include "server/observe/about.h"
#include "common/histograms.h"
#include "common/metrics.h"
#include "common/version.h"
#include "server/observe/dashboard.h"
#include "server/observe/process_metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* --------------------------------------------------------------------------------------- props */

/* What a request gets that says nothing (sl_params_read). */
static void put_defaults(struct sl_buf *b, const struct sl_served *v) {
    const struct sl_sampling *d = &sl_sampling_default;
    sl_buf_printf(b,
                  "{\"n_ctx\":%u,\"params\":{\"n\":1,\"stream\":false,\"max_tokens\":null,"
                  "\"temperature\":%g,\"top_p\":%g,\"min_p\":%g,\"typical_p\":%g,\"top_k\":%u,"
                  "\"repeat_penalty\":%g,\"repeat_last_n\":%u,\"presence_penalty\":%g,"
                  "\"frequency_penalty\":%g}}",
                  v->info.ctx_tokens, (double)d->temperature, (double)d->top_p, (double)d->min_p,
                  (double)d->typical_p, d->top_k, (double)d->repeat_penalty, d->repeat_last_n,
                  (double)d->presence_penalty, (double)d->frequency_penalty);
}

static void put_text(struct sl_buf *b, const char *name, const char *text) {
    sl_buf_printf(b, ",\"%s\":", name);
    sl_buf_json_text(b, text);
}

void sl_props_handle(struct sl_exchange *ex) {
    const struct sl_served *v = ex->server->served;
    struct sl_buf *b = &ex->reply;
    sl_buf_puts(b, "{\"default_generation_settings\":");
    put_defaults(b, v);
    put_text(b, "model_alias", v->names[0]);
    put_text(b, "model_path", v->path);
    put_text(b, "architecture", v->arch);
    put_text(b, "device", v->info.device);
    sl_devices_put(b, &v->info);
    put_text(b, "build_info", "sluice " SL_VERSION);
    sl_buf_printf(
        b,
        ",\"total_slots\":%u,\"n_ctx_train\":%u,\"batch_tokens\":%u,\"weight_bytes\":%llu,"
        "\"kv_bytes\":%llu,\"activation_bytes\":%llu,\"experts_streamed\":%s,"
        "\"n_experts\":%u,\"n_expert_slots\":%u",
        v->info.parallel, v->n_ctx_train, v->info.batch_tokens,
        (unsigned long long)v->info.weight_bytes, (unsigned long long)v->info.kv_bytes,
        (unsigned long long)v->info.activation_bytes, v->info.streaming ? "true" : "false",
        v->info.n_experts, v->info.n_slots);
    put_text(b, "tokenizer", sl_tokenizer_kind(v->tok));
    put_text(b, "bos_token", v->chat.bos_text);
    put_text(b, "eos_token", v->chat.eos_text);
    put_text(b, "chat_template", v->chat_template_text);
    sl_buf_puts(b, "}");
}

/* --------------------------------------------------------------------------------------- slots */

static double per_second(uint64_t n, uint64_t ns) {
    return ns ? (double)n * 1e9 / (double)ns : 0;
}

static void put_slot(struct sl_buf *b, uint32_t id, uint32_t n_ctx, const struct sl_slot_info *s) {
    static const char *const states[] = {"idle", "prefill", "decode", "parked"};
    sl_buf_printf(b, "%s{\"id\":%u,\"n_ctx\":%u,\"state\":\"%s\",\"is_processing\":%s",
                  id ? "," : "", id, n_ctx, states[s->state],
                  s->state == SL_SLOT_FREE ? "false" : "true");
    if (s->state != SL_SLOT_FREE)
        sl_buf_printf(b,
                      ",\"id_task\":%llu,\"n_prompt_tokens\":%u,\"n_prompt_tokens_processed\":%u,"
                      "\"n_predicted\":%u,\"n_remain\":%u,\"queue_ms\":%.3f,\"prompt_ms\":%.3f,"
                      "\"predicted_ms\":%.3f,\"prompt_per_second\":%.2f,"
                      "\"predicted_per_second\":%.2f",
                      (unsigned long long)s->task, s->n_prompt, s->n_prompt_done, s->n_predicted,
                      s->n_max - s->n_prompt - s->n_predicted, (double)s->queue_ns * 1e-6,
                      (double)s->prefill_ns * 1e-6, (double)s->decode_ns * 1e-6,
                      per_second(s->n_prompt_done, s->prefill_ns),
                      per_second(s->n_predicted ? s->n_predicted - 1 : 0, s->decode_ns));
    sl_buf_puts(b, "}");
}

void sl_slots_handle(struct sl_exchange *ex) {
    const struct sl_served *v = ex->server->served;
    struct sl_slot_info *slots = calloc(v->info.parallel, sizeof *slots);
    if (!slots) {
        sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
        return;
    }
    uint32_t n = sl_engine_slots(v->engine, slots, v->info.parallel);
    sl_buf_puts(&ex->reply, "[");
    for (uint32_t i = 0; i < n && i < v->info.parallel; i++)
        put_slot(&ex->reply, i, v->info.ctx_tokens, &slots[i]);
    sl_buf_puts(&ex->reply, "]");
    free(slots);
}

/* ------------------------------------------------------------------------------------- metrics */

/* Those that this server gives; others count as the last, 0. */
static const uint16_t statuses[] = {200, 204, 304, 400, 401, 403, 404, 405, 413,
                                    421, 429, 500, 503, 504, 505, 529, 0};
#define N_STATUSES (sizeof statuses / sizeof *statuses)
static _Atomic uint64_t answers[SL_MAX_ROUTES + 1][N_STATUSES];

/* The last is that of requests without a route. */
static uint32_t route_index(const struct sl_server *s, const struct sl_route *route) {
    return route ? (uint32_t)(route - s->routes) : s->n_routes;
}

void sl_answers_count(const struct sl_server *s, const struct sl_route *route, unsigned status) {
    size_t i = 0;
    while (i < N_STATUSES - 1 && statuses[i] != status)
        i++;
    atomic_fetch_add_explicit(&answers[route_index(s, route)][i], 1, memory_order_relaxed);
}

static void write_answers(FILE *out, const struct sl_server *s) {
    fprintf(out, "# HELP sluice_http_requests_total HTTP requests answered, by endpoint (other: no "
                 "endpoint) and status\n# TYPE sluice_http_requests_total counter\n");
    for (uint32_t r = 0; r <= s->n_routes; r++) {
        const struct sl_route *route = r < s->n_routes ? &s->routes[r] : NULL;
        for (size_t i = 0; i < N_STATUSES; i++) {
            uint64_t n = atomic_load_explicit(&answers[r][i], memory_order_relaxed);
            if (!n)
                continue;
            fprintf(out, "sluice_http_requests_total{endpoint=\"%s%s\",status=\"",
                    route ? route->path : "other", route && route->prefix ? "*" : "");
            if (statuses[i])
                fprintf(out, "%u\"} %" PRIu64 "\n", statuses[i], n);
            else
                fprintf(out, "other\"} %" PRIu64 "\n", n);
        }
    }
}

/* So that who looks at metrics alone sees what /health says, and what the server keeps. */
static void write_state(FILE *out, const struct sl_server *s) {
    struct sl_err why;
    sl_gauge_write(out, "sluice_failed",
                   "1: no request is answered until the server is restarted; /health says why",
                   sl_server_failed(s, &why));
    uint64_t n = 0, bytes = 0;
    if (s->responses)
        sl_response_store_use(s->responses, &n, &bytes);
    sl_gauge_write(out, "sluice_stored_responses", "Stored responses that clients can continue", n);
    sl_gauge_write(out, "sluice_stored_response_bytes", "Memory used by stored responses", bytes);
}

/* Once the model is loaded. */
static void write_stages(FILE *out, const struct sl_server *s) {
    struct sl_stage_shown stages[SL_MAX_STAGES];
    if ((enum sl_server_state)atomic_load(&s->state) != SL_SERVER_READY)
        return;
    const struct sl_engine_info *info = &s->served->info;
    for (uint32_t i = 0; i < info->n_stages; i++)
        stages[i] = (struct sl_stage_shown){i + 1, info->stages[i].device,
                                            sl_engine_stage_metrics(s->served->engine, i)};
    sl_stage_metrics_write(out, stages, info->n_stages);
}

/* One figure of each worker. */
static void write_worker_metric(FILE *out, const struct sl_remote_look *workers, uint32_t n,
                                const char *name, const char *type, const char *help,
                                double (*of)(const struct sl_remote_look *w)) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, "%s{worker=\"%s\"} %.9g\n", name, workers[i].name, of(&workers[i]));
}

static double is_there(const struct sl_remote_look *w) {
    return w->there;
}
static double times_lost(const struct sl_remote_look *w) {
    return (double)w->n_lost;
}
static double sent(const struct sl_remote_look *w) {
    return (double)w->sent_bytes;
}
static double received(const struct sl_remote_look *w) {
    return (double)w->received_bytes;
}
static double queued(const struct sl_remote_look *w) {
    return (double)w->queued_bytes;
}
static double calls(const struct sl_remote_look *w) {
    return (double)w->n_calls;
}
static double waited(const struct sl_remote_look *w) {
    return (double)w->waited_ns * 1e-9;
}
static double round_trip(const struct sl_remote_look *w) {
    return (double)w->round_trip_ns * 1e-9;
}

/* Addresses are the operator's words: no quote in them has passed the resolver. */
static void write_workers(FILE *out, const struct sl_server *s) {
    struct sl_remote_look w[SL_MAX_STAGES];
    if ((enum sl_server_state)atomic_load(&s->state) != SL_SERVER_READY)
        return;
    uint32_t n = sl_engine_workers(s->served->engine, w);
    if (!n)
        return;
    write_worker_metric(out, w, n, "sluice_worker_up", "gauge", "Whether a worker is connected",
                        is_there);
    write_worker_metric(out, w, n, "sluice_worker_losses_total", "counter",
                        "How often the connection to a worker was lost", times_lost);
    write_worker_metric(out, w, n, "sluice_worker_sent_bytes", "gauge",
                        "Bytes sent over the current link to a worker", sent);
    write_worker_metric(out, w, n, "sluice_worker_received_bytes", "gauge",
                        "Bytes received over the current link from a worker", received);
    write_worker_metric(out, w, n, "sluice_worker_queued_bytes", "gauge",
                        "Bytes queued for a worker", queued);
    write_worker_metric(out, w, n, "sluice_worker_calls_total", "counter",
                        "Requests to the stages of a worker", calls);
    write_worker_metric(out, w, n, "sluice_worker_wait_seconds_total", "counter",
                        "Time in which answers of a worker's stages were waited for", waited);
    write_worker_metric(out, w, n, "sluice_worker_round_trip_seconds", "gauge",
                        "Round-trip time of a worker's last heartbeat", round_trip);
}

void sl_metrics_handle(struct sl_exchange *ex) {
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (f) {
        write_state(f, ex->server);
        write_answers(f, ex->server);
        sl_metrics_write(f);
        write_stages(f, ex->server);
        write_workers(f, ex->server);
        sl_histograms_write(f);
        sl_process_metrics_write(f, ex->server->started_s);
        fclose(f);
        sl_buf_put(&ex->reply, text, len);
        free(text);
    } else {
        sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    }
    ex->content_type = "text/plain; version=0.0.4; charset=utf-8";
}
