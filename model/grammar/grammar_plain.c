/* How many plain characters a grammar is sure to take from a class node on.
 *
 * Inside a JSON string nearly every token of the vocabulary is allowed, and it would be a waste to
 * find that out token by token for each of the strings' positions. Where a class that covers all
 * plain characters stands, the next such class behind it is noted (alt), and whether that one is
 * all that can take a plain character there (plain_exact). Following these notes gives how many
 * plain characters are taken for sure and, where exact, that not one more is. */
#include "model/grammar/grammar_internal.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_MAX 64u /* nodes looked at behind one; more: nothing is noted */

static bool starts_plain(const struct sl_grammar *g, const struct sl_gnode *n) {
    if (n->kind == SL_G_BYTE)
        return sl_g_plain_lead(n->byte);
    const struct sl_gclass *c = &g->classes[n->cls];
    for (uint32_t b = 0x20; b < 256; b++)
        if (sl_g_plain_lead(b) && c->lead[b] != SL_G_DEAD)
            return true;
    return false;
}

struct look {
    const struct sl_grammar *g;
    const bool *nullable;
    uint64_t todo[LOOK_MAX]; /* node << 1 | inside of a called rule; all that were ever added */
    uint32_t n;
    bool overflow;
};

static void look_at(struct look *l, uint32_t node, uint64_t called) {
    uint64_t v = (uint64_t)node << 1 | called;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->todo[i] == v)
            return;
    if (l->n == LOOK_MAX)
        l->overflow = true;
    else
        l->todo[l->n++] = v;
}

static void note(struct sl_grammar *g, const bool *nullable, const bool *class_plain,
                 struct sl_gnode *from) {
    struct look l = {.g = g, .nullable = nullable};
    uint32_t n_plain = 0, best = SL_G_NONE;
    bool end = false;
    look_at(&l, from->next, 0);
    for (uint32_t i = 0; i < l.n; i++) {
        uint32_t id = (uint32_t)(l.todo[i] >> 1);
        uint64_t called = l.todo[i] & 1;
        const struct sl_gnode *n = &g->nodes[id];
        switch (n->kind) {
        case SL_G_SPLIT:
            look_at(&l, n->next, called);
            look_at(&l, n->alt, called);
            break;
        case SL_G_CALL:
            look_at(&l, g->rule_start[n->alt], 1);
            if (nullable[g->rule_start[n->alt]])
                look_at(&l, n->next, called);
            break;
        case SL_G_CLASS:
            n_plain += class_plain[n->cls];
            if (g->classes[n->cls].covers_plain && !called)
                best = id;
            break;
        case SL_G_BYTE:
            n_plain += starts_plain(g, n);
            break;
        case SL_G_OTHER:
            n_plain++;
            break;
        default: /* the end of this rule, what follows is unknown; of a called one, seen above */
            end = end || !called;
        }
    }
    from->alt = best;
    from->plain_exact = !end && !l.overflow && n_plain == (best != SL_G_NONE);
}

void sl_g_find_plain_runs(struct sl_grammar *g, const bool *nullable) {
    bool class_plain[SL_G_MAX_CLS];
    for (uint32_t i = 0; i < g->n_classes; i++) {
        struct sl_gnode n = {.kind = SL_G_CLASS, .cls = (uint16_t)i};
        class_plain[i] = starts_plain(g, &n);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct sl_gnode *n = &g->nodes[i];
        if (n->kind == SL_G_CLASS && g->classes[n->cls].covers_plain)
            note(g, nullable, class_plain, n);
        else if (n->kind == SL_G_CLASS)
            n->alt = SL_G_NONE;
    }
}
