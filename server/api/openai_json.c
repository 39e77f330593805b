/* The bodies and events of OpenAI's chat and text completions.
 * Source: OpenAI API reference: the chat completion object, the chat completion chunk object, the
 * completion object. `timings` and `reasoning_content` are extensions that clients know. */
#include "server/api/openai_json.h"

#include <math.h>
#include <string.h>

static const char *object_name(const struct sl_gen *g, bool chunk) {
    if (g->api == SL_API_CHAT)
        return chunk ? "chat.completion.chunk" : "chat.completion";
    return "text_completion";
}

/* {"id":...,"model":..., without the closing brace */
static void head(struct sl_buf *b, const struct sl_gen *g, bool chunk) {
    sl_buf_printf(b, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":",
                  g->renderer->id_prefix, g->id, object_name(g, chunk), (long long)g->created_s);
    sl_buf_json_text(b, sl_gen_model(g));
    sl_buf_printf(b, ",\"system_fingerprint\":\"%s\"", g->served->fingerprint);
}

/* --------------------------------------------------------------------------- log-probabilities */

static void put_token(struct sl_buf *b, const struct sl_gen *g, uint32_t id) {
    struct sl_str s = sl_tokenizer_piece(g->served->tok, id, true);
    sl_buf_json(b, s.len ? s.ptr : "", s.len);
}

/* Minus infinity (a banned token) is not JSON; the API's own floor stands for it. */
static void put_logprob(struct sl_buf *b, float logprob) {
    sl_buf_json_number(b, logprob > -9999.0f ? (double)logprob : -9999.0);
}

/* "token":...,"logprob":...,"bytes":[...] */
static void token_members(struct sl_buf *b, const struct sl_gen *g, uint32_t id, float logprob) {
    struct sl_str s = sl_tokenizer_piece(g->served->tok, id, true);
    sl_buf_puts(b, "\"token\":");
    put_token(b, g, id);
    sl_buf_puts(b, ",\"logprob\":");
    put_logprob(b, logprob);
    sl_buf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < s.len; i++)
        sl_buf_printf(b, "%s%u", i ? "," : "", (unsigned)(unsigned char)s.ptr[i]);
    sl_buf_puts(b, "]");
}

void sl_openai_logprobs(struct sl_buf *b, const struct sl_choice *c, uint32_t first, uint32_t end) {
    const struct sl_gen *g = c->gen;
    sl_buf_puts(b, "[");
    for (uint32_t i = first; i < end; i++) {
        const struct sl_token *t = &c->logprobs[i].token;
        sl_buf_puts(b, i > first ? ",{" : "{");
        token_members(b, g, t->id, t->logprob);
        sl_buf_puts(b, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < t->n_top; k++) {
            sl_buf_puts(b, k ? ",{" : "{");
            token_members(b, g, t->top[k].id, t->top[k].logprob);
            sl_buf_puts(b, "}");
        }
        sl_buf_puts(b, "]}");
    }
    sl_buf_puts(b, "]");
}

static void chat_logprobs(struct sl_buf *b, const struct sl_choice *c) {
    sl_buf_puts(b, "{\"content\":");
    sl_openai_logprobs(b, c, 0, c->n_content_logprobs);
    sl_buf_puts(b, ",\"refusal\":null}");
}

static void completion_logprobs(struct sl_buf *b, const struct sl_choice *c) {
    const struct sl_gen *g = c->gen;
    uint32_t n = c->n_content_logprobs;
    sl_buf_puts(b, "{\"tokens\":[");
    for (uint32_t i = 0; i < n; i++) {
        sl_buf_puts(b, i ? "," : "");
        put_token(b, g, c->logprobs[i].token.id);
    }
    sl_buf_puts(b, "],\"token_logprobs\":[");
    for (uint32_t i = 0; i < n; i++) {
        sl_buf_puts(b, i ? "," : "");
        if (c->logprobs[i].first)
            sl_buf_puts(b, "null");
        else
            put_logprob(b, c->logprobs[i].token.logprob);
    }
    sl_buf_puts(b, "],\"top_logprobs\":");
    if (g->params.n_top_logprobs == 0) {
        sl_buf_puts(b, "null");
    } else {
        sl_buf_puts(b, "[");
        for (uint32_t i = 0; i < n; i++) {
            const struct sl_token *t = &c->logprobs[i].token;
            if (c->logprobs[i].first) {
                sl_buf_puts(b, "null");
                continue;
            }
            sl_buf_puts(b, i ? ",{" : "{");
            for (uint32_t k = 0; k < t->n_top; k++) {
                sl_buf_puts(b, k ? "," : "");
                put_token(b, g, t->top[k].id);
                sl_buf_puts(b, ":");
                put_logprob(b, t->top[k].logprob);
            }
            sl_buf_puts(b, "}");
        }
        sl_buf_puts(b, "]");
    }
    sl_buf_puts(b, ",\"text_offset\":[");
    for (uint32_t i = 0; i < n; i++)
        sl_buf_printf(b, "%s%llu", i ? "," : "", (unsigned long long)c->logprobs[i].start_char);
    sl_buf_puts(b, "]}");
}

