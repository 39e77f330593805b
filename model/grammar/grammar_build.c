/* Builds the graph of a grammar: fragments of nodes, character classes. */
#include "model/grammar/grammar_internal.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

/* A fragment of more nodes than this is repeated as calls of a rule, not as copies. */
#define COPY_MAX_NODES 12u

static bool grow(void **array, uint32_t *cap, uint32_t n, size_t item_bytes) {
    if (n < *cap)
        return true;
    uint32_t want = *cap ? *cap * 2 : 64;
    void *p = realloc(*array, want * item_bytes);
    if (!p)
        return false;
    *array = p;
    *cap = want;
    return true;
}

enum sl_status sl_g_node(struct sl_grammar *g, uint8_t kind, uint32_t next, uint32_t alt,
                         uint32_t *out_node, struct sl_err *err) {
    if (g->n_nodes == SL_GRAMMAR_MAX_NODES)
        return sl_fail(err, SL_ERR_INVALID,
                       "the grammar has more than %u nodes: use fewer or smaller repetitions, "
                       "enumerations or literals",
                       SL_GRAMMAR_MAX_NODES);
    if (!grow((void **)&g->nodes, &g->cap_nodes, g->n_nodes, sizeof *g->nodes))
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    g->nodes[g->n_nodes] = (struct sl_gnode){.kind = kind, .next = next, .alt = alt};
    *out_node = g->n_nodes++;
    return SL_OK;
}

enum sl_status sl_g_rule(struct sl_grammar *g, uint32_t start, uint32_t *out_rule,
                         struct sl_err *err) {
    /* Powers of two from 64 up. */
    if (g->n_rules == 0 || (g->n_rules >= 64 && (g->n_rules & (g->n_rules - 1)) == 0)) {
        uint32_t cap = g->n_rules ? g->n_rules * 2 : 64;
        uint32_t *p = realloc(g->rule_start, cap * sizeof *p);
        if (!p)
            return sl_fail(err, SL_ERR_NOMEM, "out of memory");
        g->rule_start = p;
    }
    g->rule_start[g->n_rules] = start;
    *out_rule = g->n_rules++;
    return SL_OK;
}

static enum sl_status close_frag(struct sl_grammar *g, struct sl_gfrag *f, struct sl_err *err) {
    enum sl_status status = sl_g_node(g, SL_G_JUMP, SL_G_NONE, SL_G_NONE, &f->exit, err);
    f->end = g->n_nodes;
    return status;
}

enum sl_status sl_g_empty(struct sl_grammar *g, struct sl_gfrag *f, struct sl_err *err) {
    f->first = f->start = g->n_nodes;
    return close_frag(g, f, err);
}

enum sl_status sl_g_literal(struct sl_grammar *g, const char *bytes, size_t len, struct sl_gfrag *f,
                            struct sl_err *err) {
    f->first = f->start = g->n_nodes;
    for (size_t i = 0; i < len; i++) {
        uint32_t node = 0;
        enum sl_status status =
            sl_g_node(g, SL_G_BYTE, g->n_nodes + 1, SL_G_NONE, &node, err); /* the one behind it */
        if (status != SL_OK)
            return status;
        g->nodes[node].byte = (uint8_t)bytes[i];
    }
    return close_frag(g, f, err);
}

enum sl_status sl_g_other(struct sl_grammar *g, uint32_t id, struct sl_gfrag *f,
                          struct sl_err *err) {
    f->first = f->start = g->n_nodes;
    uint32_t node = 0;
    enum sl_status status = sl_g_node(g, SL_G_OTHER, g->n_nodes + 1, id, &node, err);
    return status == SL_OK ? close_frag(g, f, err) : status;
}

enum sl_status sl_g_call(struct sl_grammar *g, uint32_t rule, struct sl_gfrag *f,
                         struct sl_err *err) {
    f->first = f->start = g->n_nodes;
    uint32_t node = 0;
    enum sl_status status = sl_g_node(g, SL_G_CALL, g->n_nodes + 1, rule, &node, err);
    return status == SL_OK ? close_frag(g, f, err) : status;
}

void sl_g_append(struct sl_grammar *g, struct sl_gfrag *f, const struct sl_gfrag *more) {
    g->nodes[f->exit].next = more->start;
    f->exit = more->exit;
    f->end = more->end;
}

