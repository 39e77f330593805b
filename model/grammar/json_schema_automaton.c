/* Sets of strings written into a grammar: as they are, or as a deterministic automaton with a rule
 * for each state. */
#include "model/grammar/json_schema_regex.h"

#include <stdlib.h>
#include <string.h>

#define MAX_INTERVALS 2048u
#define MAX_SETS      1024u
#define MAX_CLASSES   256u
#define MAX_STATES    8192u
#define MAX_EDGES     (1u << 20)
#define NONE          UINT32_MAX

/* ---- characters ---- */

/* All but NUL and surrogates. */
static bool put_raw_ranges(struct sl_buf *b, const struct sl_rx_range *r, uint32_t n) {
    static const struct sl_rx_range text[] = {{1, 0xd7ff}, {0xe000, 0x10ffff}};
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t lo = r[i].lo > text[k].lo ? r[i].lo : text[k].lo;
            uint32_t hi = r[i].hi < text[k].hi ? r[i].hi : text[k].hi;
            if (lo > hi)
                continue;
            sl_buf_printf(b, "%s\\U%08X-\\U%08X", any ? "" : " [", lo, hi);
            any = true;
        }
    sl_buf_puts(b, any ? "]" : "");
    return any;
}

/* Characters as JSON writes them in a string: as they are, the quotation mark, backslash and
 * control characters escaped. Of control characters in a set that has others, only the usual ones.
 * False: none of them can be written. */
static bool put_ranges(const struct sl_schema *c, struct sl_buf *b, const struct sl_rx_range *r,
                       uint32_t n) {
    static const struct sl_rx_range raw[] = {
        {0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, 0x10ffff}};
    static const struct {
        uint32_t cp;
        const char *literal;
    } escaped[] = {{'"', "\\\\\\\""}, {'\\', "\\\\\\\\"}, {'\n', "\\\\n"}, {'\t', "\\\\t"},
                   {'\r', "\\\\r"},   {'\b', "\\\\b"},    {'\f', "\\\\f"}};
    bool any = false;
    if (c->raw)
        return put_raw_ranges(b, r, n);
    if (n == 1 && r[0].lo == 0 && r[0].hi == 0x10ffff) {
        sl_buf_puts(b, " " SL_SCHEMA_ANY_CHAR);
        return true;
    }
    sl_buf_puts(b, " (");
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t lo = r[i].lo > raw[k].lo ? r[i].lo : raw[k].lo;
            uint32_t hi = r[i].hi < raw[k].hi ? r[i].hi : raw[k].hi;
            if (lo > hi)
                continue;
            if (!any)
                sl_buf_puts(b, " [");
            any = true;
            sl_buf_printf(b, "\\U%08X-\\U%08X", lo, hi);
        }
    if (any)
        sl_buf_puts(b, "]");
    for (uint32_t k = 0; k < sizeof escaped / sizeof *escaped; k++)
        for (uint32_t i = 0; i < n; i++)
            if (r[i].lo <= escaped[k].cp && escaped[k].cp <= r[i].hi) {
                sl_buf_printf(b, "%s \"%s\"", any ? " |" : "", escaped[k].literal);
                any = true;
            }
    for (uint32_t i = 0; !any && i < n; i++)
        for (uint32_t cp = r[i].lo ? r[i].lo : 1; !any && cp <= r[i].hi && cp < 0x20; cp++) {
            sl_buf_printf(b, " \"\\\\u%04x\"", cp);
            any = true;
        }
    sl_buf_puts(b, " )");
    return any;
}

/* What stands behind a string, in a grammar. */
static const char *end_of(const struct sl_schema *c) {
    return c->raw ? "\"\"" : "\"\\\"\"";
}

/* ---- as it is ---- */

static enum sl_status too_long(struct sl_schema *c) {
    return sl_fail(c->err, SL_ERR_INVALID, "pattern: its grammar is longer than 4 MiB");
}

