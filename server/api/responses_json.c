/* The bodies and events of OpenAI's Responses API.
 *
 * An output item is a segment of the answer, and has its number. Events repeat text when an item
 * ends and the whole response at the end, as the API does, so streams keep their segments.
 * Source: OpenAI API reference: the response object, output items, streaming events. */
#include "server/api/openai_json.h"
#include "server/api/responses.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ------------------------------------------------------------------------------ of the request */

static int dump_to_buf(const char *text, size_t len, void *buf) {
    struct sl_buf *b = buf;
    sl_buf_put(b, text, len);
    return b->failed ? -1 : 0;
}

bool sl_responses_about(const json_t *body, char **out_members) {
    static const struct {
        const char *name, *otherwise;
    } members[] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"max_tool_calls", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"previous_response_id", "null"},
        {"prompt_cache_key", "null"},
        {"reasoning", "{\"effort\":null,\"summary\":null}"},
        {"safety_identifier", "null"},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"tool_choice", "\"auto\""},
        {"tools", "[]"},
        {"top_logprobs", "0"},
        {"truncation", "\"disabled\""},
        {"user", "null"},
    };
    struct sl_buf b = {0};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *v = json_object_get(body, members[i].name);
        sl_buf_printf(&b, ",\"%s\":", members[i].name);
        if (!v || json_is_null(v))
            sl_buf_puts(&b, members[i].otherwise);
        else if (json_dump_callback(v, dump_to_buf, &b, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
            b.failed = true;
    }
    sl_buf_put(&b, "", 1);
    if (b.failed) {
        sl_buf_release(&b);
        return false;
    }
    *out_members = b.ptr;
    return true;
}

/* --------------------------------------------------------------------------------------- items */

static void put_text(struct sl_buf *b, const struct sl_buf *text) {
    sl_buf_json(b, text->ptr ? text->ptr : "", text->len);
}

static void put_item_id(struct sl_buf *b, const struct sl_choice *c, uint32_t i) {
    static const char *const prefixes[] = {
        [SL_PART_CONTENT] = "msg", [SL_PART_REASONING] = "rs", [SL_PART_CALL] = "fc"};
    sl_buf_printf(b, "\"%s_%s%02x\"", prefixes[c->segments.list[i].kind], c->gen->id, i);
}

static void put_logprobs(struct sl_buf *b, const struct sl_choice *c, uint32_t first,
                         uint32_t end) {
    sl_buf_puts(b, "\"logprobs\":");
    sl_openai_logprobs(b, c, first, end);
}

/* The one part of a message or of reasoning; begins: without what it will hold. */
static void put_part(struct sl_buf *b, const struct sl_choice *c, const struct sl_segment *g,
                     bool begins) {
    if (g->kind == SL_PART_CONTENT) {
        sl_buf_puts(b, "{\"type\":\"output_text\",\"annotations\":[],");
        put_logprobs(b, c, g->first_logprob, begins ? g->first_logprob : g->end_logprob);
        sl_buf_puts(b, ",\"text\":");
    } else {
        sl_buf_puts(b, "{\"type\":\"reasoning_text\",\"text\":");
    }
    if (begins)
        sl_buf_puts(b, "\"\"");
    else
        put_text(b, &g->text);
    sl_buf_puts(b, "}");
}

static void put_carried(struct sl_buf *b, const struct sl_buf *text) {
    struct sl_buf carried = {0};
    sl_buf_puts(&carried, SL_CARRIED_REASONING);
    sl_buf_put(&carried, text->ptr ? text->ptr : "", text->len);
    sl_buf_puts(b, ",\"encrypted_content\":");
    put_text(b, &carried);
    b->failed = b->failed || carried.failed;
    sl_buf_release(&carried);
}