static void logprobs(struct sl_buf *b, const struct sl_choice *c) {
    sl_buf_puts(b, ",\"logprobs\":");
    if (!c->gen->params.logprobs)
        sl_buf_puts(b, "null");
    else if (c->gen->api == SL_API_CHAT)
        chat_logprobs(b, c);
    else
        completion_logprobs(b, c);
}

/* ------------------------------------------------------------------------------ usage, timings */

static void usage(struct sl_buf *b, const struct sl_gen *g) {
    struct sl_usage u;
    sl_gen_usage(g, &u);
    sl_buf_printf(b,
                  ",\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,"
                  "\"total_tokens\":%llu,\"prompt_tokens_details\":{\"cached_tokens\":%llu},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":%llu}}",
                  (unsigned long long)u.prompt, (unsigned long long)u.predicted,
                  (unsigned long long)(u.prompt + u.predicted), (unsigned long long)u.cached,
                  (unsigned long long)u.reasoning);
}

/* n tokens, of which `timed` were computed in that time. The rates are those of the time as it is
 * written, in whole microseconds: whoever divides gets the same. */
static void rate(struct sl_buf *b, const char *name, double n, double timed, double exact_ms) {
    double ms = round(exact_ms * 1e3) / 1e3;
    double per_token = timed > 0 ? ms / timed : 0;
    double per_second = timed > 0 && ms > 0 ? timed * 1e3 / ms : 0;
    sl_buf_printf(b,
                  "\"%s_n\":%.0f,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.4f,"
                  "\"%s_per_second\":%.7f",
                  name, n, name, ms, name, per_token, name, per_second);
}

static void experts(struct sl_buf *b, const struct sl_expert_use *u) {
    uint64_t asked = u->hits + u->late + u->misses;
    if (!asked)
        return; /* a model without routed experts */
    sl_buf_printf(b,
                  ",\"expert_hits\":%llu,\"expert_late\":%llu,\"expert_misses\":%llu,"
                  "\"expert_hit_share\":%.4f,\"disk_read_bytes\":%llu,\"expert_stall_ms\":%.3f",
                  (unsigned long long)u->hits, (unsigned long long)u->late,
                  (unsigned long long)u->misses, (double)u->hits / (double)asked,
                  (unsigned long long)u->read_bytes, (double)u->stall_ns * 1e-6);
}

/* Of choices [first, first + n): tokens and what experts took are summed, times are the longest,
 * for they ran together. */
void sl_openai_timings(struct sl_buf *b, const struct sl_gen *g, uint32_t first, uint32_t n) {
    double prompt = 0, cached = 0, predicted = 0, intervals = 0, prompt_ms = 0, predicted_ms = 0,
           queue_ms = 0;
    struct sl_expert_use use = {0};
    for (uint32_t i = first; i < first + n; i++) {
        struct sl_choice_times t;
        sl_choice_times(&g->choices[i], &t);
        prompt += g->choices[i].req.n_prompt - t.n_cached;
        cached += t.n_cached;
        predicted += g->choices[i].n_predicted;
        /* The first token comes with the prompt's last step, and before its time begins. */
        intervals += g->choices[i].n_predicted ? g->choices[i].n_predicted - 1 : 0;
        if (t.prefill_ns * 1e-6 > prompt_ms)
            prompt_ms = t.prefill_ns * 1e-6;
        if (t.decode_ns * 1e-6 > predicted_ms)
            predicted_ms = t.decode_ns * 1e-6;
        if (t.queue_ns * 1e-6 > queue_ms)
            queue_ms = t.queue_ns * 1e-6;
        use.hits += t.use.hits;
        use.late += t.use.late;
        use.misses += t.use.misses;
        use.read_bytes += t.use.read_bytes;
        use.stall_ns += t.use.stall_ns;
    }
    sl_buf_puts(b, ",\"timings\":{");
    rate(b, "prompt", prompt, prompt, prompt_ms);
    sl_buf_puts(b, ",");
    rate(b, "predicted", predicted, intervals, predicted_ms);
    sl_buf_printf(b, ",\"cache_n\":%.0f,\"cached_n\":%.0f,\"queue_ms\":%.3f", cached, cached,
                  queue_ms);
    experts(b, &use);
    sl_buf_puts(b, "}");
}

/* --------------------------------------------------------------------------------------- whole */

static const char *finish_reason(const struct sl_choice *c) {
    if (c->end == SL_END_LENGTH)
        return "length";
    return c->n_calls ? "tool_calls" : "stop";
}

