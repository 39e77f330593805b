/* What is made of a grammar's graph once: JUMPs are skipped, alternatives that can never end are
 * dropped, left recursion is refused, bytes are put into classes. Everything here is iterative and
 * linear in the nodes: the text comes from strangers. */
#include "model/grammar/grammar_internal.h"

#include <stdlib.h>
#include <string.h>

static uint32_t skip_jumps(struct sl_grammar *g, uint32_t node) {
    /* A chain of JUMPs has no cycle: a loop has its SPLIT. */
    uint32_t to = node;
    while (to != SL_G_NONE && g->nodes[to].kind == SL_G_JUMP)
        to = g->nodes[to].next;
    while (node != to) { /* so that the next one has it shorter */
        uint32_t next = g->nodes[node].next;
        g->nodes[node].next = to;
        node = next;
    }
    return to;
}

static void shorten(struct sl_grammar *g) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct sl_gnode *n = &g->nodes[i];
        if (n->kind == SL_G_END)
            continue;
        n->next = skip_jumps(g, n->next);
        if (n->kind == SL_G_SPLIT)
            n->alt = skip_jumps(g, n->alt);
    }
    for (uint32_t r = 0; r < g->n_rules; r++)
        g->rule_start[r] = skip_jumps(g, g->rule_start[r]);
}

/* Who leads where, backwards. */
struct backward {
    uint32_t *first; /* [n_nodes + 1] into from */
    uint32_t *from;
    uint32_t *first_call; /* [n_rules + 1] into call */
    uint32_t *call;
    uint32_t *todo;                /* [n_nodes] */
    uint32_t *owner_first, *owner; /* rules by their start: [n_nodes + 1], [n_rules] */
};

static void backward_release(struct backward *b) {
    free(b->first);
    free(b->from);
    free(b->first_call);
    free(b->call);
    free(b->todo);
    free(b->owner_first);
    free(b->owner);
}

static bool backward_init(struct backward *b, const struct sl_grammar *g) {
    uint32_t n = g->n_nodes, r = g->n_rules;
    *b = (struct backward){calloc(n + 2, 4), calloc(2 * (size_t)n + 1, 4),
                           calloc(r + 2, 4), calloc(n + 1, 4),
                           calloc(n + 1, 4), calloc(n + 2, 4),
                           calloc(r + 1, 4)};
    if (!b->first || !b->from || !b->first_call || !b->call || !b->todo || !b->owner_first ||
        !b->owner)
        return false;
    for (int fill = 0; fill < 2; fill++) {
        /* One place further on, so that in the end [i] is where i's begin. */
        uint32_t *to = b->first + 1, *calls = b->first_call + 1, *owned = b->owner_first + 1;
        for (uint32_t i = 0; i < n; i++) {
            const struct sl_gnode *v = &g->nodes[i];
            if (v->kind == SL_G_END || v->kind == SL_G_JUMP)
                continue;
            if (fill)
                b->from[to[v->next]] = i;
            to[v->next]++;
            if (v->kind == SL_G_SPLIT) {
                if (fill)
                    b->from[to[v->alt]] = i;
                to[v->alt]++;
            } else if (v->kind == SL_G_CALL) {
                if (fill)
                    b->call[calls[v->alt]] = i;
                calls[v->alt]++;
            }
        }
        for (uint32_t i = 0; i < r; i++) {
            if (fill)
                b->owner[owned[g->rule_start[i]]] = i;
            owned[g->rule_start[i]]++;
        }
        if (!fill) {
            /* Counts become starts, which the filling moves on to the ends: the next one's start.
             */
            uint32_t s = 0, o = 0, c = 0;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t k = to[i], m = owned[i];
                to[i] = s;
                owned[i] = o;
                s += k;
                o += m;
            }
            for (uint32_t i = 0; i < r; i++) {
                uint32_t k = calls[i];
                calls[i] = c;
                c += k;
            }
        }
    }
    return true;
}

/* good[i]: from node i the end of its rule can be reached; with empty_only, without taking a byte.
 */
