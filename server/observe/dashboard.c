#include "server/observe/dashboard.h"

#include "common/clock.h"
#include "common/siphash.h"
#include "common/version.h"
#include "engine/observe/expert_map.h"
#include "server/exchange/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* mk/web.mk */
extern const struct sl_web_file sl_dashboard_files[];
extern const uint64_t sl_dashboard_n_files;

/* -------------------------------------------------------------------------------------- the page
 */

static const char *const page_headers[][2] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    /* The files are one program of several parts: never of two versions. What has not changed
     * costs no more than the question (ETag). */
    {"Cache-Control", "no-cache"},
};

/* Weak, for one tag stands for both encodings. */
static void make_tag(const struct sl_web_file *f, char out[24]) {
    struct sl_hash128 none = {0}; /* no secret: the files are public */
    snprintf(out, 24, "W/\"%016llx\"",
             (unsigned long long)sl_siphash128(none, f->data, f->bytes).lo);
}

/* Whether If-None-Match names this tag, or any. */
static bool is_known(const char *none_match, const char *tag) {
    if (!none_match)
        return false;
    none_match += strspn(none_match, " \t");
    return *none_match == '*' || strstr(none_match, tag + 2);
}

/* Whether Accept-Encoding has gzip, or anything, with a weight that is not 0. */
static bool takes_gzip(const char *accept) {
    while (accept && *accept) {
        accept += strspn(accept, " \t,");
        size_t n = strcspn(accept, " \t,;"), end = strcspn(accept, ",");
        bool named = (n == 4 && strncasecmp(accept, "gzip", 4) == 0) || (n == 1 && *accept == '*');
        const char *q = named ? memchr(accept, '=', end) : NULL;
        if (named && (!q || strtod(q + 1, NULL) > 0))
            return true;
        accept += end;
    }
    return false;
}

struct MHD_Response *sl_dashboard_response(const struct sl_exchange *ex, unsigned *out_status) {
    const struct sl_web_file *f = ex->file;
    char tag[24];
    make_tag(f, tag);
    bool known =
        is_known(MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "If-None-Match"), tag);
    bool gzip = !known && takes_gzip(MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND,
                                                                 "Accept-Encoding"));
    *out_status = known ? 304 : 200;
    /* libmicrohttpd takes no const; what is persistent it only reads. */
    struct MHD_Response *r = MHD_create_response_from_buffer(
        known  ? 0
        : gzip ? f->gzip_bytes
               : f->bytes,
        (void *)(uintptr_t)(gzip ? f->gzip : f->data), MHD_RESPMEM_PERSISTENT);
    for (size_t i = 0; r && i < sizeof page_headers / sizeof *page_headers; i++)
        MHD_add_response_header(r, page_headers[i][0], page_headers[i][1]);
    if (!r)
        return NULL;
    MHD_add_response_header(r, "ETag", tag);
    MHD_add_response_header(r, "Vary", "Accept-Encoding");
    if (gzip)
        MHD_add_response_header(r, "Content-Encoding", "gzip");
    return r;
}

