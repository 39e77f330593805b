/* The bodies, events and errors of Anthropic's Messages API.
 * Source: Anthropic API reference: the Message object, "Streaming messages", "Errors". */
#include "server/answer/json_scan.h"
#include "server/api/anthropic.h"
#include "server/api/renderers.h"
#include "server/exchange/exchange.h"

#include <string.h>
#include <time.h>

/* -------------------------------------------------------------------------------------- errors */

static bool is_own_path(const char *path) {
    static const char messages[] = "/v1/messages";
    size_t n = sizeof messages - 1;
    return strncmp(path, messages, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

bool sl_anthropic_client(const struct sl_exchange *ex) {
    return is_own_path(ex->path) ||
           (ex->conn &&
            MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "anthropic-version") != NULL);
}

static bool is_overload(const struct sl_http_error *e) {
    static const char *const codes[] = {"overloaded", "out_of_memory", "model_loading"};
    for (size_t i = 0; e->code && i < sizeof codes / sizeof *codes; i++)
        if (e->http_status == 503 && strcmp(e->code, codes[i]) == 0)
            return true;
    return false;
}

static const char *error_type(const struct sl_http_error *e) {
    switch (e->http_status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 504:
        return "timeout_error";
    default:
        break;
    }
    if (is_overload(e))
        return "overloaded_error";
    return e->http_status >= 500 ? "api_error" : "invalid_request_error";
}

unsigned sl_anthropic_error(struct sl_buf *b, const struct sl_http_error *e) {
    /* Agents look for these words, and shorten their history. */
    bool too_long = e->code && strcmp(e->code, "context_length_exceeded") == 0;
    struct sl_buf text = {0};
    sl_buf_puts(&text, too_long ? "prompt is too long: " : "");
    sl_buf_puts(&text, e->err.text);
    sl_buf_printf(b, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error_type(e));
    sl_buf_json(b, text.ptr ? text.ptr : "", text.len);
    sl_buf_puts(b, "}}");
    sl_buf_release(&text);
    return is_overload(e) ? 529 : e->http_status;
}

/* -------------------------------------------------------------------------------------- models */

void sl_anthropic_model(struct sl_buf *b, const char *id, int64_t created_s) {
    struct tm tm;
    time_t t = (time_t)created_s;
    char created[32] = "";
    if (gmtime_r(&t, &tm))
        strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &tm);
    sl_buf_puts(b, "{\"type\":\"model\",\"id\":");
    sl_buf_json_text(b, id);
    sl_buf_puts(b, ",\"display_name\":");
    sl_buf_json_text(b, id);
    sl_buf_printf(b, ",\"created_at\":\"%s\"}", created);
}

void sl_anthropic_models(struct sl_buf *b, char *const *names, uint32_t n, int64_t created_s) {
    sl_buf_puts(b, "{\"data\":[");
    for (uint32_t i = 0; i < n; i++) {
        sl_buf_puts(b, i ? "," : "");
        sl_anthropic_model(b, names[i], created_s);
    }
    sl_buf_puts(b, "],\"has_more\":false,\"first_id\":");
    sl_buf_json_text(b, names[0]);
    sl_buf_puts(b, ",\"last_id\":");
    sl_buf_json_text(b, names[n - 1]);
    sl_buf_puts(b, "}");
}

/* ------------------------------------------------------------------------------------- message */

static void put_text(struct sl_buf *b, const struct sl_buf *text) {
    sl_buf_json(b, text->ptr ? text->ptr : "", text->len);
}

/* Clients send it back with the thinking; nobody looks at it. */
static void put_signature(struct sl_buf *b, const struct sl_gen *g) {
    sl_buf_printf(b, "\"signature\":\"%s\"", g->id);
}

