#include "server/answer/splitter_internal.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_BUFFERS_BYTES 4096u /* of all buffers, however short the answer */

void sl_split_emit(struct sl_splitter *s, enum sl_part_kind kind, const char *text, size_t len) {
    if (len == 0 && kind != SL_PART_CALL)
        return;
    struct sl_part part = {kind, 0, {text, len}};
    if (kind == SL_PART_CALL || kind == SL_PART_ARGUMENTS)
        part.call = s->n_calls;
    else
        s->said[kind == SL_PART_REASONING] = true;
    s->sink(s->ctx, &part);
}

void sl_split_take(struct sl_splitter *s, size_t n) {
    if (s->keep_raw)
        sl_buf_put(&s->raw, sl_split_text(s), n);
    s->pos += n;
    s->n -= n;
}

static size_t space_end(const struct sl_splitter *s, size_t from, size_t most) {
    size_t end = s->n < most ? s->n : most;
    while (from < end && sl_split_is_space(sl_split_text(s)[from]))
        from++;
    return from;
}

size_t sl_split_space(const struct sl_splitter *s, size_t from) {
    return space_end(s, from, from + SL_SPLIT_SPACE_BYTES);
}

enum sl_split_match sl_split_at(const struct sl_splitter *s, size_t at, const char *marker) {
    if (!marker)
        return SL_SPLIT_NO;
    size_t len = strlen(marker), have = at < s->n ? s->n - at : 0;
    size_t n = have < len ? have : len;
    if (n && memcmp(sl_split_text(s) + at, marker, n) != 0)
        return SL_SPLIT_NO;
    return n == len ? SL_SPLIT_YES : s->ended ? SL_SPLIT_NO : SL_SPLIT_MAYBE;
}

bool sl_split_close(struct sl_splitter *s, size_t at, const char *marker) {
    enum sl_split_match m = sl_split_at(s, at, marker);
    if (m == SL_SPLIT_MAYBE)
        return false;
    if (m == SL_SPLIT_YES)
        sl_split_take(s, at + strlen(marker));
    s->state = SL_SPLIT_NEXT;
    return true;
}

enum sl_split_match sl_split_find(const struct sl_splitter *s, size_t from, size_t most,
                                  const char *const *markers, uint32_t n, size_t *out_at,
                                  uint32_t *out_which) {
    size_t end = s->n < most ? s->n : most;
    for (size_t i = from; i < end; i++) {
        bool maybe = false;
        size_t longest = 0;
        for (uint32_t k = 0; k < n; k++) {
            if (!markers[k] || sl_split_text(s)[i] != markers[k][0])
                continue;
            enum sl_split_match m = sl_split_at(s, i, markers[k]);
            if (m == SL_SPLIT_YES && strlen(markers[k]) > longest) {
                longest = strlen(markers[k]);
                *out_which = k;
            }
            maybe = maybe || m == SL_SPLIT_MAYBE;
        }
        if (maybe || longest) {
            *out_at = i;
            return maybe ? SL_SPLIT_MAYBE : SL_SPLIT_YES;
        }
    }
    *out_at = end;
    return SL_SPLIT_NO;
}

/* ---- text ---- */

/* Gives out the first n bytes but for white space at their end, which stays. */
static void emit_text(struct sl_splitter *s, enum sl_part_kind kind, size_t n) {
    const char *text = sl_split_text(s);
    size_t keep = 0;
    while (keep < n && keep < SL_SPLIT_SPACE_BYTES && sl_split_is_space(text[n - 1 - keep]))
        keep++;
    sl_split_emit(s, kind, text, n - keep);
    sl_split_take(s, n - keep);
}

static bool strip(struct sl_splitter *s) {
    if (s->strip)
        sl_split_take(s, space_end(s, 0, SIZE_MAX));
    s->strip = s->strip && s->n == 0;
    return s->n > 0;
}

/* The markers around the content, which are dropped. */
#define N_AROUND 3u

static void get_around(const struct sl_splitter *s, const char *out[N_AROUND]) {
    const struct sl_answer_format *f = s->f;
    bool reads = s->config->thinks || s->config->tools;
    out[0] = reads ? f->content_open : NULL;
    out[1] = reads ? f->content_close : NULL;
    out[2] = reads ? f->answer_close : NULL;
}

