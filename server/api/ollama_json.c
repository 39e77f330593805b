/* The bodies, lines and errors of Ollama's API: a stream is one JSON object a line.
 * Source: Ollama's API reference (docs/api.md). */
#include "server/answer/json_scan.h"
#include "server/api/ollama.h"
#include "server/api/renderers.h"
#include "server/exchange/exchange.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

bool sl_ollama_client(const struct sl_exchange *ex) {
    return strncmp(ex->path, "/api/", 5) == 0;
}

void sl_ollama_error(struct sl_buf *b, const struct sl_http_error *e) {
    sl_buf_puts(b, "{\"error\":");
    sl_buf_json_text(b, e->err.text);
    sl_buf_puts(b, "}");
}

/* -------------------------------------------------------------------------------------- served */

/* "2026-11-23T13:10:00.123456789Z" */
static void put_time(struct sl_buf *b, int64_t s, long ns) {
    struct tm tm;
    time_t t = (time_t)s;
    char text[32] = "1970-01-01T00:00:00";
    if (gmtime_r(&t, &tm))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    sl_buf_printf(b, "\"%s.%09ldZ\"", text, ns);
}

void sl_ollama_head(struct sl_buf *b, const char *model) {
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    sl_buf_puts(b, "{\"model\":");
    sl_buf_json_text(b, model);
    sl_buf_puts(b, ",\"created_at\":");
    put_time(b, (int64_t)now.tv_sec, now.tv_nsec);
}

