/* A generation on the connection's side: tokens become text, text becomes parts, and parts what
 * the API's renderer makes of them. */
#include "common/metrics.h"
#include "server/exchange/renderer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Events made in one go: enough to fill a socket's buffer, little enough to stay small. */
#define STREAM_FILL_BYTES 16384u
/* How much more is counted at once of an answer that is larger than expected. */
#define HOLD_STEP_BYTES 16384u

static void choice_fail(struct sl_choice *c, enum sl_status status, const struct sl_err *err) {
    struct sl_gen *g = c->gen;
    c->done = true;
    if (!g->failure.http_status)
        sl_http_from_status(&g->failure, status, err);
}

/* --------------------------------------------------------------------------- tokens to text */

/* More is needed than the room that was counted, each byte of which holds `cost` bytes: in steps,
 * so that few tokens do this. False: the server has no room, and the choice ends. */
static bool hold_more(struct sl_choice *c, uint64_t needed, uint64_t *room, uint32_t cost) {
    if (needed <= *room)
        return true;
    uint64_t more = (needed - *room + HOLD_STEP_BYTES - 1) / HOLD_STEP_BYTES * HOLD_STEP_BYTES;
    if (!sl_exchange_hold_more(c->gen->ex, more * cost)) {
        c->done = true;
        if (!c->gen->failure.http_status) { /* the first choice: the answer is counted once */
            sl_count(answers_outgrown_total, 1);
            sl_http_fail(&c->gen->failure, 503, "overloaded", NULL,
                         "the answer has become larger than expected and does not fit beside "
                         "those that are being made or wait for their clients to read; try again "
                         "later, or ask for fewer tokens, choices or log-probabilities");
        }
        return false;
    }
    *room += more;
    return true;
}

/* "token":...,"logprob":...,"bytes":[...] of a token and of those beside it, at most. */
static uint32_t logprobs_json(const struct sl_gen *g, const struct sl_token *token) {
    uint32_t n = 0;
    for (uint32_t k = 0; k <= token->n_top; k++) {
        struct sl_str s =
            sl_tokenizer_piece(g->served->tok, k ? token->top[k - 1].id : token->id, true);
        n += 80 + 10 * (uint32_t)s.len; /* six a byte as text, four as a number */
    }
    return n;
}

static void keep_logprobs(struct sl_choice *c, const struct sl_token *token, uint64_t start_byte,
                          uint64_t start_char) {
    uint32_t json = logprobs_json(c->gen, token), cap = c->cap_logprobs;
    if (c->n_logprobs == cap)
        cap = cap ? cap * 2 : 16;
    /* Growing has the old entries beside the new; JSON grows by doubling too, and a stream that
     * keeps its parts repeats it in its last events. */
    uint64_t copies = c->gen->keeps_parts && c->gen->params.stream ? 8 : 2;
    uint64_t needed = cap * sizeof *c->logprobs * 3 / 2 + (c->logprobs_json + json) * copies;
    if (!hold_more(c, needed, &c->logprobs_room, 1))
        return;
    if (cap > c->cap_logprobs) {
        struct sl_logprob_entry *p = realloc(c->logprobs, cap * sizeof *p);
        if (!p) {
            choice_fail(c, SL_ERR_NOMEM, NULL);
            return;
        }
        c->logprobs = p;
        c->cap_logprobs = cap;
    }
    c->logprobs_json += json;
    c->logprobs[c->n_logprobs++] =
        (struct sl_logprob_entry){.token = *token,
                                  .start_byte = start_byte,
                                  .end_byte = c->text_bytes + c->detok.n_pending,
                                  .start_char = start_char,
                                  .json_bytes = json};
}

/* Entries [from, from + n) go. */
static void drop_logprobs(struct sl_choice *c, uint32_t from, uint32_t n) {
    if (!n)
        return;
    for (uint32_t i = from; i < from + n; i++)
        c->logprobs_json -= c->logprobs[i].json_bytes;
    c->n_logprobs -= n;
    memmove(c->logprobs + from, c->logprobs + from + n,
            (c->n_logprobs - from) * sizeof *c->logprobs);
}

static void show_logprobs(struct sl_choice *c, bool end) {
    while (c->n_shown_logprobs < c->n_logprobs) {
        const struct sl_logprob_entry *p = &c->logprobs[c->n_shown_logprobs];
        if (p->end_byte > c->shown_bytes && !(end && p->start_byte < c->shown_bytes))
            break;
        c->n_shown_logprobs++;
    }
    if (end)
        drop_logprobs(c, c->n_shown_logprobs, c->n_logprobs - c->n_shown_logprobs);
}