static bool start_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t at = sl_split_space(s, 0);
    if (f->syntax == SL_CALL_HARMONY) {
        s->state = SL_SPLIT_MESSAGE;
        return true;
    }
    if (at == s->n && !s->ended)
        return false;
    enum sl_split_match think = s->config->thinks ? sl_split_at(s, at, f->think_open) : SL_SPLIT_NO;
    if (think == SL_SPLIT_MAYBE)
        return false;
    if (think == SL_SPLIT_YES) {
        sl_split_take(s, at + strlen(f->think_open));
        s->state = SL_SPLIT_REASONING;
        s->strip = true;
        return true;
    }
    const char *around[N_AROUND];
    size_t n_at;
    uint32_t which;
    get_around(s, around);
    enum sl_split_match text = sl_split_find(s, at, at + 1, around, N_AROUND, &n_at, &which);
    if (text == SL_SPLIT_MAYBE)
        return false;
    if (text == SL_SPLIT_YES) { /* a call without a marker may follow */
        sl_split_take(s, at + strlen(around[which]));
        return s->strip = true;
    }
    /* Reasoning that is closed and was not opened: there shall be none. */
    enum sl_split_match close =
        s->config->thinks ? sl_split_at(s, at, f->think_close) : SL_SPLIT_NO;
    if (close == SL_SPLIT_YES) {
        sl_split_take(s, at + strlen(f->think_close));
        s->state = SL_SPLIT_CONTENT;
        return s->strip = true;
    }
    enum sl_split_match call = sl_split_bare(s, at);
    if (close == SL_SPLIT_MAYBE || call == SL_SPLIT_MAYBE)
        return false;
    if (call == SL_SPLIT_NO)
        s->state = SL_SPLIT_CONTENT;
    return true;
}

static bool reasoning_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    if (!strip(s))
        return false;
    /* Some models begin with the marker that the prompt ended with. */
    if (!s->said[1]) {
        enum sl_split_match again = sl_split_at(s, 0, f->think_open);
        if (again == SL_SPLIT_MAYBE)
            return false;
        if (again == SL_SPLIT_YES) {
            sl_split_take(s, strlen(f->think_open));
            return s->strip = true;
        }
    }
    /* Kimi's, DeepSeek's and Ling's open calls out of the reasoning as well. */
    bool tools = s->config->tools != NULL;
    const char *const ends[] = {f->think_close, tools ? f->section_open : NULL,
                                tools && f->think_calls ? f->call_open : NULL};
    size_t at;
    uint32_t which = 0;
    enum sl_split_match m = sl_split_find(s, 0, SIZE_MAX, ends, 3, &at, &which);
    emit_text(s, SL_PART_REASONING, at);
    if (m != SL_SPLIT_YES) {
        if (s->ended) {
            sl_split_emit(s, SL_PART_REASONING, sl_split_text(s), s->n);
            sl_split_take(s, s->n);
        }
        return false;
    }
    sl_split_take(s, sl_split_space(s, 0));
    if (which == 0)
        sl_split_take(s, strlen(f->think_close));
    s->state = SL_SPLIT_CONTENT;
    s->strip = true;
    if (s->config->tools && f->bare)
        s->state = SL_SPLIT_START;
    return true;
}

/* What begins a call in content; the order says what follows. */
enum { OPEN_SECTION, OPEN_CALL, OPEN_NAME, OPEN_CHANNEL, OPEN_MESSAGE, N_OPEN };

static void openers(const struct sl_splitter *s, const char *out[N_OPEN]) {
    const struct sl_answer_format *f = s->f;
    memset(out, 0, N_OPEN * sizeof *out);
    if (f->syntax == SL_CALL_HARMONY) {
        out[OPEN_CHANNEL] = "<|channel|>";
        out[OPEN_MESSAGE] = "<|start|>";
    } else if (s->config->tools) {
        out[OPEN_SECTION] = f->section_open;
        out[OPEN_CALL] = f->call_open;
        if (f->optional_open || !f->call_open)
            out[OPEN_NAME] = f->name_open;
    }
}

