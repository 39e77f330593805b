/* The bodies and events of llama.cpp's own completions.
 * Source: llama.cpp, tools/server/README.md, "POST /completion". */
#include "server/api/openai_json.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- tokens */

static void put_ids(struct sl_buf *b, const struct sl_ids *ids) {
    sl_buf_puts(b, ",\"tokens\":[");
    for (size_t i = 0; i < ids->n; i++)
        sl_buf_printf(b, "%s%u", i ? "," : "", ids->ids[i]);
    sl_buf_puts(b, "]");
}

/* "id":...,"token":...,"bytes":[...],"logprob":... */
static void put_token(struct sl_buf *b, const struct sl_gen *g, uint32_t id, float logprob) {
    struct sl_str s = sl_tokenizer_piece(g->served->tok, id, true);
    sl_buf_printf(b, "\"id\":%u,\"token\":", id);
    sl_buf_json(b, s.len ? s.ptr : "", s.len);
    sl_buf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < s.len; i++)
        sl_buf_printf(b, "%s%u", i ? "," : "", (unsigned)(unsigned char)s.ptr[i]);
    sl_buf_puts(b, "],\"logprob\":");
    sl_buf_json_number(b, logprob > -9999.0f ? (double)logprob : -9999.0);
}

static void put_probabilities(struct sl_buf *b, const struct sl_choice *c) {
    const struct sl_gen *g = c->gen;
    if (!g->params.logprobs)
        return;
    sl_buf_puts(b, ",\"completion_probabilities\":[");
    for (uint32_t i = 0; i < c->n_content_logprobs; i++) {
        const struct sl_token *t = &c->logprobs[i].token;
        sl_buf_puts(b, i ? ",{" : "{");
        put_token(b, g, t->id, t->logprob);
        sl_buf_puts(b, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < t->n_top; k++) {
            sl_buf_puts(b, k ? ",{" : "{");
            put_token(b, g, t->top[k].id, t->top[k].logprob);
            sl_buf_puts(b, "}");
        }
        sl_buf_puts(b, "]}");
    }
    sl_buf_puts(b, "]");
}

/* ----------------------------------------------------------------------------- of the request */

static void put_number(struct sl_buf *b, const char *name, float value) {
    sl_buf_printf(b, ",\"%s\":", name);
    sl_buf_json_number(b, (double)value);
}

/* -1: all. */
static void put_last_n(struct sl_buf *b, const char *name, uint32_t n) {
    sl_buf_printf(b, ",\"%s\":%lld", name, n == UINT32_MAX ? -1 : (long long)n);
}

static void put_dry(struct sl_buf *b, const struct sl_dry *d) {
    put_number(b, "dry_multiplier", d->multiplier);
    put_number(b, "dry_base", d->base);
    sl_buf_printf(b, ",\"dry_allowed_length\":%u", d->allowed_length);
    put_last_n(b, "dry_penalty_last_n", d->last_n);
    sl_buf_puts(b, ",\"dry_sequence_breakers\":[");
    for (uint32_t i = 0; d->breakers && i < d->breakers->n; i++) {
        sl_buf_puts(b, i ? "," : "");
        sl_buf_json(b, d->breakers->breaker[i].bytes, d->breakers->breaker[i].len);
    }
    sl_buf_puts(b, "]");
}