static enum sl_status put_direct(struct sl_schema *c, const struct sl_rx *x, uint32_t a,
                                 uint32_t depth, struct sl_buf *b) {
    enum sl_status status = SL_OK;
    const struct sl_rx_node *n = &x->nodes[a];
    if (b->len > SL_SCHEMA_MAX_TEXT || depth > 200)
        return too_long(c);
    switch (n->kind) {
    case SL_RX_K_EMPTY:
        sl_buf_puts(b, " \"\"");
        break;
    case SL_RX_K_SET:
        if (!put_ranges(c, b, x->ranges + x->sets[n->a].first, x->sets[n->a].n))
            return sl_fail(c->err, SL_ERR_INVALID,
                           "pattern: a class matches nothing that JSON can write");
        break;
    case SL_RX_K_CAT:
        for (; status == SL_OK && n->kind == SL_RX_K_CAT; n = &x->nodes[a]) {
            status = put_direct(c, x, n->a, depth + 1, b);
            a = n->b;
        }
        if (status == SL_OK)
            status = put_direct(c, x, a, depth + 1, b);
        break;
    case SL_RX_K_ALT:
        sl_buf_puts(b, " (");
        for (; status == SL_OK && n->kind == SL_RX_K_ALT; n = &x->nodes[a]) {
            status = put_direct(c, x, n->a, depth + 1, b);
            sl_buf_puts(b, " |");
            a = n->b;
        }
        if (status == SL_OK)
            status = put_direct(c, x, a, depth + 1, b);
        sl_buf_puts(b, " )");
        break;
    default: /* REPEAT: alternatives bring parentheses of their own */
        sl_buf_puts(b, " (");
        status = put_direct(c, x, n->a, depth + 1, b);
        sl_buf_puts(b, " )");
        sl_schema_put_counts(b, n->least, n->b);
    }
    return status;
}

/* ---- as an automaton ---- */

struct dfa {
    struct sl_rx *x;
    uint32_t *bounds; /* interval i: [bounds[i], bounds[i + 1]) */
    uint32_t *class_of;
    uint32_t n_intervals, n_classes;
    uint32_t at[MAX_CLASSES]; /* a character of each */
    uint32_t *nodes;          /* [n_states] */
    uint32_t *edges;          /* [n_states][n_classes] */
    uint32_t n_states, cap_states;
    uint32_t *state_of; /* by node: state + 1 */
    bool *live;
};

static void dfa_release(struct dfa *d) {
    free(d->bounds);
    free(d->class_of);
    free(d->nodes);
    free(d->edges);
    free(d->state_of);
    free(d->live);
}

static enum sl_status too_much(struct sl_rx *x) {
    sl_rx_fail(x, SL_ERR_INVALID,
               "pattern: it is too complex, alone or beside format, minLength and maxLength");
    return x->status;
}

static enum sl_status no_memory(struct sl_rx *x) {
    sl_rx_fail(x, SL_ERR_NOMEM, "out of memory");
    return x->status;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Characters that no set tells apart are one class. */
static enum sl_status find_classes(struct dfa *d) {
    struct sl_rx *x = d->x;
    uint32_t n = 0, words = (x->n_sets + 63) / 64;
    if (x->n_sets > MAX_SETS || x->n_ranges > MAX_INTERVALS / 2 - 1)
        return too_much(x);
    d->bounds = malloc((2 * (size_t)x->n_ranges + 2) * sizeof *d->bounds);
    uint64_t *sign = calloc((2 * (size_t)x->n_ranges + 2) * words, sizeof *sign);
    d->class_of = calloc(2 * (size_t)x->n_ranges + 2, sizeof *d->class_of);
    if (!d->bounds || !sign || !d->class_of) {
        free(sign);
        return no_memory(x);
    }
    d->bounds[n++] = 0;
    for (uint32_t i = 0; i < x->n_ranges; i++) {
        d->bounds[n++] = x->ranges[i].lo;
        d->bounds[n++] = x->ranges[i].hi + 1;
    }
    qsort(d->bounds, n, sizeof *d->bounds, by_value);
    uint32_t k = 0;
    for (uint32_t i = 1; i < n; i++)
        if (d->bounds[i] != d->bounds[k])
            d->bounds[++k] = d->bounds[i];
    d->n_intervals = k; /* the last bound is the end: SL_RX_ANY's set is there */
    for (uint32_t s = 0; s < x->n_sets; s++)
        for (uint32_t i = 0, r = 0; i < k && r < x->sets[s].n;) {
            const struct sl_rx_range *one = &x->ranges[x->sets[s].first + r];
            if (one->hi < d->bounds[i]) {
                r++;
            } else {
                if (one->lo <= d->bounds[i])
                    sign[(size_t)i * words + s / 64] |= 1ull << (s % 64);
                i++;
            }
        }
    uint32_t first[MAX_CLASSES];
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < k && status == SL_OK; i++) {
        uint32_t cls = 0;
        while (cls < d->n_classes && memcmp(sign + (size_t)first[cls] * words,
                                            sign + (size_t)i * words, words * sizeof *sign) != 0)
            cls++;
        if (cls == MAX_CLASSES) {
            status = too_much(x);
        } else {
            if (cls == d->n_classes) {
                first[cls] = i;
                d->at[cls] = d->bounds[i];
                d->n_classes++;
            }
            d->class_of[i] = cls;
        }
    }
    free(sign);
    return status;
}