static void find_good(const struct sl_grammar *g, struct backward *b, bool empty_only, bool *good) {
    uint32_t n_todo = 0;
    memset(good, 0, g->n_nodes);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].kind == SL_G_END) {
            good[i] = true;
            b->todo[n_todo++] = i;
        }
    while (n_todo) {
        uint32_t v = b->todo[--n_todo];
        for (uint32_t k = b->first[v]; k < b->first[v + 1]; k++) {
            uint32_t u = b->from[k];
            const struct sl_gnode *n = &g->nodes[u];
            bool passes =
                n->kind == SL_G_SPLIT || (n->kind == SL_G_CALL && good[g->rule_start[n->alt]]) ||
                (!empty_only &&
                 (n->kind == SL_G_BYTE || n->kind == SL_G_CLASS || n->kind == SL_G_OTHER));
            if (passes && !good[u]) {
                good[u] = true;
                b->todo[n_todo++] = u;
            }
        }
        for (uint32_t o = b->owner_first[v]; o < b->owner_first[v + 1]; o++) {
            uint32_t rule = b->owner[o];
            for (uint32_t k = b->first_call[rule]; k < b->first_call[rule + 1]; k++) {
                uint32_t u = b->call[k];
                if (good[g->nodes[u].next] && !good[u]) {
                    good[u] = true;
                    b->todo[n_todo++] = u;
                }
            }
        }
    }
}

/* Only a SPLIT leads from what can end to what cannot. */
static void drop_endless(struct sl_grammar *g, const bool *good) {
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct sl_gnode *n = &g->nodes[i];
        if (n->kind != SL_G_SPLIT || !good[i])
            continue;
        if (!good[n->next])
            n->next = n->alt;
        if (!good[n->alt])
            n->alt = n->next;
    }
}

/* Is there a way from a rule back to itself without a byte taken? Tarjan's components over the
 * edges that take none; a call inside of one is left recursion. */
struct tarjan {
    uint32_t *index, *low, *stack, *path;
    uint8_t *edge, *on_stack;
};

static uint32_t empty_edge(const struct sl_grammar *g, const bool *good, const bool *nullable,
                           uint32_t v, uint32_t which) {
    const struct sl_gnode *n = &g->nodes[v];
    uint32_t to = SL_G_NONE;
    if (n->kind == SL_G_SPLIT)
        to = which ? n->alt : n->next;
    else if (n->kind == SL_G_CALL && which == 0)
        to = g->rule_start[n->alt];
    else if (n->kind == SL_G_CALL && nullable[g->rule_start[n->alt]])
        to = n->next;
    return to != SL_G_NONE && good[to] ? to : SL_G_NONE;
}

/* low[v] becomes the number of v's component. */
static void components(const struct sl_grammar *g, const bool *good, const bool *nullable,
                       struct tarjan *t) {
    uint32_t next_index = 1, n_stack = 0, n_path = 0;
    for (uint32_t root = 0; root < g->n_nodes; root++) {
        if (!good[root] || t->index[root])
            continue;
        t->path[n_path++] = root;
        while (n_path) {
            uint32_t v = t->path[n_path - 1];
            if (!t->index[v]) {
                t->index[v] = t->low[v] = next_index++;
                t->stack[n_stack++] = v;
                t->on_stack[v] = 1;
            }
            if (t->edge[v] < 2) {
                uint32_t w = empty_edge(g, good, nullable, v, t->edge[v]++);
                if (w == SL_G_NONE)
                    continue;
                if (!t->index[w])
                    t->path[n_path++] = w;
                else if (t->on_stack[w] && t->index[w] < t->low[v])
                    t->low[v] = t->index[w];
                continue;
            }
            n_path--;
            if (n_path) {
                uint32_t u = t->path[n_path - 1];
                if (t->on_stack[v] && t->low[v] < t->low[u])
                    t->low[u] = t->low[v];
            }
            if (t->low[v] == t->index[v]) {
                uint32_t w;
                do {
                    w = t->stack[--n_stack];
                    t->on_stack[w] = 0;
                    t->low[w] = t->index[v];
                } while (w != v);
            }
        }
    }
}