enum sl_status sl_g_either(struct sl_grammar *g, struct sl_gfrag *f, const struct sl_gfrag *more,
                           struct sl_err *err) {
    uint32_t split = 0;
    SL_TRY(sl_g_node(g, SL_G_SPLIT, f->start, more->start, &split, err));
    g->nodes[f->exit].next = more->exit;
    f->start = split;
    f->exit = more->exit;
    f->end = g->n_nodes;
    return SL_OK;
}

static uint32_t moved(uint32_t to, const struct sl_gfrag *f, uint32_t by) {
    return to >= f->first && to < f->end ? to + by : to;
}

static enum sl_status copy_frag(struct sl_grammar *g, const struct sl_gfrag *f,
                                struct sl_gfrag *out, struct sl_err *err) {
    uint32_t by = g->n_nodes - f->first;
    for (uint32_t i = f->first; i < f->end; i++) {
        uint32_t node = 0;
        struct sl_gnode n = g->nodes[i];
        SL_TRY(sl_g_node(g, n.kind, SL_G_NONE, SL_G_NONE, &node, err));
        n.next = moved(n.next, f, by);
        if (n.kind == SL_G_SPLIT)
            n.alt = moved(n.alt, f, by);
        g->nodes[node] = n;
    }
    *out = (struct sl_gfrag){f->first + by, f->end + by, f->start + by, f->exit + by};
    return SL_OK;
}

enum sl_status sl_g_repeat(struct sl_grammar *g, struct sl_gfrag *f, uint32_t least, uint32_t most,
                           struct sl_err *err) {
    enum sl_status status;
    uint32_t first = f->first, exit = 0, split = 0;
    bool endless = most == SL_G_NONE;
    uint32_t copies = endless ? (least ? least : 1) : most;
    if (copies == 0) {
        g->nodes[f->exit].kind = SL_G_END; /* nobody comes here */
        status = sl_g_empty(g, f, err);
        f->first = first;
        return status;
    }
    if (copies > 1 && f->end - f->first > COPY_MAX_NODES) {
        uint32_t rule = 0;
        SL_TRY(sl_g_rule(g, f->start, &rule, err));
        g->nodes[f->exit].kind = SL_G_END;
        SL_TRY(sl_g_call(g, rule, f, err));
    }
    SL_TRY(sl_g_node(g, SL_G_JUMP, SL_G_NONE, SL_G_NONE, &exit, err));
    struct sl_gfrag part = *f, whole = {.start = SL_G_NONE};
    for (uint32_t i = 0; i < copies; i++) {
        /* Copied before it is linked, so that the copy's exit is open. */
        struct sl_gfrag next = part;
        if (i + 1 < copies)
            SL_TRY(copy_frag(g, &part, &next, err));
        uint32_t start = part.start;
        bool optional = i >= least;
        bool loops = endless && i + 1 == copies;
        if (optional || loops) {
            SL_TRY(sl_g_node(g, SL_G_SPLIT, part.start, exit, &split, err));
            if (optional)
                start = split;
            if (loops)
                g->nodes[part.exit].next = split;
        }
        if (whole.start == SL_G_NONE)
            whole.start = start;
        else
            g->nodes[whole.exit].next = start;
        whole.exit = part.exit;
        if (loops)
            whole.exit = SL_G_NONE;
        part = next;
    }
    if (whole.exit != SL_G_NONE)
        g->nodes[whole.exit].next = exit;
    *f = (struct sl_gfrag){first, g->n_nodes, whole.start, exit};
    return SL_OK;
}

/* ---- character classes ---- */

static int by_lo(const void *a, const void *b) {
    uint32_t x = ((const struct sl_crange *)a)->lo, y = ((const struct sl_crange *)b)->lo;
    return (x > y) - (x < y);
}

static uint32_t join_ranges(struct sl_crange *r, uint32_t n) {
    if (n == 0)
        return 0;
    qsort(r, n, sizeof *r, by_lo);
    uint32_t m = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (r[i].lo <= r[m].hi + 1)
            r[m].hi = r[i].hi > r[m].hi ? r[i].hi : r[m].hi;
        else
            r[++m] = r[i];
    }
    return m + 1;
}

/* The part of [lo, hi] that ranges cover: none, all, or some. */
enum cover { COVER_NONE, COVER_SOME, COVER_ALL };
static enum cover covered(const struct sl_crange *r, uint32_t n, uint32_t lo, uint32_t hi) {
    uint32_t a = 0, b = n; /* the first range that ends at lo or after it */
    while (a < b) {
        uint32_t mid = (a + b) / 2;
        if (r[mid].hi < lo)
            a = mid + 1;
        else
            b = mid;
    }
    if (a == n || r[a].lo > hi)
        return COVER_NONE;
    return r[a].lo <= lo && r[a].hi >= hi ? COVER_ALL : COVER_SOME;
}