static void opened(struct sl_splitter *s, uint32_t which) {
    const struct sl_answer_format *f = s->f;
    if (which == OPEN_SECTION) {
        sl_split_take(s, strlen(f->section_open));
        s->state = SL_SPLIT_NEXT;
        return;
    }
    if (which == OPEN_CALL)
        sl_split_take(s, strlen(f->call_open));
    s->in_array = false;
    s->state = which >= OPEN_CHANNEL ? SL_SPLIT_HEADER : sl_split_call_state(s);
}

static bool content_step(struct sl_splitter *s) {
    const char *open[N_AROUND + N_OPEN];
    size_t at;
    uint32_t which = 0;
    if (!strip(s))
        return false;
    get_around(s, open);
    openers(s, open + N_AROUND);
    bool any = false;
    for (uint32_t i = 0; i < N_AROUND + N_OPEN; i++)
        any = any || open[i];
    enum sl_split_match m =
        any ? sl_split_find(s, 0, SIZE_MAX, open, N_AROUND + N_OPEN, &at, &which) : SL_SPLIT_NO;
    if (m == SL_SPLIT_YES && which < N_AROUND) {
        emit_text(s, SL_PART_CONTENT, at);
        sl_split_take(s, sl_split_space(s, 0));
        sl_split_take(s, strlen(open[which]));
        s->state = s->f->bare ? SL_SPLIT_START : SL_SPLIT_CONTENT;
        return s->strip = true;
    }
    if (m == SL_SPLIT_YES) {
        which -= N_AROUND;
        emit_text(s, SL_PART_CONTENT, at);
        sl_split_call_begin(s);
        sl_split_take(s, sl_split_space(s, 0));
        opened(s, which);
        return true;
    }
    if (!any || s->ended) {
        sl_split_emit(s, SL_PART_CONTENT, sl_split_text(s), s->n);
        sl_split_take(s, s->n);
    } else {
        emit_text(s, SL_PART_CONTENT, at);
    }
    return false;
}

static bool next_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t at = sl_split_space(s, 0);
    if (f->bare && at < s->n && (sl_split_text(s)[at] == ';' || sl_split_text(s)[at] == ','))
        at = sl_split_space(s, at + 1);
    if (at == s->n)
        return false;
    const char *open[N_OPEN];
    openers(s, open);
    open[OPEN_SECTION] = NULL;
    bool maybe = false;
    for (uint32_t i = 0; i < N_OPEN; i++) {
        enum sl_split_match m = sl_split_at(s, at, open[i]);
        maybe = maybe || m == SL_SPLIT_MAYBE;
        if (m != SL_SPLIT_YES)
            continue;
        if (!s->in_call)
            sl_split_call_begin(s);
        sl_split_take(s, at);
        opened(s, i);
        return true;
    }
    enum sl_split_match close = sl_split_at(s, at, f->section_close);
    if (close == SL_SPLIT_YES && !s->in_call) {
        sl_split_take(s, at + strlen(f->section_close));
        s->state = SL_SPLIT_CONTENT;
        return s->strip = true;
    }
    if (maybe || close == SL_SPLIT_MAYBE)
        return false;
    enum sl_split_match call = s->in_call ? SL_SPLIT_NO : sl_split_bare(s, at);
    if (call != SL_SPLIT_NO)
        return call == SL_SPLIT_YES;
    if (s->in_call) /* a section opened and no call in it */
        return sl_split_call_fail(s);
    s->state = SL_SPLIT_CONTENT;
    return s->strip = true;
}

static bool step(struct sl_splitter *s) {
    switch (s->state) {
    case SL_SPLIT_START:
        return start_step(s);
    case SL_SPLIT_REASONING:
        return reasoning_step(s);
    case SL_SPLIT_CONTENT:
        return content_step(s);
    case SL_SPLIT_NEXT:
        return next_step(s);
    default:
        if (s->state <= SL_SPLIT_JSON_CLOSE)
            return sl_split_json(s);
        if (s->state <= SL_SPLIT_NAME_CLOSE)
            return sl_split_named(s);
        if (s->state <= SL_SPLIT_TAG_CLOSE)
            return sl_split_tagged(s);
        return s->state <= SL_SPLIT_LITERAL_CLOSE ? sl_split_literal(s) : sl_split_harmony(s);
    }
}