/* status "in_progress": the item as it begins, without what it will hold. */
static void put_item(struct sl_buf *b, const struct sl_choice *c, uint32_t i, const char *status) {
    const struct sl_segment *g = &c->segments.list[i];
    bool begins = strcmp(status, "in_progress") == 0;
    sl_buf_puts(b, "{\"id\":");
    put_item_id(b, c, i);
    switch (g->kind) {
    case SL_PART_REASONING:
        sl_buf_puts(b, ",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
        if (!begins)
            put_part(b, c, g, false);
        sl_buf_puts(b, "]");
        if (!begins && c->gen->params.about.carry_reasoning)
            put_carried(b, &g->text);
        break;
    case SL_PART_CALL:
        sl_buf_puts(b, ",\"type\":\"function_call\",\"call_id\":\"");
        sl_call_id(b, c, "call_", g->call);
        sl_buf_puts(b, "\",\"name\":");
        put_text(b, &g->name);
        sl_buf_puts(b, ",\"arguments\":");
        if (begins)
            sl_buf_puts(b, "\"\"");
        else
            put_text(b, &g->text);
        break;
    default:
        sl_buf_puts(b, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (!begins)
            put_part(b, c, g, false);
        sl_buf_puts(b, "]");
        break;
    }
    sl_buf_printf(b, ",\"status\":\"%s\"}", status);
}

/* Only the last item can have been cut off. */
static const char *item_status(const struct sl_choice *c, uint32_t i) {
    bool cut = c->done && c->end == SL_END_LENGTH && i + 1 == c->segments.n;
    return cut ? "incomplete" : "completed";
}

/* ------------------------------------------------------------------------------------ response */

static void put_usage(struct sl_buf *b, const struct sl_gen *g) {
    struct sl_usage u;
    sl_gen_usage(g, &u);
    sl_buf_printf(b,
                  "{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu},"
                  "\"output_tokens\":%llu,\"output_tokens_details\":{\"reasoning_tokens\":%llu},"
                  "\"total_tokens\":%llu}",
                  (unsigned long long)u.prompt, (unsigned long long)u.cached,
                  (unsigned long long)u.predicted, (unsigned long long)u.reasoning,
                  (unsigned long long)(u.prompt + u.predicted));
}

static void put_error(struct sl_buf *b, const struct sl_http_error *e) {
    if (!e) {
        sl_buf_puts(b, "null");
        return;
    }
    const char *code = e->http_status == 429 ? "rate_limit_exceeded" : "server_error";
    sl_buf_puts(b, "{\"code\":");
    sl_buf_json_text(b, e->http_status == 400 && e->code ? e->code : code);
    sl_buf_puts(b, ",\"message\":");
    sl_buf_json_text(b, e->err.text);
    sl_buf_puts(b, "}");
}

/* e: what made it fail, or NULL. Without ended it has no output yet. */
static void put_response(struct sl_buf *b, const struct sl_gen *g, const char *status, bool ended,
                         const struct sl_http_error *e) {
    const struct sl_choice *c = &g->choices[0];
    sl_buf_printf(b, "{\"id\":\"%s%s\",\"object\":\"response\",\"created_at\":%lld,",
                  g->renderer->id_prefix, g->id, (long long)g->created_s);
    sl_buf_printf(b, "\"status\":\"%s\",\"background\":false,\"model\":", status);
    sl_buf_json_text(b, sl_gen_model(g));
    if (strcmp(status, "completed") == 0)
        sl_buf_printf(b, ",\"completed_at\":%lld", (long long)time(NULL));
    sl_buf_puts(b, ",\"error\":");
    put_error(b, e);
    sl_buf_puts(b, strcmp(status, "incomplete") == 0
                       ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"
                       : ",\"incomplete_details\":null");
    sl_buf_puts(b, g->params.about.members ? g->params.about.members : "");
    sl_buf_printf(b, ",\"service_tier\":\"default\",\"store\":%s,\"temperature\":",
                  g->params.about.input ? "true" : "false");
    sl_buf_json_number(b, (double)g->params.sampling.temperature);
    sl_buf_puts(b, ",\"top_p\":");
    sl_buf_json_number(b, (double)g->params.sampling.top_p);
    sl_buf_puts(b, ",\"output\":[");
    for (uint32_t i = 0; ended && i < c->segments.n; i++) {
        sl_buf_puts(b, i ? "," : "");
        put_item(b, c, i, item_status(c, i));
    }
    sl_buf_puts(b, "],\"usage\":");
    if (ended)
        put_usage(b, g);
    else
        sl_buf_puts(b, "null");
    if (ended)
        sl_openai_timings(b, g, 0, 1);
    sl_buf_puts(b, "}");
}

static const char *response_status(const struct sl_gen *g) {
    return g->choices[0].end == SL_END_LENGTH ? "incomplete" : "completed";
}

/* Keeps the response whose text b ends with, from there on. */
static void keep(const struct sl_buf *b, size_t from, const struct sl_gen *g) {
    const struct sl_request_about *about = &g->params.about;
    if (!about->input || b->failed)
        return;
    struct sl_buf id = {0};
    sl_buf_printf(&id, "%s%s", g->renderer->id_prefix, g->id);
    sl_buf_put(&id, "", 1);
    struct sl_stored_response r = {
        .id = id.ptr,
        .previous = about->previous ? strdup(about->previous) : NULL,
        .input = strdup(about->input),
        .response = strndup(b->ptr + from, b->len - from),
    };
    if (id.failed || !r.input || !r.response || (about->previous && !r.previous))
        sl_stored_response_release(&r); /* as if others had needed the room */
    else
        sl_response_store_put(g->ex->server->responses, g->ex->owner, &r);
}

static void whole(struct sl_buf *b, const struct sl_gen *g) {
    size_t from = b->len;
    put_response(b, g, response_status(g), true, NULL);
    keep(b, from, g);
}

/* -------------------------------------------------------------------------------------- stream */

/* event and the start of its data; event_end closes it. */
static void event_begin(struct sl_buf *b, struct sl_gen *g, const char *type) {
    sl_buf_printf(b, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%llu", type, type,
                  (unsigned long long)g->n_events++);
}

static void event_end(struct sl_buf *b) {
    sl_buf_puts(b, "}\n\n");
}

static void response_event(struct sl_buf *b, struct sl_gen *g, const char *type, const char *status,
                           bool ended, const struct sl_http_error *e) {
    event_begin(b, g, type);
    sl_buf_puts(b, ",\"response\":");
    put_response(b, g, status, ended, e);
    event_end(b);
}

static void begin(struct sl_buf *b, struct sl_gen *g) {
    response_event(b, g, "response.created", "in_progress", false, NULL);
    response_event(b, g, "response.in_progress", "in_progress", false, NULL);
}

/* An event about an item: ,"output_index":..,"item_id":.. */
static void item_event(struct sl_buf *b, struct sl_choice *c, const char *type, uint32_t i) {
    event_begin(b, c->gen, type);
    sl_buf_printf(b, ",\"output_index\":%u,\"item_id\":", i);
    put_item_id(b, c, i);
    if (c->segments.list[i].kind != SL_PART_CALL)
        sl_buf_puts(b, ",\"content_index\":0");
}

static void whole_item_event(struct sl_buf *b, struct sl_choice *c, const char *type, uint32_t i,
                             const char *status) {
    event_begin(b, c->gen, type);
    sl_buf_printf(b, ",\"output_index\":%u,\"item\":", i);
    put_item(b, c, i, status);
    event_end(b);
}

static void open_item(struct sl_buf *b, struct sl_choice *c, uint32_t i) {
    enum sl_part_kind kind = c->segments.list[i].kind;
    c->render.in_block = true;
    c->render.kind = kind;
    c->render.block = i;
    whole_item_event(b, c, "response.output_item.added", i, "in_progress");
    if (kind == SL_PART_CALL)
        return;
    item_event(b, c, "response.content_part.added", i);
    sl_buf_puts(b, ",\"part\":");
    put_part(b, c, &c->segments.list[i], true);
    event_end(b);
}

static void close_item(struct sl_buf *b, struct sl_choice *c) {
    if (!c->render.in_block)
        return;
    uint32_t i = c->render.block;
    const struct sl_segment *g = &c->segments.list[i];
    c->render.in_block = false;
    if (g->kind == SL_PART_CALL) {
        item_event(b, c, "response.function_call_arguments.done", i);
        sl_buf_puts(b, ",\"name\":");
        put_text(b, &g->name);
        sl_buf_puts(b, ",\"arguments\":");
        put_text(b, &g->text);
        event_end(b);
    } else {
        bool content = g->kind == SL_PART_CONTENT;
        item_event(b, c, content ? "response.output_text.done" : "response.reasoning_text.done", i);
        if (content) {
            sl_buf_puts(b, ",");
            put_logprobs(b, c, g->first_logprob, g->end_logprob);
        }
        sl_buf_puts(b, ",\"text\":");
        put_text(b, &g->text);
        event_end(b);
        item_event(b, c, "response.content_part.done", i);
        sl_buf_puts(b, ",\"part\":");
        put_part(b, c, g, false);
        event_end(b);
    }
    whole_item_event(b, c, "response.output_item.done", i, item_status(c, i));
}

/* The part is in the last segment already. */
static void stream_part(struct sl_buf *b, struct sl_choice *c, const struct sl_part *part) {
    if (part->text.len == 0 && part->kind != SL_PART_CALL)
        return;
    uint32_t i = c->segments.n - 1;
    if (!c->render.in_block || c->render.block != i) {
        close_item(b, c);
        open_item(b, c, i);
    }
    if (part->kind == SL_PART_CALL)
        return;
    static const char *const types[] = {
        [SL_PART_CONTENT] = "response.output_text.delta",
        [SL_PART_REASONING] = "response.reasoning_text.delta",
        [SL_PART_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    item_event(b, c, types[part->kind], i);
    if (part->kind == SL_PART_CONTENT) {
        sl_buf_puts(b, ",");
        put_logprobs(b, c, c->render.n_logprobs, c->n_content_logprobs);
        c->render.n_logprobs = c->n_content_logprobs;
    }
    sl_buf_puts(b, ",\"delta\":");
    sl_buf_json(b, part->text.ptr, part->text.len);
    event_end(b);
}

static void finish(struct sl_buf *b, struct sl_choice *c) {
    close_item(b, c);
}

static void end(struct sl_buf *b, struct sl_gen *g) {
    bool cut = g->choices[0].end == SL_END_LENGTH;
    event_begin(b, g, cut ? "response.incomplete" : "response.completed");
    sl_buf_puts(b, ",\"response\":");
    size_t from = b->len;
    put_response(b, g, response_status(g), true, NULL);
    keep(b, from, g);
    event_end(b);
}

static void fail(struct sl_buf *b, struct sl_gen *g, const struct sl_http_error *e) {
    response_event(b, g, "response.failed", "failed", true, e);
}

const struct sl_renderer sl_responses_renderer = {
    .id_prefix = "resp_",
    .keeps_parts = true,
    .whole = whole,
    .begin = begin,
    .part = stream_part,
    .finish = finish,
    .end = end,
    .fail = fail,
};