struct class_builder {
    struct sl_grammar *g;
    const struct sl_crange *r;
    uint32_t n;
    struct sl_err *err;
    enum sl_status status;
};

static uint16_t add_sub(struct class_builder *b, const struct sl_gsub *s) {
    struct sl_grammar *g = b->g;
    /* The last few are looked at: complete blocks and the classes of a grammar repeat themselves.
     */
    for (uint32_t i = g->n_subs, seen = 0; i-- > 0 && seen < 64; seen++)
        if (memcmp(&g->subs[i], s, sizeof *s) == 0)
            return (uint16_t)i;
    if (g->n_subs == SL_G_MAX_SUBS - 3) { /* the last numbers are taken, see SL_A_FRESH */
        b->status = sl_fail(b->err, SL_ERR_INVALID,
                            "the grammar's character classes have too many ranges: use fewer");
        return SL_G_DEAD;
    }
    if (!grow((void **)&g->subs, &g->cap_subs, g->n_subs, sizeof *g->subs)) {
        b->status = sl_fail(b->err, SL_ERR_NOMEM, "out of memory");
        return SL_G_DEAD;
    }
    g->subs[g->n_subs] = *s;
    return (uint16_t)g->n_subs++;
}

/* The step to the code points [base, base + 64^level), of which only those from least to most are
 * well-formed with so many bytes. Surrogates are in no range. */
static uint16_t build_block(struct class_builder *b, uint32_t base, uint32_t level, uint32_t least,
                            uint32_t most) {
    uint32_t size = 1u << (6 * level);
    uint32_t lo = base < least ? least : base;
    uint32_t hi = base + size - 1 > most ? most : base + size - 1;
    if (b->status != SL_OK || lo > hi || covered(b->r, b->n, lo, hi) == COVER_NONE)
        return SL_G_DEAD;
    if (level == 0)
        return SL_G_DONE;
    struct sl_gsub s;
    bool whole = lo == base && hi == base + size - 1 && covered(b->r, b->n, lo, hi) == COVER_ALL;
    if (whole && b->g->whole_sub[level])
        return (uint16_t)(b->g->whole_sub[level] - 1);
    for (uint32_t i = 0; i < 64; i++)
        s.next[i] = build_block(b, base + (i << (6 * (level - 1))), level - 1, least, most);
    uint16_t sub = b->status == SL_OK ? add_sub(b, &s) : SL_G_DEAD;
    if (whole && b->status == SL_OK)
        b->g->whole_sub[level] = sub + 1u;
    return sub;
}

static bool covers_plain(const struct sl_crange *r, uint32_t n) {
    static const struct sl_crange plain[] = {
        {0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, 0x10ffff}};
    for (uint32_t i = 0; i < 4; i++)
        if (covered(r, n, plain[i].lo, plain[i].hi) != COVER_ALL)
            return false;
    return true;
}

static uint32_t hash_class(const struct sl_gclass *c) {
    uint64_t h = 0;
    for (uint32_t i = 0; i < 256; i++)
        h = (h ^ c->lead[i]) * 0x9e3779b97f4a7c15u + (h >> 29);
    return (uint32_t)(h >> 32);
}