/* False: there is no room for so much. */
static bool count_text(struct sl_choice *c, struct sl_str text) {
    const struct sl_gen *g = c->gen;
    c->text_bytes += text.len;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char b = (unsigned char)text.ptr[i];
        c->text_chars += (b & 0xc0) != 0x80;
        c->text_json += b == '"' || b == '\\' || b == '\n' || b == '\t' ? 2 : b < 0x20 ? 6 : 1;
    }
    return !g->keeps_parts || hold_more(c, c->text_json, &c->text_room, sl_gen_text_cost(g));
}

static void choice_stop(struct sl_choice *c) {
    c->done = true;
    c->end = SL_END_STOP_STRING;
    show_logprobs(c, true);
    sl_choice_cancel(c);
}

static bool is_finite(const struct sl_choice *c) {
    uint32_t n = c->pooled ? c->gen->served->info.n_embd : 0;
    bool ok = true;
    for (uint32_t i = 0; i < n; i++)
        ok = ok && isfinite(c->pooled[i]);
    return ok;
}

static void choice_end(struct sl_choice *c, struct sl_str *out_text) {
    const struct sl_gen_result *r = &c->result;
    if (r->reason == SL_FINISH_ERROR || r->reason == SL_FINISH_CANCELED) {
        choice_fail(c, r->reason == SL_FINISH_CANCELED ? SL_ERR_CANCELED : r->status, &r->err);
        return;
    }
    if (!is_finite(c)) {
        static const struct sl_err err = {
            "the model's hidden states are not finite (damaged weights?)"};
        choice_fail(c, SL_ERR_IO, &err);
        return;
    }
    struct sl_str text;
    enum sl_status status = sl_detok_finish(&c->detok, &text);
    if (status != SL_OK) {
        choice_fail(c, status, NULL);
        return;
    }
    if (!count_text(c, text))
        return;
    bool stopped = sl_stop_finish(&c->stop, &c->gen->params.stop, text.ptr, text.len, out_text);
    c->shown_bytes += out_text->len;
    if (stopped) {
        choice_stop(c);
        return;
    }
    c->done = true;
    c->end = r->reason == SL_FINISH_LENGTH ? SL_END_LENGTH : SL_END_STOP;
    show_logprobs(c, true);
}

/* A control token that the splitter must see. */
static bool is_marker(const struct sl_served *v, uint32_t id) {
    for (size_t i = 0; i < v->markers.n; i++)
        if (v->markers.ids[i] == id)
            return true;
    return false;
}

static bool keep_id(struct sl_choice *c, uint32_t id) {
    struct sl_ids *ids = &c->ids;
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? 2 * ids->cap : 16;
        uint32_t *p = realloc(ids->ids, cap * sizeof *p);
        if (!p)
            return false;
        ids->ids = p;
        ids->cap = cap;
    }
    ids->ids[ids->n++] = id;
    return true;
}

static void choice_token(struct sl_choice *c, const struct sl_token *token,
                         struct sl_str *out_text) {
    struct sl_gen *g = c->gen;
    c->n_predicted++;
    c->n_unsorted++;
    if (g->keeps_ids && !keep_id(c, token->id)) {
        choice_fail(c, SL_ERR_NOMEM, NULL);
        return;
    }
    if (token->eog && (!g->params.ignore_eos || g->params.n_stop_ids))
        return;
    uint64_t start_byte = c->text_bytes + c->detok.n_pending, start_char = c->text_chars;
    struct sl_str text;
    bool marker = c->splitter && is_marker(g->served, token->id);
    enum sl_status status = sl_detok_push(&c->detok, g->served->tok, token->id, marker, &text);
    if (status != SL_OK) {
        choice_fail(c, status, NULL);
        return;
    }
    if (count_text(c, text) && g->params.logprobs)
        keep_logprobs(c, token, start_byte, start_char);
    if (c->done)
        return;
    bool stopped = false;
    if (c->n_predicted <= g->params.sampling.min_tokens)
        *out_text = text; /* no stop string ends it yet, and none begins here */
    else
        stopped = sl_stop_push(&c->stop, &g->params.stop, text.ptr, text.len, out_text);
    if (c->stop.held.failed) {
        choice_fail(c, SL_ERR_NOMEM, NULL);
        return;
    }
    c->shown_bytes += out_text->len;
    if (stopped)
        choice_stop(c);
    else
        show_logprobs(c, false);
}

/* ---- the echo ---- */

static uint64_t n_chars(const char *text, size_t n) {
    uint64_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    return chars;
}

/* A BOS that the echo's text does not show: it was put before a client's text. */
static bool is_unseen(const struct sl_served *v, uint32_t id, const char *echo) {
    struct sl_str piece = sl_tokenizer_piece(v->tok, id, true);
    return id == sl_tokenizer_bos(v->tok) &&
           (strlen(echo) < piece.len || memcmp(echo, piece.ptr, piece.len) != 0);
}