static void put_usage(struct sl_buf *b, const struct sl_gen *g) {
    struct sl_usage u;
    sl_gen_usage(g, &u);
    sl_buf_printf(b,
                  "{\"input_tokens\":%llu,\"cache_creation_input_tokens\":0,"
                  "\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu}",
                  (unsigned long long)(u.prompt - u.cached), (unsigned long long)u.cached,
                  (unsigned long long)u.predicted);
}

static void put_stop_reason(struct sl_buf *b, const struct sl_choice *c) {
    const char *reason = c->n_calls ? "tool_use" : "end_turn";
    const struct sl_stop_set *stop = &c->gen->params.stop;
    const struct sl_stop_string *s = NULL;
    if (c->end == SL_END_LENGTH) {
        reason = "max_tokens";
    } else if (c->end == SL_END_STOP_STRING && c->stop.which < c->gen->params.n_own_stop) {
        reason = "stop_sequence";
        s = &stop->strings[c->stop.which];
    }
    sl_buf_printf(b, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (s)
        sl_buf_json(b, s->text, s->len);
    else
        sl_buf_puts(b, "null");
}

static void put_message_head(struct sl_buf *b, const struct sl_gen *g) {
    sl_buf_printf(b, "{\"id\":\"%s%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
                  g->renderer->id_prefix, g->id);
    sl_buf_json_text(b, sl_gen_model(g));
}

static void put_call_head(struct sl_buf *b, const struct sl_choice *c, uint32_t call) {
    sl_buf_puts(b, "{\"type\":\"tool_use\",\"id\":\"");
    sl_call_id(b, c, "toolu_", call);
    sl_buf_puts(b, "\",\"name\":");
}

/* A call's arguments are an object here, not its text: what is none (the answer was cut off) is
 * shown as an empty one, as streams' clients do. Not parsed: digits stay as the model wrote them.
 */
static void put_input(struct sl_buf *b, const struct sl_buf *arguments) {
    struct sl_json_scan scan = {0};
    size_t taken = 0;
    bool object =
        arguments->len && arguments->ptr[0] == '{' &&
        sl_json_scan(&scan, arguments->ptr, arguments->len, &taken) == SL_JSON_SCAN_DONE &&
        taken == arguments->len;
    if (object)
        sl_buf_put(b, arguments->ptr, arguments->len);
    else
        sl_buf_puts(b, "{}");
}

static void put_block(struct sl_buf *b, const struct sl_choice *c, const struct sl_segment *g) {
    switch (g->kind) {
    case SL_PART_REASONING:
        sl_buf_puts(b, "{\"type\":\"thinking\",\"thinking\":");
        put_text(b, &g->text);
        sl_buf_puts(b, ",");
        put_signature(b, c->gen);
        break;
    case SL_PART_CALL:
        put_call_head(b, c, g->call);
        put_text(b, &g->name);
        sl_buf_puts(b, ",\"input\":");
        put_input(b, &g->text);
        break;
    default:
        sl_buf_puts(b, "{\"type\":\"text\",\"text\":");
        put_text(b, &g->text);
        break;
    }
    sl_buf_puts(b, "}");
}

static void whole(struct sl_buf *b, const struct sl_gen *g) {
    const struct sl_choice *c = &g->choices[0];
    put_message_head(b, g);
    sl_buf_puts(b, ",\"content\":[");
    for (uint32_t i = 0; i < c->segments.n; i++) {
        sl_buf_puts(b, i ? "," : "");
        put_block(b, c, &c->segments.list[i]);
    }
    sl_buf_puts(b, "],");
    put_stop_reason(b, c);
    sl_buf_puts(b, ",\"usage\":");
    put_usage(b, g);
    sl_buf_puts(b, "}");
}

/* -------------------------------------------------------------------------------------- stream */

static void put_event(struct sl_buf *b, const char *type) {
    sl_buf_printf(b, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void put_ping(struct sl_buf *b) {
    put_event(b, "ping");
    sl_buf_puts(b, "}\n\n");
}

static void begin(struct sl_buf *b, struct sl_gen *g) {
    put_event(b, "message_start");
    sl_buf_puts(b, ",\"message\":");
    put_message_head(b, g);
    sl_buf_puts(b, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    put_usage(b, g);
    sl_buf_puts(b, "}}\n\n");
    put_ping(b);
}

static void keepalive(struct sl_buf *b, struct sl_gen *g) {
    (void)g;
    put_ping(b);
}

static void block_event(struct sl_buf *b, const struct sl_choice *c, const char *type) {
    put_event(b, type);
    sl_buf_printf(b, ",\"index\":%u", c->render.block);
}

static void close_block(struct sl_buf *b, struct sl_choice *c) {
    if (!c->render.in_block)
        return;
    if (c->render.kind == SL_PART_REASONING) {
        block_event(b, c, "content_block_delta");
        sl_buf_puts(b, ",\"delta\":{\"type\":\"signature_delta\",");
        put_signature(b, c->gen);
        sl_buf_puts(b, "}}\n\n");
    }
    block_event(b, c, "content_block_stop");
    sl_buf_puts(b, "}\n\n");
    c->render.in_block = false;
    c->render.block++;
}

static void open_block(struct sl_buf *b, struct sl_choice *c, const struct sl_part *part) {
    close_block(b, c);
    c->render.in_block = true;
    c->render.kind = part->kind;
    block_event(b, c, "content_block_start");
    sl_buf_puts(b, ",\"content_block\":");
    if (part->kind == SL_PART_CALL) {
        put_call_head(b, c, part->call);
        sl_buf_json(b, part->text.ptr, part->text.len);
        sl_buf_puts(b, ",\"input\":{}}}\n\n");
    } else if (part->kind == SL_PART_REASONING) {
        sl_buf_puts(b, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n");
    } else {
        sl_buf_puts(b, "{\"type\":\"text\",\"text\":\"\"}}\n\n");
    }
}

static void put_part(struct sl_buf *b, struct sl_choice *c, const struct sl_part *part) {
    static const char *const deltas[] = {
        [SL_PART_CONTENT] = "text_delta\",\"text\":",
        [SL_PART_REASONING] = "thinking_delta\",\"thinking\":",
        [SL_PART_ARGUMENTS] = "input_json_delta\",\"partial_json\":",
    };
    if (part->kind == SL_PART_CALL) {
        open_block(b, c, part);
        return;
    }
    if (part->text.len == 0)
        return;
    if (part->kind != SL_PART_ARGUMENTS && (!c->render.in_block || c->render.kind != part->kind))
        open_block(b, c, part);
    block_event(b, c, "content_block_delta");
    sl_buf_printf(b, ",\"delta\":{\"type\":\"%s", deltas[part->kind]);
    sl_buf_json(b, part->text.ptr, part->text.len);
    sl_buf_puts(b, "}}\n\n");
}

static void finish(struct sl_buf *b, struct sl_choice *c) {
    close_block(b, c);
    put_event(b, "message_delta");
    sl_buf_puts(b, ",\"delta\":{");
    put_stop_reason(b, c);
    sl_buf_puts(b, "},\"usage\":");
    put_usage(b, c->gen);
    sl_buf_puts(b, "}\n\n");
}

static void end(struct sl_buf *b, struct sl_gen *g) {
    (void)g;
    put_event(b, "message_stop");
    sl_buf_puts(b, "}\n\n");
}

static void fail(struct sl_buf *b, struct sl_gen *g, const struct sl_http_error *e) {
    (void)g;
    sl_buf_puts(b, "event: error\ndata: ");
    sl_anthropic_error(b, e);
    sl_buf_puts(b, "\n\n");
}

const struct sl_renderer sl_messages_renderer = {
    .id_prefix = "msg_",
    .whole = whole,
    .begin = begin,
    .part = put_part,
    .finish = finish,
    .end = end,
    .fail = fail,
    .keepalive = keepalive,
};