static void put_call_head(struct sl_buf *b, const struct sl_choice *c, uint32_t call) {
    sl_buf_puts(b, "\"id\":\"");
    sl_call_id(b, c, "call_", call);
    sl_buf_puts(b, "\",\"type\":\"function\",\"function\":{\"name\":");
}

static void whole_calls(struct sl_buf *b, const struct sl_choice *c) {
    const struct sl_segments *s = &c->segments;
    const char *separator = ",\"tool_calls\":[{";
    for (uint32_t i = 0; i < s->n; i++) {
        const struct sl_segment *g = &s->list[i];
        if (g->kind != SL_PART_CALL)
            continue;
        sl_buf_puts(b, separator);
        put_call_head(b, c, g->call);
        sl_buf_json(b, g->name.ptr ? g->name.ptr : "", g->name.len);
        sl_buf_puts(b, ",\"arguments\":");
        sl_buf_json(b, g->text.ptr ? g->text.ptr : "", g->text.len);
        sl_buf_puts(b, "}}");
        separator = ",{";
    }
    if (c->n_calls)
        sl_buf_puts(b, "]");
}

static void put_joined(struct sl_buf *b, const struct sl_choice *c, enum sl_part_kind kind) {
    struct sl_buf text = {0};
    sl_segments_join(&c->segments, kind, &text);
    sl_buf_json(b, text.ptr ? text.ptr : "", text.len);
    b->failed = b->failed || text.failed;
    sl_buf_release(&text);
}

static bool has_kind(const struct sl_choice *c, enum sl_part_kind kind) {
    for (uint32_t i = 0; i < c->segments.n; i++)
        if (c->segments.list[i].kind == kind)
            return true;
    return false;
}