/* The tokens of a prompt that is echoed come before those of the answer. They are shown as they
 * are, whatever the stop strings say. */
static void tell_prompt(struct sl_choice *c) {
    const struct sl_gen *g = c->gen;
    const char *echo = g->echo[c->index / g->params.n];
    const uint64_t all = n_chars(echo, strlen(echo));
    struct sl_detok d = {0};
    uint64_t chars = 0;
    for (uint32_t i = 0; i < c->req.n_prompt && !c->done; i++) {
        const struct sl_token *t = &c->prompt_tokens[i];
        struct sl_str text;
        keep_logprobs(c, t, 0, chars < all ? chars : all);
        if (c->done)
            break;
        c->logprobs[c->n_logprobs - 1].first = i == 0;
        enum sl_status status = sl_detok_push(&d, g->served->tok, t->id, true, &text);
        if (status != SL_OK)
            choice_fail(c, status, NULL);
        else if (i || !is_unseen(g->served, t->id, echo))
            chars += n_chars(text.ptr, text.len);
    }
    sl_detok_release(&d);
    free(c->prompt_tokens);
    c->prompt_tokens = NULL;
    c->text_chars = all;
    c->n_shown_logprobs = c->n_content_logprobs = c->n_logprobs;
}

/* Takes one token or the end of the choice; false: there is nothing now. out_text: what can be
 * shown, valid until the next call. A failed choice sets g->failure. */
static bool choice_step(struct sl_choice *c, struct sl_str *out_text) {
    struct sl_token token;
    bool end;
    *out_text = (struct sl_str){"", 0};
    if (c->done)
        return false;
    bool have = sl_choice_take(c, &token, &end);
    if (!have && !end)
        return false;
    if (c->prompt_tokens && !c->prompt_told && (have || c->result.status == SL_OK)) {
        c->prompt_told = true;
        tell_prompt(c);
    }
    if (c->done)
        return true;
    if (have)
        choice_token(c, &token, out_text);
    else
        choice_end(c, out_text);
    return true;
}

/* ---------------------------------------------------------------------------- text to parts */

/* Log-probabilities go with content; those of tokens that became something else are dropped. */
static void sort_logprobs(struct sl_choice *c, bool content) {
    if (content) {
        c->n_content_logprobs = c->n_shown_logprobs;
        return;
    }
    uint32_t drop = c->n_shown_logprobs - c->n_content_logprobs;
    if (!drop)
        return;
    c->n_shown_logprobs -= drop;
    drop_logprobs(c, c->n_content_logprobs, drop);
}

/* Of a stream, when they are written. */
static void drop_content_logprobs(struct sl_choice *c) {
    uint32_t n = c->n_content_logprobs;
    if (!n)
        return;
    c->n_content_logprobs = 0;
    c->n_shown_logprobs -= n;
    drop_logprobs(c, 0, n);
}

/* The text of the last segment goes up to entry `end`, and begins where that of the one before it
 * ends. */
static void mark_logprobs(struct sl_segments *s, uint32_t end) {
    if (s->failed || !s->n || s->list[s->n - 1].kind != SL_PART_CONTENT)
        return;
    uint32_t i = s->n - 1;
    while (i > 0 && s->list[i - 1].kind != SL_PART_CONTENT)
        i--;
    s->list[s->n - 1].first_logprob = i ? s->list[i - 1].end_logprob : 0;
    s->list[s->n - 1].end_logprob = end;
}

static void take_part(struct sl_choice *c, const struct sl_part *part) {
    struct sl_gen *g = c->gen;
    bool content = part->kind == SL_PART_CONTENT;
    c->n_calls += part->kind == SL_PART_CALL;
    if (part->kind == SL_PART_REASONING)
        c->n_reasoning += c->n_unsorted;
    c->n_unsorted = 0;
    sort_logprobs(c, content);
    if (g->keeps_parts)
        sl_segments_add(&c->segments, part);
    if (content)
        mark_logprobs(&c->segments, c->n_content_logprobs);
    if (c->segments.failed) {
        choice_fail(c, SL_ERR_NOMEM, NULL);
        return;
    }
    if (!g->params.stream)
        return;
    if (part->text.len || part->kind == SL_PART_CALL || c->n_content_logprobs)
        g->renderer->part(&g->out, c, part);
    if (!g->keeps_parts)
        drop_content_logprobs(c);
}

void sl_choice_part(void *ctx, const struct sl_part *part) {
    struct sl_choice *c = ctx;
    if (!c->gen->failure.http_status)
        take_part(c, part);
}