static enum sl_status state_of(struct dfa *d, uint32_t node, uint32_t *out_state) {
    if (d->state_of[node]) {
        *out_state = d->state_of[node] - 1;
        return SL_OK;
    }
    if (d->n_states == d->cap_states) {
        uint32_t cap = d->cap_states ? 2 * d->cap_states : 64;
        if (cap > MAX_STATES || (uint64_t)cap * d->n_classes > MAX_EDGES)
            return too_much(d->x);
        uint32_t *nodes = realloc(d->nodes, cap * sizeof *nodes);
        if (!nodes)
            return no_memory(d->x);
        d->nodes = nodes;
        uint32_t *edges = realloc(d->edges, (size_t)cap * d->n_classes * sizeof *edges);
        if (!edges)
            return no_memory(d->x);
        d->edges = edges;
        d->cap_states = cap;
    }
    d->nodes[d->n_states] = node;
    d->state_of[node] = ++d->n_states;
    *out_state = d->n_states - 1;
    return SL_OK;
}

/* live: states from which an end can be reached. */
static enum sl_status find_live(struct dfa *d) {
    uint32_t n = d->n_states, k = d->n_classes, n_todo = 0;
    uint32_t *from = calloc((size_t)n + 2, sizeof *from), *todo = malloc(n * sizeof *todo);
    uint32_t *back = malloc((size_t)n * k * sizeof *back);
    d->live = calloc(n, sizeof *d->live);
    enum sl_status status = from && todo && back && d->live ? SL_OK : no_memory(d->x);
    if (status == SL_OK) {
        for (size_t e = 0; e < (size_t)n * k; e++)
            if (d->edges[e] != NONE)
                from[d->edges[e] + 2]++;
        for (uint32_t i = 2; i < n + 2; i++)
            from[i] += from[i - 1];
        for (size_t e = 0; e < (size_t)n * k; e++)
            if (d->edges[e] != NONE)
                back[from[d->edges[e] + 1]++] = (uint32_t)(e / k);
        for (uint32_t i = 0; i < n; i++)
            if (d->x->nodes[d->nodes[i]].nullable) {
                d->live[i] = true;
                todo[n_todo++] = i;
            }
        while (n_todo) {
            uint32_t i = todo[--n_todo];
            for (uint32_t e = from[i]; e < from[i + 1]; e++)
                if (!d->live[back[e]]) {
                    d->live[back[e]] = true;
                    todo[n_todo++] = back[e];
                }
        }
    }
    free(from);
    free(todo);
    free(back);
    return status;
}

static enum sl_status dfa_build(struct dfa *d, struct sl_rx *x, uint32_t start) {
    uint32_t state;
    *d = (struct dfa){.x = x};
    enum sl_status status = x->status;
    if (status == SL_OK)
        status = find_classes(d);
    size_t cap = 1u << 18;
    d->state_of = status == SL_OK ? calloc(cap, sizeof *d->state_of) : NULL;
    if (status == SL_OK && !d->state_of)
        status = no_memory(x);
    if (status == SL_OK)
        status = state_of(d, start, &state);
    bool writable[MAX_CLASSES];
    for (uint32_t i = 0; status == SL_OK && i < d->n_classes; i++)
        writable[i] = false;
    for (uint32_t i = 0; status == SL_OK && i < d->n_intervals; i++) {
        uint32_t lo = d->bounds[i], hi = d->bounds[i + 1] - 1;
        if (hi > 0 && !(lo >= 0xd800 && hi <= 0xdfff))
            writable[d->class_of[i]] = true;
    }
    for (uint32_t i = 0; status == SL_OK && i < d->n_states; i++)
        for (uint32_t cls = 0; status == SL_OK && cls < d->n_classes; cls++) {
            uint32_t to = writable[cls] ? sl_rx_derive(x, d->nodes[i], d->at[cls]) : SL_RX_NONE;
            status = x->status;
            state = NONE;
            if (status == SL_OK && to != SL_RX_NONE)
                status = state_of(d, to, &state);
            if (status == SL_OK)
                d->edges[(size_t)i * d->n_classes + cls] = state;
        }
    if (status == SL_OK)
        status = find_live(d);
    return status;
}

