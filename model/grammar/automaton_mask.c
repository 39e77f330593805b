/* Which tokens a state allows: the vocabulary's tries are walked along with the automaton, and what
 * is below a byte that is not allowed is skipped. */
#include "model/grammar/automaton_internal.h"

#include <math.h>
#include <string.h>

/* How many plain characters the state takes for sure; *out_exact: and not one more. */
static uint32_t plain_run(const struct sl_automaton *a, uint32_t state, bool *out_exact) {
    const struct sl_grammar *g = a->g;
    const struct sl_a_state *s = &a->states[state];
    uint32_t best = 0, n_plain = 0;
    bool exact = true;
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t place = a->places[s->first + i];
        uint32_t id = SL_A_NODE(place);
        const struct sl_gnode *n = &g->nodes[id];
        if (n->kind == SL_G_BYTE) {
            n_plain += sl_g_plain_lead(n->byte);
            continue;
        }
        if (n->kind == SL_G_OTHER) {
            n_plain++;
            continue;
        }
        if (SL_A_SUB(place) != SL_A_FRESH) /* within a character: no plain token starts here */
            continue;
        n_plain++; /* or a class that takes none: then it is walked, which is right as well */
        uint32_t run = 0;
        bool sure = true;
        if (!g->classes[n->cls].covers_plain)
            continue;
        for (; id != SL_G_NONE && run < SL_G_PLAIN_RUN; id = g->nodes[id].alt, run++)
            sure = sure && g->nodes[id].plain_exact;
        if (run > best || (run == best && sure)) {
            best = run;
            exact = sure;
        }
    }
    *out_exact = best >= SL_G_PLAIN_RUN || (best && exact && n_plain == 1);
    return best;
}

/* Adds the tokens of nodes [from, to) that state allows; base: their depth less one. */
static bool walk(struct sl_automaton *a, const struct sl_vocab_part *part, uint32_t from,
                 uint32_t to, uint32_t base, uint32_t state, uint64_t *set) {
    const uint8_t *cls = a->g->byte_class;
    const struct sl_vocab_node *nodes = part->nodes;
    const uint32_t *row = a->row;
    uint32_t *path = a->path;
    size_t n_cls = a->n_cls;
    path[base] = state;
    for (uint32_t i = from; i < to;) {
        const struct sl_vocab_node *n = &nodes[i];
        uint32_t at = path[n->depth - 1], c = cls[n->byte];
        uint32_t next = row[at * n_cls + c];
        if (next == SL_A_UNKNOWN) {
            next = sl_a_step(a, at, c);
            if (next == SL_A_UNKNOWN)
                return false;
        }
        if (next == SL_A_DEAD) {
            i = n->skip;
            continue;
        }
        path[n->depth] = next;
        for (uint32_t k = n->first; k < nodes[i + 1].first; k++) {
            uint32_t id = part->tokens[k];
            if (sl_a_may_be(a, next, id))
                set[id / 64] |= 1ull << (id % 64);
        }
        i++;
    }
    return true;
}

/* The first token of an answer may lose its leading space: those that begin with one count without
 * it, and one that is nothing else does not count. */
static bool walk_first(struct sl_automaton *a, const struct sl_vocab_part *part, uint32_t state,
                       uint64_t *set) {
    uint32_t space = 0, n = part->n_nodes;
    while (space < n && part->nodes[space].byte != ' ')
        space = part->nodes[space].skip;
    if (space >= n)
        return walk(a, part, 0, n, 0, state, set);
    uint32_t behind = part->nodes[space].skip;
    return walk(a, part, 0, space, 0, state, set) &&
           walk(a, part, space + 1, behind, 1, state, set) &&
           walk(a, part, behind, n, 0, state, set);
}

static bool fill(struct sl_automaton *a, uint32_t state, bool first, uint64_t *set) {
    const struct sl_vocab_trie *v = a->vocab;
    memset(set, 0, v->n_words * sizeof *set);
    if (first)
        return walk_first(a, &v->plain, state, set) && walk_first(a, &v->rest, state, set);
    bool exact;
    uint32_t run = plain_run(a, state, &exact);
    if (run)
        memcpy(set, v->plain_upto + (size_t)(run - 1) * v->n_words, v->n_words * sizeof *set);
    return (exact || walk(a, &v->plain, 0, v->plain.n_nodes, 0, state, set)) &&
           walk(a, &v->rest, 0, v->rest.n_nodes, 0, state, set);
}

uint32_t sl_cursor_n_vocab(const struct sl_cursor *c) {
    return c->a->vocab->n_vocab;
}

enum sl_status sl_cursor_mask(struct sl_cursor *c, const uint64_t **out_set, struct sl_err *err) {
    struct sl_automaton *a = c->a;
    const struct sl_vocab_trie *v = a->vocab;
    if (c->ended)
        return sl_fail(err, SL_ERR_INVALID, "the text has ended");
    sl_a_begin(a);
    bool first = !c->started && v->drops_first_space;
    uint32_t slot = a->states[c->state].mask;
    if (!first && slot < SL_A_MASKS) {
        *out_set = a->masks + (size_t)slot * v->n_words;
        return SL_OK;
    }
    slot = a->next_mask;
    a->next_mask = (slot + 1) % SL_A_MASKS;
    a->states[a->mask_state[slot]].mask = SL_A_MASKS;
    a->mask_state[slot] = SL_A_DEAD;
    uint64_t *set = a->masks + (size_t)slot * v->n_words;
    if (!fill(a, c->state, first, set) && !(sl_a_again(a) && fill(a, c->state, first, set)))
        return sl_a_too_much(err);
    bool complete = a->states[c->state].complete;
    for (uint32_t i = 0; i < a->n_eog; i++) {
        uint32_t id = a->eog[i];
        uint64_t bit = 1ull << (id % 64);
        if (id < v->n_vocab)
            set[id / 64] = complete ? set[id / 64] | bit : set[id / 64] & ~bit;
    }
    bool any = false;
    for (uint32_t i = 0; i < v->n_words; i++)
        any = any || set[i];
    if (!any)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "no token of the model's vocabulary goes on as the grammar asks for");
    if (!first) {
        a->mask_state[slot] = c->state;
        a->states[c->state].mask = (uint16_t)slot;
    }
    *out_set = set;
    return SL_OK;
}

/* Bit by bit over the fewer: sets are nearly full within strings and nearly empty elsewhere. */
static void apply_word(uint64_t word, float *logits, uint32_t n) {
    float kept[32];
    uint32_t n_kept = 0;
    uint64_t in_range = n < 64 ? (1ull << n) - 1 : UINT64_MAX;
    if (__builtin_popcountll(word) > 32) {
        for (uint64_t out = ~word & in_range; out; out &= out - 1)
            logits[__builtin_ctzll(out)] = -INFINITY;
        return;
    }
    for (uint64_t in = word & in_range; in; in &= in - 1)
        kept[n_kept++] = logits[__builtin_ctzll(in)];
    for (uint32_t k = 0; k < n; k++)
        logits[k] = -INFINITY;
    n_kept = 0;
    for (uint64_t in = word & in_range; in; in &= in - 1)
        logits[__builtin_ctzll(in)] = kept[n_kept++];
}

void sl_token_set_apply(const uint64_t *set, uint32_t n_vocab, float *logits, uint32_t n_logits) {
    for (uint32_t i = 0; i < n_logits; i += 64)
        apply_word(i < n_vocab ? set[i / 64] : 0, logits + i,
                   n_logits - i < 64 ? n_logits - i : 64);
}