const char *sl_dashboard_content_type(const struct sl_web_file *f) {
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *end = strrchr(f->name, '.');
    for (size_t i = 0; end && i < sizeof types / sizeof *types; i++)
        if (strcmp(end, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

void sl_dashboard_handle(struct sl_exchange *ex) {
    const char *name = ex->route->prefix ? ex->path + strlen(ex->route->path) : "index.html";
    for (uint64_t i = 0; i < sl_dashboard_n_files; i++)
        if (strcmp(sl_dashboard_files[i].name, name) == 0)
            ex->file = &sl_dashboard_files[i];
    if (ex->file)
        ex->content_type = sl_dashboard_content_type(ex->file);
    else
        sl_http_fail(&ex->error, 404, "unknown_url", NULL, "the dashboard has no file '%.100s'",
                     name);
}

/* ----------------------------------------------------------------------------------- the machine
 */

static const char *tier_name(enum sl_tier tier) {
    static const char *const names[] = {
        [SL_TIER_DISK] = "disk", [SL_TIER_HOST] = "host", [SL_TIER_DEVICE] = "device"};
    return names[tier];
}

void sl_devices_put(struct sl_buf *b, const struct sl_engine_info *info) {
    sl_buf_puts(b, ",\"devices\":[");
    for (uint32_t i = 0; i < info->n_stages; i++) {
        const struct sl_engine_stage *s = &info->stages[i];
        sl_buf_puts(b, i ? ",{\"name\":" : "{\"name\":");
        sl_buf_json_text(b, s->device);
        sl_buf_printf(b,
                      ",\"first_layer\":%u,\"layers\":%u,\"budget_bytes\":%llu,"
                      "\"total_bytes\":%llu,\"device_slots\":%u,\"host_slots\":%u}",
                      s->first_layer, s->n_layer, (unsigned long long)s->vram_budget_bytes,
                      (unsigned long long)s->vram_total_bytes, s->n_device_slots, s->n_slots);
    }
    sl_buf_puts(b, "]");
}

static void put_memory(struct sl_buf *b, const struct sl_engine_memory *m) {
    sl_buf_printf(b,
                  ",\"memory\":{\"budget_bytes\":%llu,\"total_bytes\":%llu,"
                  "\"device_budget_bytes\":%llu,\"device_total_bytes\":%llu,\"rows\":[",
                  (unsigned long long)m->budget_bytes, (unsigned long long)m->total_bytes,
                  (unsigned long long)m->vram_budget_bytes,
                  (unsigned long long)m->vram_total_bytes);
    for (uint32_t i = 0; i < m->n_rows; i++) {
        sl_buf_puts(b, i ? ",{\"what\":" : "{\"what\":");
        sl_buf_json_text(b, m->rows[i].what);
        sl_buf_puts(b, ",\"detail\":");
        sl_buf_json_text(b, m->rows[i].detail);
        sl_buf_printf(b, ",\"kind\":\"%s\",\"stage\":%u,\"bytes\":%llu}",
                      sl_memory_kind_name(m->rows[i].kind), m->rows[i].stage,
                      (unsigned long long)m->rows[i].bytes);
    }
    sl_buf_puts(b, "]}");
}

void sl_machine_handle(struct sl_exchange *ex) {
    const struct sl_served *v = ex->server->served;
    struct sl_engine_memory memory;
    sl_engine_memory(v->engine, &memory);
    const struct sl_expert_map_shape *x = sl_engine_expert_shape(v->engine);
    struct sl_buf *b = &ex->reply;
    sl_buf_puts(b, "{\"object\":\"sluice.machine\",\"version\":\"" SL_VERSION "\",\"model\":");
    sl_buf_json_text(b, v->names[0]);
    sl_buf_puts(b, ",\"architecture\":");
    sl_buf_json_text(b, v->arch);
    sl_buf_puts(b, ",\"device\":");
    sl_buf_json_text(b, v->info.device);
    sl_devices_put(b, &v->info);
    sl_buf_printf(b, ",\"model_bytes\":%llu,\"context_tokens\":%u",
                  (unsigned long long)v->size_bytes, v->info.ctx_tokens);
    sl_buf_printf(b,
                  ",\"experts\":{\"layers\":%u,\"per_layer\":%u,\"used\":%u,\"slots\":%u,"
                  "\"streamed\":%s,\"heat\":%s,\"computing\":\"%s\"}",
                  x->n_layer, x->n_expert, x->k, v->info.n_slots,
                  v->info.streaming ? "true" : "false", x->has_heat ? "true" : "false",
                  tier_name(x->computing));
    sl_buf_printf(b, ",\"sessions\":{\"parallel\":%u,\"queue\":%u,\"batch_tokens\":%u}",
                  v->info.parallel, v->info.queue_max, v->info.batch_tokens);
    put_memory(b, &memory);
    sl_buf_puts(b, "}");
}

/* ------------------------------------------------------------------------------------ the experts
 */

static const char heat_digit[SL_EXPERT_HEAT_STEPS + 1] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Two strings of a character an expert. */
static void put_layer(struct sl_buf *b, uint32_t layer, const uint8_t *cells, uint32_t n) {
    if (!sl_buf_reserve(b, 2 * (size_t)n + 64))
        return;
    sl_buf_printf(b, "{\"layer\":%u,\"tiers\":\"", layer);
    for (uint32_t i = 0; i < n; i++)
        b->ptr[b->len++] = (char)('0' + sl_expert_cell_tier(cells[i]));
    sl_buf_puts(b, "\",\"heat\":\"");
    for (uint32_t i = 0; i < n; i++)
        b->ptr[b->len++] = heat_digit[sl_expert_cell_heat(cells[i])];
    sl_buf_puts(b, "\"}");
}

void sl_experts_handle(struct sl_exchange *ex) {
    struct sl_engine *e = ex->server->served->engine;
    const struct sl_expert_map_shape *x = sl_engine_expert_shape(e);
    size_t n = (size_t)x->n_layer * x->n_expert;
    /* The cells and their text; clients that do not read the answer must not pile it up. */
    uint64_t bytes = 3 * n + (uint64_t)x->n_layer * 64;
    if (sl_exchange_hold_reply(ex, bytes) > ex->server->config.max_replies_bytes) {
        sl_exchange_hold_reply(ex, 0);
        sl_http_fail(&ex->error, 503, "overloaded", NULL,
                     "the answer does not fit beside those that wait for their clients to read; "
                     "try again later");
        return;
    }
    uint8_t *cells = malloc(n + 1);
    if (!cells) {
        sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
        return;
    }
    uint64_t seen_ns = sl_engine_expert_cells(e, cells), now_ns = sl_now_ns();
    struct sl_buf *b = &ex->reply;
    sl_buf_reserve(b, (size_t)bytes);
    sl_buf_printf(b, "{\"object\":\"sluice.experts\",\"age_s\":%.3f,\"layers\":[",
                  now_ns > seen_ns ? (double)(now_ns - seen_ns) * 1e-9 : 0.0);
    for (uint32_t i = 0; i < x->n_layer; i++) {
        if (i)
            sl_buf_puts(b, ",");
        put_layer(b, x->model_layer[i], cells + (size_t)i * x->n_expert, x->layer_n_expert[i]);
    }
    sl_buf_puts(b, "]}");
    free(cells);
}