/* The characters with which state i goes on to another. */
static uint32_t edge_ranges(const struct dfa *d, uint32_t i, uint32_t to, struct sl_rx_range *r) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < d->n_intervals; k++) {
        if (d->edges[(size_t)i * d->n_classes + d->class_of[k]] != to)
            continue;
        if (n && r[n - 1].hi + 1 == d->bounds[k])
            r[n - 1].hi = d->bounds[k + 1] - 1;
        else
            r[n++] = (struct sl_rx_range){d->bounds[k], d->bounds[k + 1] - 1};
    }
    return n;
}

static enum sl_status put_state(struct sl_schema *c, const struct dfa *d, const uint32_t *rules,
                                uint32_t i, struct sl_rx_range *r) {
    struct sl_buf *o = c->out;
    const uint32_t *edges = &d->edges[(size_t)i * d->n_classes];
    bool any = false;
    sl_buf_printf(o, "q%u ::=", rules[i]);
    if (d->nodes[i] == SL_RX_ANY) {
        static const struct sl_rx_range all = {0, 0x10ffff};
        put_ranges(c, o, &all, 1);
        sl_buf_printf(o, "* %s\n", end_of(c));
        return SL_OK;
    }
    uint32_t n = edge_ranges(d, i, i, r);
    if (n) {
        put_ranges(c, o, r, n);
        sl_buf_puts(o, "*");
    }
    sl_buf_puts(o, " (");
    if (d->x->nodes[d->nodes[i]].nullable) {
        sl_buf_printf(o, " %s", end_of(c));
        any = true;
    }
    for (uint32_t cls = 0; cls < d->n_classes; cls++) {
        uint32_t to = edges[cls], before = 0;
        while (before < cls && edges[before] != to)
            before++;
        if (to == NONE || to == i || before < cls || !d->live[to])
            continue;
        sl_buf_puts(o, any ? " |" : "");
        put_ranges(c, o, r, edge_ranges(d, i, to, r));
        sl_buf_printf(o, " q%u", rules[to]);
        any = true;
    }
    sl_buf_puts(o, " )\n");
    return o->len > SL_SCHEMA_MAX_TEXT ? too_long(c) : SL_OK;
}

static enum sl_status put_automaton(struct sl_schema *c, struct sl_rx *x, uint32_t a,
                                    struct sl_buf *b) {
    struct dfa d;
    uint32_t *rules = NULL;
    struct sl_rx_range *r = NULL;
    enum sl_status status = dfa_build(&d, x, a);
    if (status == SL_OK && !d.live[0])
        status = SL_SCHEMA_NOTHING(c, "pattern: no string is allowed by all that is said about it");
    if (status == SL_OK) {
        rules = malloc(d.n_states * sizeof *rules);
        r = malloc((d.n_intervals + 1) * sizeof *r);
        if (!rules || !r)
            status = sl_schema_no_memory(c);
    }
    for (uint32_t i = 0; status == SL_OK && i < d.n_states; i++)
        if (d.live[i])
            rules[i] = c->n_rules++;
    if (status == SL_OK && c->n_rules > SL_SCHEMA_MAX_RULES)
        status = too_much(x);
    for (uint32_t i = 0; status == SL_OK && i < d.n_states; i++)
        if (d.live[i])
            status = put_state(c, &d, rules, i, r);
    if (status == SL_OK)
        sl_buf_printf(b, " q%u", rules[0]);
    free(rules);
    free(r);
    dfa_release(&d);
    return status;
}

enum sl_status sl_rx_put(struct sl_schema *c, struct sl_rx *x, uint32_t a, struct sl_buf *b) {
    if (x->status != SL_OK)
        return x->status;
    if (a == SL_RX_NONE)
        return SL_SCHEMA_NOTHING(c, "pattern: no string is allowed by all that is said about it");
    if (!x->nodes[a].direct)
        return put_automaton(c, x, a, b);
    enum sl_status status = put_direct(c, x, a, 0, b);
    sl_buf_printf(b, " %s", end_of(c));
    return status;
}

bool sl_rx_is_empty(struct sl_rx *x, uint32_t a) {
    struct dfa d;
    if (x->status != SL_OK || a <= SL_RX_ANY)
        return a == SL_RX_NONE;
    bool empty = dfa_build(&d, x, a) == SL_OK && !d.live[0];
    dfa_release(&d);
    return empty;
}