static void put_settings(struct sl_buf *b, const struct sl_gen *g) {
    const struct sl_gen_params *p = &g->params;
    const struct sl_sampling *s = &p->sampling;
    long long n_predict = p->prompt_only ? 0 : p->max_tokens ? (long long)p->max_tokens : -1;
    sl_buf_printf(b,
                  ",\"generation_settings\":{\"n_predict\":%lld,\"max_tokens\":%lld,"
                  "\"seed\":%lld,\"top_k\":%u,\"min_tokens\":%u",
                  n_predict, n_predict, (long long)s->seed, s->top_k, s->min_tokens);
    put_last_n(b, "repeat_last_n", s->repeat_last_n);
    put_number(b, "temperature", s->temperature);
    put_number(b, "top_p", s->top_p);
    put_number(b, "min_p", s->min_p);
    put_number(b, "typical_p", s->typical_p);
    put_number(b, "top_n_sigma", s->top_n_sigma);
    put_number(b, "xtc_probability", s->xtc_probability);
    put_number(b, "xtc_threshold", s->xtc_threshold);
    put_number(b, "repeat_penalty", s->repeat_penalty);
    put_number(b, "presence_penalty", s->presence_penalty);
    put_number(b, "frequency_penalty", s->frequency_penalty);
    put_dry(b, &s->dry);
    sl_buf_printf(b, ",\"n_probs\":%u,\"ignore_eos\":%s,\"stream\":%s,\"stop\":[",
                  p->n_top_logprobs, p->ignore_eos ? "true" : "false",
                  p->stream ? "true" : "false");
    for (uint32_t i = 0; i < p->n_own_stop; i++) {
        sl_buf_puts(b, i ? "," : "");
        sl_buf_json(b, p->stop.strings[i].text, p->stop.strings[i].len);
    }
    sl_buf_puts(b, "]}");
}

/* The prompt's text. */
static void put_prompt(struct sl_buf *b, const struct sl_choice *c) {
    struct sl_detok d = {0};
    struct sl_buf text = {0};
    struct sl_str s;
    bool ok = true;
    for (uint32_t i = 0; ok && i < c->req.n_prompt; i++) {
        ok = sl_detok_push(&d, c->gen->served->tok, c->req.prompt[i], true, &s) == SL_OK;
        if (ok)
            sl_buf_put(&text, s.ptr, s.len);
    }
    ok = ok && sl_detok_finish(&d, &s) == SL_OK;
    if (ok)
        sl_buf_put(&text, s.ptr, s.len);
    sl_detok_release(&d);
    sl_buf_puts(b, ",\"prompt\":");
    sl_buf_json(b, text.ptr ? text.ptr : "", text.len);
    b->failed = b->failed || !ok || text.failed;
    sl_buf_release(&text);
}

/* ---------------------------------------------------------------------------------------- ends */

/* "stop_type":...,"stopping_word":... */
static void put_stop(struct sl_buf *b, const struct sl_choice *c) {
    const struct sl_gen_params *p = &c->gen->params;
    bool word = c->end == SL_END_STOP_STRING && c->stop.which < p->n_own_stop;
    const struct sl_stop_string *s = word ? &p->stop.strings[c->stop.which] : NULL;
    const char *type = c->end == SL_END_LENGTH ? "limit" : word ? "word" : "eos";
    sl_buf_printf(b, ",\"stop_type\":\"%s\",\"stopping_word\":", type);
    sl_buf_json(b, s ? s->text : "", s ? s->len : 0);
}

/* The members of a choice's end, with the closing brace. */
static void put_end(struct sl_buf *b, const struct sl_choice *c, bool has_line_break) {
    const struct sl_gen *g = c->gen;
    sl_buf_puts(b, ",\"id_slot\":-1,\"stop\":true,\"model\":");
    sl_buf_json_text(b, sl_gen_model(g));
    sl_buf_printf(b, ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u,\"tokens_cached\":%u",
                  c->n_predicted, c->req.n_prompt, c->req.n_prompt + c->n_predicted);
    put_settings(b, g);
    put_prompt(b, c);
    sl_buf_printf(b, ",\"has_new_line\":%s,\"truncated\":false", has_line_break ? "true" : "false");
    put_stop(b, c);
    sl_openai_timings(b, g, c->index, 1);
    sl_buf_puts(b, "}");
}

/* The member that a path names, or NULL. */
static json_t *member_at(json_t *v, const char *path) {
    for (;;) {
        size_t n = strcspn(path, "/");
        v = json_object_getn(v, path, n);
        if (!v || !path[n])
            return v;
        path += n + 1;
    }
}

static int dump_to_buf(const char *text, size_t len, void *buf) {
    struct sl_buf *b = buf;
    sl_buf_put(b, text, len);
    return b->failed ? -1 : 0;
}