static enum sl_status add_class(struct sl_grammar *g, const struct sl_crange *r, uint32_t n,
                                uint16_t *out_cls, struct sl_err *err) {
    struct class_builder b = {g, r, n, err, SL_OK};
    struct sl_gclass c = {.covers_plain = covers_plain(r, n)};
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint16_t to = SL_G_DEAD;
        if (byte < 0x80)
            to = build_block(&b, byte, 0, 0, 0x7f);
        else if (byte >= 0xc2 && byte < 0xe0)
            to = build_block(&b, (byte & 0x1f) << 6, 1, 0x80, 0x7ff);
        else if (byte >= 0xe0 && byte < 0xf0)
            to = build_block(&b, (byte & 0x0f) << 12, 2, 0x800, 0xffff);
        else if (byte >= 0xf0 && byte < 0xf5)
            to = build_block(&b, (byte & 0x07) << 18, 3, 0x10000, 0x10ffff);
        c.lead[byte] = to;
    }
    if (b.status != SL_OK)
        return b.status;
    if (!g->class_slots && !(g->class_slots = calloc(SL_G_CLASS_SLOTS, sizeof *g->class_slots)))
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    uint32_t slot = hash_class(&c) & (SL_G_CLASS_SLOTS - 1);
    for (; g->class_slots[slot]; slot = (slot + 1) & (SL_G_CLASS_SLOTS - 1)) {
        uint32_t i = g->class_slots[slot] - 1u;
        if (memcmp(g->classes[i].lead, c.lead, sizeof c.lead) == 0) {
            *out_cls = (uint16_t)i;
            return SL_OK;
        }
    }
    if (g->n_classes == SL_G_MAX_CLS)
        return sl_fail(err, SL_ERR_INVALID, "the grammar has more than %u character classes",
                       SL_G_MAX_CLS);
    if (!grow((void **)&g->classes, &g->cap_classes, g->n_classes, sizeof *g->classes))
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    g->classes[g->n_classes] = c;
    *out_cls = (uint16_t)g->n_classes++;
    g->class_slots[slot] = (uint16_t)g->n_classes;
    return SL_OK;
}

/* r's complement, or r, without the surrogates. out: room for 2 n + 4. */
static uint32_t finish_ranges(const struct sl_crange *r, uint32_t n, bool negate,
                              struct sl_crange *out) {
    uint32_t m = 0, from = 0;
    if (negate) {
        for (uint32_t i = 0; i < n; i++) {
            if (r[i].lo > from)
                out[m++] = (struct sl_crange){from, r[i].lo - 1};
            from = r[i].hi + 1;
        }
        if (from <= 0x10ffff)
            out[m++] = (struct sl_crange){from, 0x10ffff};
    } else if (n) {
        memcpy(out, r, n * sizeof *r);
        m = n;
    }
    uint32_t k = m;
    for (uint32_t i = 0; i < k; i++) {
        if (out[i].hi < 0xd800 || out[i].lo > 0xdfff)
            continue;
        if (out[i].hi > 0xdfff)
            out[m++] = (struct sl_crange){0xe000, out[i].hi};
        if (out[i].lo < 0xd800)
            out[i].hi = 0xd7ff;
        else
            out[i] = (struct sl_crange){1, 0}; /* nothing left */
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m; i++)
        if (out[i].lo <= out[i].hi)
            out[kept++] = out[i];
    if (kept)
        qsort(out, kept, sizeof *out, by_lo);
    return kept;
}

enum sl_status sl_g_class(struct sl_grammar *g, struct sl_crange *ranges, uint32_t n, bool negate,
                          struct sl_gfrag *f, struct sl_err *err) {
    n = join_ranges(ranges, n);
    struct sl_crange *r = malloc((2 * (size_t)n + 4) * sizeof *r);
    if (!r)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    uint32_t m = finish_ranges(ranges, n, negate, r);
    uint16_t cls = 0;
    enum sl_status status;
    char one[4];
    if (m == 0)
        status = sl_fail(err, SL_ERR_INVALID, "a character class matches nothing");
    else if (m == 1 && r[0].lo == r[0].hi)
        status = sl_g_literal(g, one, sl_utf8_put(r[0].lo, one), f, err);
    else if ((status = add_class(g, r, m, &cls, err)) == SL_OK) {
        f->first = f->start = g->n_nodes;
        uint32_t node = 0;
        status = sl_g_node(g, SL_G_CLASS, g->n_nodes + 1, SL_G_NONE, &node, err);
        if (status == SL_OK) {
            g->nodes[node].cls = cls;
            status = close_frag(g, f, err);
        }
    }
    free(r);
    return status;
}

uint64_t sl_grammar_memory_bytes(const struct sl_grammar *g) {
    return sizeof *g + (uint64_t)g->cap_nodes * sizeof *g->nodes +
           2 * (uint64_t)g->n_rules * sizeof *g->rule_start + /* grows by doubling */
           (uint64_t)g->cap_classes * sizeof *g->classes + (uint64_t)g->cap_subs * sizeof *g->subs;
}

void sl_grammar_destroy(struct sl_grammar **p) {
    struct sl_grammar *g = *p;
    if (!g)
        return;
    free(g->nodes);
    free(g->rule_start);
    free(g->classes);
    free(g->class_slots);
    free(g->subs);
    free(g);
    *p = NULL;
}
