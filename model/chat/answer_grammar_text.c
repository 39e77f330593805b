/* Text between markers: what holds none of them, as rules. Source: Aho and Corasick 1975; each of
 * the automaton's states becomes a rule that ends in a call of the next one. */
#include "model/chat/answer_grammar_internal.h"

#include "common/utf8.h"

#include <string.h>

#define MAX_STATES  256u
#define MAX_MARKERS 4u

struct state {
    uint32_t cp; /* of the edge to it */
    uint16_t parent, fail;
    bool is_end; /* a marker is complete here */
};

struct machine {
    struct state s[MAX_STATES];
    uint32_t n;
};

/* The control token that stands at the start of text; SL_NO_TOKEN: none. The longest. */
static uint32_t token_at(const struct sl_answer_rules *c, const char *text, size_t *out_len) {
    uint32_t best = SL_NO_TOKEN;
    *out_len = 0;
    for (size_t i = 0; i < c->tokens.n; i++) {
        struct sl_str t = sl_tokenizer_piece(c->g->tok, c->tokens.ids[i], true);
        if (t.len > *out_len && strncmp(text, t.ptr, t.len) == 0) {
            best = c->tokens.ids[i];
            *out_len = t.len;
        }
    }
    return best;
}

void sl_answer_put_marker(struct sl_answer_rules *c, struct sl_buf *b, const char *text) {
    size_t from = 0, at = 0, len;
    while (text && text[at]) {
        uint32_t token = token_at(c, text + at, &len);
        if (token == SL_NO_TOKEN) {
            at++;
            continue;
        }
        if (at > from) {
            sl_json_schema_literal(b, text + from, at - from);
            sl_buf_puts(b, " ");
        }
        sl_buf_printf(b, "<[%u]> ", token);
        at += len;
        from = at;
    }
    if (at > from) {
        sl_json_schema_literal(b, text + from, at - from);
        sl_buf_puts(b, " ");
    }
}

static bool has_token(const struct sl_answer_rules *c, const char *text) {
    size_t len;
    for (; *text; text++)
        if (token_at(c, text, &len) != SL_NO_TOKEN)
            return true;
    return false;
}

static uint32_t child(const struct machine *m, uint32_t state, uint32_t cp) {
    for (uint32_t i = 1; i < m->n; i++)
        if (m->s[i].parent == state && m->s[i].cp == cp)
            return i;
    return 0;
}

static uint32_t step(const struct machine *m, uint32_t state, uint32_t cp) {
    for (;;) {
        uint32_t next = child(m, state, cp);
        if (next || state == 0)
            return next;
        state = m->s[state].fail;
    }
}

static bool add(struct machine *m, const char *text) {
    uint32_t at = 0;
    for (size_t i = 0, n = strlen(text); i < n;) {
        uint32_t len = sl_utf8_len((const unsigned char *)text + i, n - i);
        uint32_t cp = sl_utf8_get((const unsigned char *)text + i, len);
        uint32_t next = child(m, at, cp);
        if (!next) {
            if (m->n == MAX_STATES)
                return false;
            next = m->n++;
            m->s[next] = (struct state){.cp = cp, .parent = (uint16_t)at};
        }
        at = next;
        i += len;
    }
    m->s[at].is_end = true;
    return true;
}

/* Shallow states have the lower numbers within a marker, and a fail is shallower than its state:
 * one round for each depth is enough. */
static void link_fails(struct machine *m) {
    for (uint32_t round = 0; round < m->n; round++) {
        bool changed = false;
        for (uint32_t i = 1; i < m->n; i++) {
            struct state *s = &m->s[i];
            uint32_t fail = s->parent ? step(m, m->s[s->parent].fail, s->cp) : 0;
            bool is_end = s->is_end || m->s[fail].is_end;
            changed = changed || fail != s->fail || is_end != s->is_end;
            s->fail = (uint16_t)fail;
            s->is_end = is_end;
        }
        if (!changed)
            break;
    }
}

static bool seen_before(const struct machine *m, uint32_t i) {
    for (uint32_t k = 1; k < i; k++)
        if (m->s[k].cp == m->s[i].cp)
            return true;
    return false;
}

static void put_state(const struct machine *m, struct sl_buf *b, uint32_t rule, uint32_t state) {
    sl_buf_printf(b, "sl-t%u-%u ::= ", rule, state);
    for (uint32_t i = 1; i < m->n; i++) {
        uint32_t next = seen_before(m, i) ? 0 : step(m, state, m->s[i].cp);
        if (next && !m->s[next].is_end)
            sl_buf_printf(b, "[\\U%08X] sl-t%u-%u | ", m->s[i].cp, rule, next);
    }
    sl_buf_puts(b, "[^");
    for (uint32_t i = 1; i < m->n; i++)
        if (!seen_before(m, i) && step(m, state, m->s[i].cp))
            sl_buf_printf(b, "\\U%08X", m->s[i].cp);
    sl_buf_printf(b, "] sl-t%u-0 | \"\"\n", rule);
}

enum sl_status sl_answer_free_text(struct sl_answer_rules *c, const char *const *markers,
                                   uint32_t n, uint32_t *out_rule) {
    struct machine m = {.n = 1};
    *out_rule = c->n_texts++;
    for (uint32_t i = 0; i < n; i++)
        /* A marker with a control token in it cannot come about as text. */
        if (markers[i] && !has_token(c, markers[i]) && !add(&m, markers[i]))
            return sl_fail(c->err, SL_ERR_INVALID, "the format's markers are too long");
    if (m.n == 1) {
        sl_buf_printf(c->b, "sl-t%u-0 ::= .*\n", *out_rule);
        return SL_OK;
    }
    link_fails(&m);
    for (uint32_t i = 0; i < m.n; i++)
        if (!m.s[i].is_end)
            put_state(&m, c->b, *out_rule, i);
    return SL_OK;
}