/* "details":{...} */
static void put_details(struct sl_buf *b, const struct sl_served *v) {
    sl_buf_puts(b, "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":");
    sl_buf_json_text(b, v->arch);
    sl_buf_puts(b, ",\"families\":[");
    sl_buf_json_text(b, v->arch);
    sl_buf_puts(b, "],\"parameter_size\":\"\",\"quantization_level\":\"\"}");
}

/* {"name":...,"digest":...,"details":{...}, without the closing brace. The digest stands for the
 * model's fingerprint: clients compare it and show its beginning. */
static void put_model(struct sl_buf *b, const struct sl_served *v, const char *name) {
    sl_buf_puts(b, "{\"name\":");
    sl_buf_json_text(b, name);
    sl_buf_puts(b, ",\"model\":");
    sl_buf_json_text(b, name);
    sl_buf_printf(b, ",\"size\":%llu,\"digest\":\"%s%054d\",", (unsigned long long)v->size_bytes,
                  v->fingerprint + 3, 0);
    put_details(b, v);
}

void sl_ollama_version_handle(struct sl_exchange *ex) {
    sl_buf_puts(&ex->reply, "{\"version\":\"" SL_OLLAMA_VERSION "\"}");
}

void sl_ollama_tags_handle(struct sl_exchange *ex) {
    const struct sl_served *v = ex->server->served;
    sl_buf_puts(&ex->reply, "{\"models\":[");
    for (uint32_t i = 0; i < v->n_names; i++) {
        sl_buf_puts(&ex->reply, i ? "," : "");
        put_model(&ex->reply, v, v->names[i]);
        sl_buf_puts(&ex->reply, ",\"modified_at\":");
        put_time(&ex->reply, v->created_s, 0);
        sl_buf_puts(&ex->reply, "}");
    }
    sl_buf_puts(&ex->reply, "]}");
}

void sl_ollama_ps_handle(struct sl_exchange *ex) {
    const struct sl_served *v = ex->server->served;
    uint64_t vram_bytes = 0;
    for (uint32_t i = 0; i < v->info.n_stages; i++)
        vram_bytes += v->info.stages[i].vram_budget_bytes;
    sl_buf_puts(&ex->reply, "{\"models\":[");
    put_model(&ex->reply, v, v->names[0]);
    sl_buf_printf(&ex->reply, ",\"size_vram\":%llu,\"context_length\":%u,\"expires_at\":",
                  (unsigned long long)vram_bytes, v->info.ctx_tokens);
    put_time(&ex->reply, 253402300799, 0); /* the last second that the form can say: never */
    sl_buf_puts(&ex->reply, "}]}");
}

void sl_ollama_put_show(struct sl_exchange *ex) {
    const struct sl_served *v = ex->server->served;
    struct sl_buf *b = &ex->reply, key = {0};
    sl_buf_puts(b, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":");
    sl_buf_json_text(b, v->chat_template_text);
    sl_buf_puts(b, ",");
    put_details(b, v);
    sl_buf_puts(b, ",\"model_info\":{\"general.architecture\":");
    sl_buf_json_text(b, v->arch);
    /* Clients cut conversations to this: what is served, not what the model was made for. */
    sl_buf_printf(&key, "%s.context_length", v->arch);
    sl_buf_puts(b, ",");
    sl_buf_json(b, key.ptr ? key.ptr : "", key.len);
    sl_buf_printf(b, ":%u},\"capabilities\":[\"completion\",\"tools\"", v->info.ctx_tokens);
    bool fills = true;
    for (uint32_t mark = 0; mark < SL_FIM_NEEDED; mark++)
        fills = fills && sl_tokenizer_fim(v->tok, (enum sl_fim)mark) != SL_NO_TOKEN;
    sl_buf_puts(b, fills ? ",\"insert\"" : "");
    sl_buf_puts(b, v->thinks ? ",\"thinking\"" : "");
    sl_buf_puts(b, "],\"modified_at\":");
    put_time(b, v->created_s, 0);
    sl_buf_puts(b, "}");
    b->failed = b->failed || key.failed;
    sl_buf_release(&key);
}

void sl_ollama_loaded(struct sl_exchange *ex, bool chat, const char *reason) {
    struct sl_buf *b = &ex->reply;
    const struct sl_served *v = ex->server->served;
    sl_ollama_head(b, ex->model_name ? ex->model_name : v->names[0]);
    sl_buf_puts(b, chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
                        : ",\"response\":\"\"");
    sl_buf_printf(b, ",\"done_reason\":\"%s\",\"done\":true}", reason);
}

/* ------------------------------------------------------------------------------------- answers */

static bool is_chat(const struct sl_gen *g) {
    return g->api == SL_API_OLLAMA_CHAT;
}

static void put_joined(struct sl_buf *b, const struct sl_choice *c, enum sl_part_kind kind) {
    struct sl_buf text = {0};
    sl_segments_join(&c->segments, kind, &text);
    sl_buf_json(b, text.ptr ? text.ptr : "", text.len);
    b->failed = b->failed || text.failed;
    sl_buf_release(&text);
}

/* Arguments are an object here, not its text: what is none (the answer was cut off) is an empty
 * one. In a stream it must keep to its line: line breaks between values, where only white space can
 * be, become spaces, and those in strings are escaped. */
static void put_call(struct sl_buf *b, const struct sl_choice *c, const struct sl_segment *g) {
    struct sl_json_scan scan = {0};
    struct sl_buf json = {0};
    size_t taken = 0;
    const struct sl_buf *a = &g->text;
    bool object = a->len && a->ptr[0] == '{' &&
                  sl_json_scan_put(&scan, a->ptr, a->len, &taken, &json) == SL_JSON_SCAN_DONE &&
                  taken == a->len && !json.failed;
    for (size_t i = 0; object && i < json.len; i++)
        if (json.ptr[i] == '\n' || json.ptr[i] == '\r')
            json.ptr[i] = ' ';
    sl_buf_puts(b, "{\"id\":\"");
    sl_call_id(b, c, "call_", g->call);
    sl_buf_printf(b, "\",\"function\":{\"index\":%u,\"name\":", g->call);
    sl_buf_json(b, g->name.ptr ? g->name.ptr : "", g->name.len);
    sl_buf_puts(b, ",\"arguments\":");
    sl_buf_put(b, object ? json.ptr : "{}", object ? json.len : 2);
    sl_buf_puts(b, "}}");
    b->failed = b->failed || json.failed;
    sl_buf_release(&json);
}

/* Clients divide by it. What has not begun has no length. */
static unsigned long long duration_ns(double ns) {
    return ns >= 1 && ns < 9e18 ? (unsigned long long)ns : 1;
}

/* The members of an answer's end. */
static void put_end(struct sl_buf *b, const struct sl_gen *g) {
    const struct sl_choice *c = &g->choices[0];
    struct sl_choice_times t;
    struct sl_usage u;
    sl_choice_times(c, &t);
    sl_gen_usage(g, &u);
    sl_buf_printf(b,
                  ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%llu,"
                  "\"load_duration\":0,\"prompt_eval_count\":%llu,\"prompt_eval_duration\":%llu,"
                  "\"eval_count\":%llu,\"eval_duration\":%llu}",
                  c->end == SL_END_LENGTH ? "length" : "stop",
                  (unsigned long long)(sl_now_ns() - g->ex->started_ns),
                  (unsigned long long)u.prompt, duration_ns(t.prefill_ns),
                  (unsigned long long)u.predicted, duration_ns(t.decode_ns));
}

static bool has_kind(const struct sl_choice *c, enum sl_part_kind kind) {
    for (uint32_t i = 0; i < c->segments.n; i++)
        if (c->segments.list[i].kind == kind)
            return true;
    return false;
}

static void whole(struct sl_buf *b, const struct sl_gen *g) {
    const struct sl_choice *c = &g->choices[0];
    sl_ollama_head(b, sl_gen_model(g));
    sl_buf_puts(b, is_chat(g) ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                              : ",\"response\":");
    put_joined(b, c, SL_PART_CONTENT);
    if (has_kind(c, SL_PART_REASONING)) {
        sl_buf_puts(b, ",\"thinking\":");
        put_joined(b, c, SL_PART_REASONING);
    }
    const char *separator = ",\"tool_calls\":[";
    for (uint32_t i = 0; i < c->segments.n; i++) {
        if (c->segments.list[i].kind != SL_PART_CALL)
            continue;
        sl_buf_puts(b, separator);
        put_call(b, c, &c->segments.list[i]);
        separator = ",";
    }
    sl_buf_puts(b, c->n_calls ? "]" : "");
    sl_buf_puts(b, is_chat(g) ? "}" : "");
    put_end(b, g);
}

/* -------------------------------------------------------------------------------------- stream */

/* A line with some content or reasoning; kind CONTENT and no text: nothing but a sign of life. */
static void put_line(struct sl_buf *b, const struct sl_gen *g, enum sl_part_kind kind,
                     struct sl_str text) {
    bool content = kind == SL_PART_CONTENT;
    sl_ollama_head(b, sl_gen_model(g));
    sl_buf_puts(b, is_chat(g) ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                              : ",\"response\":");
    sl_buf_json(b, content ? text.ptr : "", content ? text.len : 0);
    if (!content) {
        sl_buf_puts(b, ",\"thinking\":");
        sl_buf_json(b, text.ptr, text.len);
    }
    sl_buf_puts(b, is_chat(g) ? "},\"done\":false}\n" : ",\"done\":false}\n");
}

/* A call is shown when it is whole, in a line of its own. */
static void close_call(struct sl_buf *b, struct sl_choice *c) {
    if (!c->render.in_block)
        return;
    c->render.in_block = false;
    sl_ollama_head(b, sl_gen_model(c->gen));
    sl_buf_puts(b, ",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[");
    put_call(b, c, &c->segments.list[c->render.block]);
    sl_buf_puts(b, "]},\"done\":false}\n");
}

/* The part is in the last segment already. */
static void put_part(struct sl_buf *b, struct sl_choice *c, const struct sl_part *part) {
    if (part->kind == SL_PART_ARGUMENTS)
        return;
    close_call(b, c);
    if (part->kind == SL_PART_CALL)
        c->render = (struct sl_render_state){.in_block = true, .block = c->segments.n - 1};
    else if (part->text.len)
        put_line(b, c->gen, part->kind, part->text);
}

static void finish(struct sl_buf *b, struct sl_choice *c) {
    close_call(b, c);
}

static void end(struct sl_buf *b, struct sl_gen *g) {
    sl_ollama_head(b, sl_gen_model(g));
    sl_buf_puts(b, is_chat(g) ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
                              : ",\"response\":\"\"");
    put_end(b, g);
    sl_buf_puts(b, "\n");
}

static void fail(struct sl_buf *b, struct sl_gen *g, const struct sl_http_error *e) {
    (void)g;
    sl_ollama_error(b, e);
    sl_buf_puts(b, "\n");
}

static void keepalive(struct sl_buf *b, struct sl_gen *g) {
    put_line(b, g, SL_PART_CONTENT, (struct sl_str){"", 0});
}

const struct sl_renderer sl_ollama_renderer = {
    .id_prefix = "",
    .lines = true,
    .keeps_parts = true,
    .whole = whole,
    .part = put_part,
    .finish = finish,
    .end = end,
    .fail = fail,
    .keepalive = keepalive,
};