static void whole_message(struct sl_buf *b, const struct sl_choice *c) {
    sl_buf_puts(b, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (c->n_calls && !has_kind(c, SL_PART_CONTENT))
        sl_buf_puts(b, "null");
    else
        put_joined(b, c, SL_PART_CONTENT);
    if (has_kind(c, SL_PART_REASONING)) {
        sl_buf_puts(b, ",\"reasoning_content\":");
        put_joined(b, c, SL_PART_REASONING);
    }
    whole_calls(b, c);
    sl_buf_puts(b, ",\"refusal\":null}");
}

static void whole(struct sl_buf *b, const struct sl_gen *g) {
    head(b, g, false);
    sl_buf_puts(b, ",\"choices\":[");
    for (uint32_t i = 0; i < g->n_choices; i++) {
        const struct sl_choice *c = &g->choices[i];
        sl_buf_printf(b, "%s{\"index\":%u,", i ? "," : "", c->index);
        if (g->api == SL_API_CHAT) {
            whole_message(b, c);
        } else {
            sl_buf_puts(b, "\"text\":");
            put_joined(b, c, SL_PART_CONTENT);
        }
        logprobs(b, c);
        sl_buf_printf(b, ",\"finish_reason\":\"%s\"}", finish_reason(c));
    }
    sl_buf_puts(b, "]");
    usage(b, g);
    sl_openai_timings(b, g, 0, g->n_choices);
    sl_buf_puts(b, "}");
}

/* -------------------------------------------------------------------------------------- stream */

static void chunk_head(struct sl_buf *b, const struct sl_gen *g) {
    sl_buf_puts(b, "data: ");
    head(b, g, true);
}

/* With include_usage each chunk has the member, and only the last has it filled. */
static void chunk_tail(struct sl_buf *b, const struct sl_gen *g) {
    if (g->params.include_usage)
        sl_buf_puts(b, ",\"usage\":null");
    sl_buf_puts(b, "}\n\n");
}

static void chat_open(struct sl_buf *b, struct sl_choice *c) {
    chunk_head(b, c->gen);
    sl_buf_printf(b,
                  ",\"choices\":[{\"index\":%u,\"delta\":{\"role\":\"assistant\","
                  "\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]",
                  c->index);
    chunk_tail(b, c->gen);
}

static void completion_open(struct sl_buf *b, struct sl_choice *c) {
    const struct sl_gen *g = c->gen;
    const char *echo = g->echo ? g->echo[c->index / g->params.n] : NULL;
    if (!echo)
        return;
    chunk_head(b, g);
    sl_buf_printf(b, ",\"choices\":[{\"index\":%u,\"text\":", c->index);
    sl_buf_json_text(b, echo);
    logprobs(b, c);
    sl_buf_puts(b, ",\"finish_reason\":null}]");
    chunk_tail(b, g);
}

void sl_openai_progress(struct sl_buf *b, const struct sl_gen *g,
                        const struct sl_prompt_progress *p) {
    uint32_t computed = p->n_done - p->n_cached;
    sl_buf_printf(
        b, ",\"prompt_progress\":{\"total\":%u,\"cache\":%u,\"processed\":%u,\"time_ms\":%llu}",
        p->n_prompt, p->n_cached, p->n_done, (unsigned long long)(p->ns / 1000000u));
    if (!g->params.timings_per_token)
        return;
    sl_buf_puts(b, ",\"timings\":{");
    rate(b, "prompt", computed, computed, (double)p->ns * 1e-6);
    sl_buf_puts(b, ",");
    rate(b, "predicted", 0, 0, 0);
    sl_buf_printf(b, ",\"cache_n\":%u,\"cached_n\":%u}", p->n_cached, p->n_cached);
}

static void chunk_progress(struct sl_buf *b, const struct sl_gen *g,
                           const struct sl_prompt_progress *p) {
    chunk_head(b, g);
    sl_buf_printf(b, ",\"choices\":[{\"index\":0,%s,\"logprobs\":null,\"finish_reason\":null}]",
                  g->api == SL_API_CHAT ? "\"delta\":{}" : "\"text\":\"\"");
    sl_openai_progress(b, g, p);
    chunk_tail(b, g);
}

/* {"content":...}, {"reasoning_content":...} or {"tool_calls":[...]} */
static void delta(struct sl_buf *b, const struct sl_choice *c, const struct sl_part *part) {
    switch (part->kind) {
    case SL_PART_CONTENT:
        sl_buf_puts(b, "{\"content\":");
        break;
    case SL_PART_REASONING:
        sl_buf_puts(b, "{\"reasoning_content\":");
        break;
    case SL_PART_CALL:
        sl_buf_printf(b, "{\"tool_calls\":[{\"index\":%u,", part->call);
        put_call_head(b, c, part->call);
        break;
    case SL_PART_ARGUMENTS:
        sl_buf_printf(b, "{\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":", part->call);
        break;
    }
    sl_buf_json(b, part->text.ptr, part->text.len);
    if (part->kind == SL_PART_CALL)
        sl_buf_puts(b, ",\"arguments\":\"\"");
    sl_buf_puts(b, part->kind >= SL_PART_CALL ? "}}]}" : "}");
}

static void chunk_part(struct sl_buf *b, struct sl_choice *c, const struct sl_part *part) {
    const struct sl_gen *g = c->gen;
    chunk_head(b, g);
    sl_buf_printf(b, ",\"choices\":[{\"index\":%u,", c->index);
    if (g->api == SL_API_CHAT) {
        sl_buf_puts(b, "\"delta\":");
        delta(b, c, part);
    } else {
        sl_buf_puts(b, "\"text\":");
        sl_buf_json(b, part->text.ptr, part->text.len);
    }
    if (part->kind == SL_PART_CONTENT)
        logprobs(b, c);
    else
        sl_buf_puts(b, ",\"logprobs\":null");
    sl_buf_puts(b, ",\"finish_reason\":null}]");
    if (g->params.timings_per_token)
        sl_openai_timings(b, g, c->index, 1);
    chunk_tail(b, g);
}

static void chunk_finish(struct sl_buf *b, struct sl_choice *c) {
    const struct sl_gen *g = c->gen;
    chunk_head(b, g);
    sl_buf_printf(b, ",\"choices\":[{\"index\":%u,%s,\"logprobs\":null,\"finish_reason\":\"%s\"}]",
                  c->index, g->api == SL_API_CHAT ? "\"delta\":{}" : "\"text\":\"\"",
                  finish_reason(c));
    sl_openai_timings(b, g, c->index, 1);
    chunk_tail(b, g);
}

static void stream_end(struct sl_buf *b, struct sl_gen *g) {
    if (g->params.include_usage) {
        chunk_head(b, g);
        sl_buf_puts(b, ",\"choices\":[]");
        usage(b, g);
        sl_openai_timings(b, g, 0, g->n_choices);
        sl_buf_puts(b, "}\n\n");
    }
    sl_buf_puts(b, "data: [DONE]\n\n");
}

static void stream_fail(struct sl_buf *b, struct sl_gen *g, const struct sl_http_error *e) {
    (void)g;
    sl_buf_puts(b, "data: ");
    sl_http_error_json(b, e);
    sl_buf_puts(b, "\n\n");
}

const struct sl_renderer sl_chat_renderer = {
    .id_prefix = "chatcmpl-",
    .whole = whole,
    .progress = chunk_progress,
    .open = chat_open,
    .part = chunk_part,
    .finish = chunk_finish,
    .end = stream_end,
    .fail = stream_fail,
};

const struct sl_renderer sl_completions_renderer = {
    .id_prefix = "cmpl-",
    .whole = whole,
    .progress = chunk_progress,
    .open = completion_open,
    .part = chunk_part,
    .finish = chunk_finish,
    .end = stream_end,
    .fail = stream_fail,
};