static enum sl_status check_recursion(const struct sl_grammar *g, const bool *good,
                                      const bool *nullable, struct sl_err *err) {
    size_t n = g->n_nodes;
    struct tarjan t = {calloc(n, 4), calloc(n, 4), calloc(n, 4),
                       calloc(n, 4), calloc(n, 1), calloc(n, 1)};
    enum sl_status status = SL_OK;
    if (!t.index || !t.low || !t.stack || !t.path || !t.edge || !t.on_stack) {
        status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
    } else {
        components(g, good, nullable, &t);
        for (uint32_t i = 0; i < n && status == SL_OK; i++) {
            const struct sl_gnode *v = &g->nodes[i];
            if (v->kind == SL_G_CALL && good[i] && t.low[i] == t.low[g->rule_start[v->alt]])
                status =
                    sl_fail(err, SL_ERR_INVALID,
                            "the grammar is left-recursive: a rule comes back to itself before it "
                            "takes a character; write the recursion on the right");
        }
    }
    free(t.index);
    free(t.low);
    free(t.stack);
    free(t.path);
    free(t.edge);
    free(t.on_stack);
    return status;
}

/* ---- byte classes ---- */

/* Splits the classes by the values of a table. */
static void refine(struct sl_grammar *g, const uint16_t *value, uint32_t first, uint32_t n) {
    uint32_t key[256]; /* class and value of each new class */
    uint32_t n_new = 0;
    uint8_t out[256];
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t v = b >= first && b < first + n ? value[b - first] : SL_G_DEAD;
        uint32_t k = (uint32_t)g->byte_class[b] << 16 | v, i = 0;
        while (i < n_new && key[i] != k)
            i++;
        if (i == n_new)
            key[n_new++] = k;
        out[b] = (uint8_t)i;
    }
    memcpy(g->byte_class, out, sizeof out);
    g->n_byte_classes = n_new;
}

static void classify_bytes(struct sl_grammar *g) {
    uint16_t single[256];
    memset(single, 0xff, sizeof single);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].kind == SL_G_BYTE)
            single[g->nodes[i].byte] = g->nodes[i].byte;
    g->n_byte_classes = 1;
    refine(g, single, 0, 256);
    for (uint32_t i = 0; i < g->n_classes; i++)
        refine(g, g->classes[i].lead, 0, 256);
    for (uint32_t i = 0; i < g->n_subs && g->n_byte_classes < 256; i++)
        refine(g, g->subs[i].next, 0x80, 64);
    for (uint32_t b = 256; b-- > 0;)
        g->class_byte[g->byte_class[b]] = (uint8_t)b;
}

enum sl_status sl_g_finish(struct sl_grammar *g, struct sl_err *err) {
    shorten(g);
    struct backward b;
    bool *good = calloc(g->n_nodes + 1, 1), *nullable = calloc(g->n_nodes + 1, 1);
    enum sl_status status = SL_OK;
    if (!backward_init(&b, g) || !good || !nullable) {
        status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
    } else {
        find_good(g, &b, false, good);
        if (!good[g->rule_start[g->root]])
            status = sl_fail(err, SL_ERR_INVALID,
                             "the grammar matches no finite text: its recursion never ends");
        drop_endless(g, good);
        find_good(g, &b, true, nullable);
        if (status == SL_OK)
            status = check_recursion(g, good, nullable, err);
    }
    if (status == SL_OK) {
        for (uint32_t i = 0; i < g->n_nodes; i++)
            g->nodes[i].tail_call =
                g->nodes[i].kind == SL_G_CALL && g->nodes[g->nodes[i].next].kind == SL_G_END;
        classify_bytes(g);
        sl_g_find_plain_runs(g, nullable);
    }
    backward_release(&b);
    free(good);
    free(nullable);
    return status;
}