/* The parts of some more text, or of an answer's last. */
static void split(struct sl_choice *c, struct sl_str text) {
    if (c->splitter) {
        enum sl_status status = sl_splitter_push(c->splitter, text.ptr, text.len);
        if (status == SL_OK && c->done)
            status = sl_splitter_finish(c->splitter, c->end == SL_END_LENGTH);
        if (status != SL_OK)
            choice_fail(c, status, NULL);
        else if (!c->done)
            hold_more(c, sl_splitter_held_bytes(c->splitter), &c->split_room, 1);
        return;
    }
    if (text.len || c->n_shown_logprobs > c->n_content_logprobs)
        take_part(c, &(struct sl_part){.kind = SL_PART_CONTENT, .text = text});
}

/* -------------------------------------------------------------------------- whole and streams */

static void cancel_all(struct sl_gen *g) {
    pthread_mutex_lock(&g->ex->lock);
    sl_gen_cancel_locked(g);
    pthread_mutex_unlock(&g->ex->lock);
}

static void put_echo(struct sl_choice *c) {
    const struct sl_gen *g = c->gen;
    const char *echo = g->echo ? g->echo[c->index / g->params.n] : NULL;
    if (!echo)
        return;
    struct sl_part part = {.kind = SL_PART_CONTENT, .text = {echo, strlen(echo)}};
    sl_segments_add(&c->segments, &part);
}

bool sl_gen_collect(struct sl_gen *g) {
    uint32_t n_done = 0;
    for (uint32_t i = 0; i < g->n_submitted; i++) {
        struct sl_choice *c = &g->choices[i];
        struct sl_str text;
        if (!c->opened) {
            c->opened = true;
            put_echo(c);
        }
        while (choice_step(c, &text) && !g->failure.http_status)
            split(c, text);
        n_done += c->done;
    }
    if (g->failure.http_status || !sl_gen_submit_more(g, n_done, &g->failure)) {
        cancel_all(g);
        return true;
    }
    return n_done == g->n_choices;
}

static void begin(struct sl_gen *g) {
    if (!g->begun && g->renderer->begin)
        g->renderer->begin(&g->out, g);
    g->begun = true;
}

static struct sl_prompt_progress progress_of(struct sl_gen *g) {
    pthread_mutex_lock(&g->ex->lock);
    struct sl_prompt_progress p = g->progress;
    pthread_mutex_unlock(&g->ex->lock);
    return p;
}

/* The first event has what was cached: what is computed later is measured from there. */
static void stream_progress(struct sl_gen *g) {
    if (!g->params.return_progress || !g->renderer->progress)
        return;
    struct sl_prompt_progress p = progress_of(g);
    if (p.n_done == g->n_told)
        return;
    begin(g);
    if (!g->n_told)
        g->renderer->progress(&g->out, g,
                              &(struct sl_prompt_progress){p.n_cached, p.n_cached, p.n_prompt, 0});
    g->renderer->progress(&g->out, g, &p);
    g->n_told = p.n_done;
}

/* One choice's events until there are none or enough. */
static void stream_choice(struct sl_gen *g, struct sl_choice *c) {
    const struct sl_renderer *r = g->renderer;
    struct sl_str text;
    while (g->out.len < STREAM_FILL_BYTES && choice_step(c, &text)) {
        if (g->failure.http_status)
            return;
        if (!c->opened) {
            c->opened = true;
            stream_progress(g); /* all of it comes before the answer */
            begin(g);
            if (r->open)
                r->open(&g->out, c);
            if (c->prompt_told && !g->keeps_parts) /* they went with the echo */
                drop_content_logprobs(c);
        }
        split(c, text);
        if (g->failure.http_status)
            return;
        if (c->done)
            r->finish(&g->out, c);
    }
}

bool sl_gen_stream(struct sl_gen *g) {
    if (g->ended)
        return true;
    bool all = true;
    stream_progress(g);
    for (uint32_t i = 0; i < g->n_choices && !g->failure.http_status; i++) {
        stream_choice(g, &g->choices[i]);
        all = all && g->choices[i].done;
    }
    if (g->failure.http_status) {
        begin(g);
        g->renderer->fail(&g->out, g, &g->failure);
        cancel_all(g);
        g->ended = true;
    } else if (all) {
        g->renderer->end(&g->out, g);
        g->ended = true;
    }
    return g->out.len > 0 || g->ended;
}

void sl_gen_keepalive(struct sl_gen *g) {
    struct sl_prompt_progress p = progress_of(g);
    if (g->renderer->lines)
        ; /* which have no comments */
    else if (p.n_done < p.n_prompt)
        sl_buf_printf(&g->out, ": prompt %u/%u\n\n", p.n_done, p.n_prompt);
    else
        sl_buf_puts(&g->out, ": keep-alive\n\n");
    begin(g);
    if (g->renderer->keepalive)
        g->renderer->keepalive(&g->out, g);
}