size_t sl_split_unfinished(const char *text, size_t n) {
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)text[n - k];
        if (c < 0x80)
            return 0;
        if (c >= 0xc0)
            return (size_t)(c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2) > k ? k : 0;
    }
    return 0;
}

static enum sl_status run(struct sl_splitter *s) {
    s->n = s->held.len - s->pos;
    if (!s->ended && s->n)
        s->n -= sl_split_unfinished(sl_split_text(s), s->n);
    while (step(s))
        ;
    if (s->pos == s->held.len) {
        sl_buf_clear(&s->held);
        s->pos = 0;
    } else if (s->pos > 4096 && s->pos > s->held.len / 2) {
        memmove(s->held.ptr, s->held.ptr + s->pos, s->held.len - s->pos);
        s->held.len -= s->pos;
        s->pos = 0;
    }
    bool failed = s->held.failed || s->raw.failed || s->arguments.failed || s->fragment.failed ||
                  s->early.failed;
    return failed ? SL_ERR_NOMEM : SL_OK;
}

enum sl_status sl_splitter_push(struct sl_splitter *s, const char *text, size_t len) {
    if (len == 0 || s->ended)
        return SL_OK;
    sl_buf_put(&s->held, text, len);
    return s->held.failed ? SL_ERR_NOMEM : run(s);
}

enum sl_status sl_splitter_finish(struct sl_splitter *s, bool cut) {
    if (s->ended)
        return SL_OK;
    s->ended = true;
    sl_buf_reserve(&s->held, 1); /* so that there is a text, if an empty one */
    enum sl_status status = s->held.failed ? SL_ERR_NOMEM : run(s);
    /* Each call that fails is behind us, so this ends. */
    while (status == SL_OK && s->in_call) {
        if (cut && s->called) {
            if (s->state == SL_SPLIT_TAG_STRING || s->state == SL_SPLIT_TAG_VALUE)
                sl_split_tagged_cut(s);
            sl_split_call_done(s);
            break;
        }
        sl_split_call_fail(s);
        status = run(s);
    }
    return status;
}

uint64_t sl_splitter_held_bytes(const struct sl_splitter *s) {
    return sizeof *s + s->held.cap + s->raw.cap + s->arguments.cap + s->fragment.cap + s->early.cap;
}

uint64_t sl_splitter_memory_bytes(const struct sl_splitter_config *config, uint64_t n_tokens) {
    /* Some four bytes a token, in buffers that grow by doubling; a call is there raw, as arguments
     * and as the fragment that it becomes. A stream holds some of it only. */
    uint64_t held = config->tools ? n_tokens * 24 : n_tokens * 8;
    uint64_t most = 6 * (uint64_t)SL_SPLIT_HELD_BYTES;
    bool whole = config->hold_calls;
    return sizeof(struct sl_splitter) + LEAST_BUFFERS_BYTES + (whole || held < most ? held : most);
}

uint32_t sl_splitter_n_calls(const struct sl_splitter *s) {
    return s->n_calls;
}

enum sl_status sl_splitter_create(const struct sl_splitter_config *config, sl_part_sink sink,
                                  void *ctx, struct sl_splitter **out_splitter) {
    struct sl_splitter *s = calloc(1, sizeof *s);
    if (!s)
        return SL_ERR_NOMEM;
    s->config = config;
    s->f = config->format;
    s->sink = sink;
    s->ctx = ctx;
    if (config->in_reasoning && config->thinks && s->f->think_close) {
        s->state = SL_SPLIT_REASONING;
        s->strip = true;
    }
    if (s->f->syntax == SL_CALL_HARMONY && config->header.len) {
        sl_buf_put(&s->held, config->header.ptr, config->header.len);
        s->state = SL_SPLIT_HEADER;
        sl_split_call_begin(s);
        s->prompt_bytes = config->header.len;
        if (s->held.failed)
            sl_splitter_destroy(&s);
    }
    *out_splitter = s;
    return s ? SL_OK : SL_ERR_NOMEM;
}

void sl_splitter_destroy(struct sl_splitter **p) {
    struct sl_splitter *s = *p;
    if (!s)
        return;
    sl_buf_release(&s->held);
    sl_buf_release(&s->raw);
    sl_buf_release(&s->arguments);
    sl_buf_release(&s->fragment);
    sl_buf_release(&s->early);
    free(s);
    *p = NULL;
}