/* Of the object that b ends with, from there on, only the members that are wanted. */
static void keep_wanted(struct sl_buf *b, size_t from, const struct sl_gen *g) {
    const json_t *fields = g->params.about.fields;
    if (!fields || b->failed)
        return;
    json_t *all = json_loadb(b->ptr + from, b->len - from, 0, NULL), *some = json_object();
    bool ok = all && some;
    for (size_t i = 0; ok && i < json_array_size(fields); i++) {
        const char *path = json_string_value(json_array_get(fields, i));
        json_t *v = member_at(all, path);
        ok = !v || json_object_set(some, path, v) == 0;
    }
    b->len = from;
    if (!ok || json_dump_callback(some, dump_to_buf, b, JSON_COMPACT) != 0)
        b->failed = true;
    json_decref(all);
    json_decref(some);
}

static void put_choice(struct sl_buf *b, const struct sl_choice *c) {
    struct sl_buf text = {0};
    size_t from = b->len;
    sl_segments_join(&c->segments, SL_PART_CONTENT, &text);
    sl_buf_printf(b, "{\"index\":%u,\"content\":", c->index);
    sl_buf_json(b, text.ptr ? text.ptr : "", text.len);
    put_ids(b, &c->ids);
    put_probabilities(b, c);
    put_end(b, c, text.len && memchr(text.ptr, '\n', text.len));
    keep_wanted(b, from, c->gen);
    b->failed = b->failed || text.failed;
    sl_buf_release(&text);
}

/* One object, or an array of them where several were asked for. */
static void whole(struct sl_buf *b, const struct sl_gen *g) {
    sl_buf_puts(b, g->n_choices > 1 ? "[" : "");
    for (uint32_t i = 0; i < g->n_choices; i++) {
        sl_buf_puts(b, i ? "," : "");
        put_choice(b, &g->choices[i]);
    }
    sl_buf_puts(b, g->n_choices > 1 ? "]" : "");
}

/* -------------------------------------------------------------------------------------- stream */

static void progress(struct sl_buf *b, const struct sl_gen *g, const struct sl_prompt_progress *p) {
    sl_buf_printf(b,
                  "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"stop\":false,"
                  "\"id_slot\":-1,\"tokens_predicted\":0,\"tokens_evaluated\":%u",
                  p->n_prompt);
    sl_openai_progress(b, g, p);
    sl_buf_puts(b, "}\n\n");
}

static void put_part(struct sl_buf *b, struct sl_choice *c, const struct sl_part *part) {
    if (part->text.len && memchr(part->text.ptr, '\n', part->text.len))
        c->render.has_line_break = true;
    sl_buf_printf(b, "data: {\"index\":%u,\"content\":", c->index);
    sl_buf_json(b, part->text.ptr, part->text.len);
    put_ids(b, &c->ids);
    c->ids.n = 0;
    put_probabilities(b, c);
    sl_buf_printf(b,
                  ",\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":%u,"
                  "\"tokens_evaluated\":%u",
                  c->n_predicted, c->req.n_prompt);
    if (c->gen->params.timings_per_token)
        sl_openai_timings(b, c->gen, c->index, 1);
    sl_buf_puts(b, "}\n\n");
}

static void finish(struct sl_buf *b, struct sl_choice *c) {
    sl_buf_puts(b, "data: ");
    size_t from = b->len;
    sl_buf_printf(b, "{\"index\":%u,\"content\":\"\",\"tokens\":[]", c->index);
    put_end(b, c, c->render.has_line_break);
    keep_wanted(b, from, c->gen);
    sl_buf_puts(b, "\n\n");
}

static void end(struct sl_buf *b, struct sl_gen *g) {
    (void)b;
    (void)g;
}

static void fail(struct sl_buf *b, struct sl_gen *g, const struct sl_http_error *e) {
    (void)g;
    sl_buf_puts(b, "data: ");
    sl_http_error_json(b, e);
    sl_buf_puts(b, "\n\n");
}

const struct sl_renderer sl_native_renderer = {
    .id_prefix = "",
    .streams_ids = true,
    .repeats_prompt = true,
    .whole = whole,
    .progress = progress,
    .part = put_part,
    .finish = finish,
    .end = end,
    .fail = fail,
};
