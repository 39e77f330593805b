#include "model/grammar/automaton_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum sl_status sl_a_too_much(struct sl_err *err) {
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "the grammar is too ambiguous to be followed: too many ways through it are open "
                   "at once; make it less ambiguous");
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* ---- making a set of places ---- */

/* False: it was there already, or there is no room (failed). */
static bool see(struct sl_automaton *a, uint64_t place) {
    uint64_t key = place + 1;
    uint32_t i = (uint32_t)mix(key) & (SL_A_SEEN_SLOTS - 1);
    while (a->seen[i]) {
        if (a->seen[i] == key)
            return false;
        i = (i + 1) & (SL_A_SEEN_SLOTS - 1);
    }
    if (a->n_seen == SL_A_SEEN_SLOTS / 2 || ++a->work > a->max_work) {
        a->failed = true;
        return false;
    }
    a->seen[i] = key;
    a->seen_used[a->n_seen++] = i;
    return true;
}

static uint32_t push_frame(struct sl_automaton *a, uint32_t node, uint32_t below) {
    uint32_t i = (uint32_t)mix((uint64_t)node << 32 | below) & (SL_A_FRAME_SLOTS - 1);
    for (; a->frame_slots[i]; i = (i + 1) & (SL_A_FRAME_SLOTS - 1)) {
        const struct sl_a_frame *f = &a->frames[a->frame_slots[i]];
        if (f->node == node && f->below == below)
            return a->frame_slots[i];
    }
    if (a->n_frames == SL_A_MAX_FRAMES) {
        a->failed = true;
        return 0;
    }
    a->frames[a->n_frames] = (struct sl_a_frame){node, below};
    return a->frame_slots[i] = a->n_frames++;
}

static void add(struct sl_automaton *a, uint64_t place) {
    if (a->n_set == SL_A_SET_PLACES)
        a->failed = true;
    else
        a->set[a->n_set++] = place;
}

static void set_begin(struct sl_automaton *a) {
    for (uint32_t i = 0; i < a->n_seen; i++)
        a->seen[a->seen_used[i]] = 0;
    a->n_seen = 0;
    a->n_set = 0;
    a->set_complete = false;
    a->in_token = false;
}

/* Does the end of a token change a place? */
static bool of_token(const struct sl_automaton *a, uint64_t place) {
    return a->g->nodes[SL_A_NODE(place)].kind == SL_G_OTHER && SL_A_SUB(place) != SL_A_FRESH;
}

/* Adds what can take a byte from node on, through everything that takes none. */
static void enter(struct sl_automaton *a, uint32_t node, uint32_t frame) {
    const struct sl_grammar *g = a->g;
    uint32_t n_todo = 0;
    a->todo[n_todo++] = SL_A_PLACE(frame, node, SL_A_FRESH);
    while (n_todo && !a->failed) {
        uint64_t place = a->todo[--n_todo];
        if (!see(a, place))
            continue;
        const struct sl_gnode *n = &g->nodes[SL_A_NODE(place)];
        uint32_t below = SL_A_FRAME(place), called;
        switch (n->kind) {
        case SL_G_SPLIT:
            a->todo[n_todo++] = SL_A_PLACE(below, n->alt, SL_A_FRESH);
            a->todo[n_todo++] = SL_A_PLACE(below, n->next, SL_A_FRESH);
            break;
        case SL_G_CALL:
            /* Nothing to come back to: recursion on the right does not pile up. */
            called = n->tail_call ? below : push_frame(a, n->next, below);
            a->todo[n_todo++] = SL_A_PLACE(called, g->rule_start[n->alt], SL_A_FRESH);
            break;
        case SL_G_END:
            if (below == 0)
                a->set_complete = true;
            else
                a->todo[n_todo++] =
                    SL_A_PLACE(a->frames[below].below, a->frames[below].node, SL_A_FRESH);
            break;
        case SL_G_OTHER:
            add(a, SL_A_PLACE(below, SL_A_NODE(place), a->in_token ? SL_A_WAITS : SL_A_FRESH));
            break;
        default:
            add(a, place);
        }
    }
}

static int by_value(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

static void sort_set(struct sl_automaton *a) {
    if (a->n_set > 16) {
        qsort(a->set, a->n_set, sizeof *a->set, by_value);
        return;
    }
    for (uint32_t i = 1; i < a->n_set; i++) {
        uint64_t v = a->set[i];
        uint32_t k = i;
        for (; k > 0 && a->set[k - 1] > v; k--)
            a->set[k] = a->set[k - 1];
        a->set[k] = v;
    }
}

/* The number of the set's state. */
static uint32_t intern(struct sl_automaton *a) {
    if (a->n_set == 0 && !a->set_complete)
        return SL_A_DEAD;
    sort_set(a);
    uint64_t h = a->set_complete;
    for (uint32_t i = 0; i < a->n_set; i++)
        h = mix(h ^ a->set[i]) + 0x9e3779b97f4a7c15u * i;
    uint32_t hash = (uint32_t)h, i = hash & (SL_A_STATE_SLOTS - 1);
    for (; a->state_slots[i]; i = (i + 1) & (SL_A_STATE_SLOTS - 1)) {
        const struct sl_a_state *s = &a->states[a->state_slots[i]];
        if (s->hash == hash && s->n == a->n_set && s->complete == a->set_complete &&
            memcmp(a->places + s->first, a->set, a->n_set * sizeof *a->set) == 0)
            return a->state_slots[i];
    }
    if (a->n_states == SL_A_MAX_STATES || a->n_set > SL_A_MAX_PLACES - a->n_places) {
        a->failed = true;
        return SL_A_UNKNOWN;
    }
    uint32_t id = a->n_states++;
    a->states[id] =
        (struct sl_a_state){a->n_places, a->n_set, hash, SL_A_MASKS, a->set_complete, false};
    for (uint32_t k = 0; k < a->n_set; k++)
        a->states[id].token = a->states[id].token || of_token(a, a->set[k]);
    memcpy(a->places + a->n_places, a->set, a->n_set * sizeof *a->set);
    a->n_places += a->n_set;
    memset(a->row + (size_t)id * a->n_cls, 0xff, a->n_cls * sizeof *a->row);
    return a->state_slots[i] = id;
}

uint32_t sl_a_step(struct sl_automaton *a, uint32_t state, uint32_t cls) {
    const struct sl_grammar *g = a->g;
    uint32_t byte = g->class_byte[cls];
    uint32_t first = a->states[state].first, n = a->states[state].n;
    set_begin(a);
    a->in_token = true;
    a->work += n;
    if (a->work > a->max_work)
        a->failed = true;
    for (uint32_t i = 0; i < n && !a->failed; i++) {
        uint64_t place = a->places[first + i];
        uint32_t node = SL_A_NODE(place), sub = SL_A_SUB(place);
        const struct sl_gnode *v = &g->nodes[node];
        uint32_t to;
        if (v->kind == SL_G_BYTE)
            to = v->byte == byte ? SL_G_DONE : SL_G_DEAD;
        else if (v->kind == SL_G_OTHER)
            to = sub == SL_A_WAITS ? SL_G_DEAD : SL_A_INSIDE;
        else if (sub == SL_A_FRESH)
            to = g->classes[v->cls].lead[byte];
        else
            to = byte >= 0x80 && byte < 0xc0 ? g->subs[sub].next[byte - 0x80] : SL_G_DEAD;
        if (to == SL_G_DEAD)
            continue;
        if (to == SL_G_DONE) {
            enter(a, v->next, SL_A_FRAME(place));
        } else {
            uint64_t at = SL_A_PLACE(SL_A_FRAME(place), node, to);
            if (see(a, at))
                add(a, at);
        }
    }
    uint32_t id = a->failed ? SL_A_UNKNOWN : intern(a);
    if (id != SL_A_UNKNOWN)
        a->row[(size_t)state * a->n_cls + cls] = id;
    return id;
}

bool sl_a_may_be(const struct sl_automaton *a, uint32_t state, uint32_t id) {
    const struct sl_a_state *s = &a->states[state];
    bool may = s->complete || !s->token;
    for (uint32_t i = 0; i < s->n && !may; i++) {
        uint64_t place = a->places[s->first + i];
        const struct sl_gnode *n = &a->g->nodes[SL_A_NODE(place)];
        may = n->kind != SL_G_OTHER || SL_A_SUB(place) != SL_A_INSIDE || n->alt != id;
    }
    return may;
}

uint32_t sl_a_token(struct sl_automaton *a, uint32_t state, uint32_t id) {
    if (!a->states[state].token)
        return state;
    uint32_t first = a->states[state].first, n = a->states[state].n;
    set_begin(a);
    a->set_complete = a->states[state].complete;
    for (uint32_t i = 0; i < n && !a->failed; i++) {
        uint64_t place = a->places[first + i];
        const struct sl_gnode *v = &a->g->nodes[SL_A_NODE(place)];
        bool inside = of_token(a, place) && SL_A_SUB(place) == SL_A_INSIDE;
        if (of_token(a, place) && !inside)
            place = SL_A_PLACE(SL_A_FRAME(place), SL_A_NODE(place), SL_A_FRESH);
        if (inside && v->alt != id)
            enter(a, v->next, SL_A_FRAME(place));
        else if (!inside && see(a, place))
            add(a, place);
    }
    return a->failed ? SL_A_UNKNOWN : intern(a);
}

/* ---- memory ---- */

static void clear(struct sl_automaton *a) {
    memset(a->state_slots, 0, SL_A_STATE_SLOTS * sizeof *a->state_slots);
    memset(a->frame_slots, 0, SL_A_FRAME_SLOTS * sizeof *a->frame_slots);
    a->n_states = 1;
    a->n_places = 0;
    a->n_frames = 1;
    a->start = SL_A_UNKNOWN;
    a->states[SL_A_DEAD] = (struct sl_a_state){.mask = SL_A_MASKS};
    memset(a->row, 0, a->n_cls * sizeof *a->row);
    for (uint32_t i = 0; i < SL_A_MASKS; i++)
        a->mask_state[i] = SL_A_DEAD;
}

/* Frames that the cursors' states stand on, in the order of their numbers: a frame is always
 * younger than those below it, so they move down in place, each behind those it rests on. */
static void keep_frames(struct sl_automaton *a, uint32_t *new_frame) {
    memset(new_frame, 0, SL_A_MAX_FRAMES * sizeof *new_frame);
    for (struct sl_cursor *c = a->cursors; c; c = c->next)
        for (uint32_t i = 0; i < a->states[c->state].n; i++)
            for (uint32_t f = SL_A_FRAME(a->places[a->states[c->state].first + i]);
                 f && !new_frame[f]; f = a->frames[f].below)
                new_frame[f] = 1;
    uint32_t n = 1;
    for (uint32_t f = 1; f < a->n_frames; f++) {
        if (!new_frame[f])
            continue;
        struct sl_a_frame kept = {a->frames[f].node, new_frame[a->frames[f].below]};
        new_frame[f] = n;
        a->frames[n++] = kept;
    }
    memset(a->frame_slots, 0, SL_A_FRAME_SLOTS * sizeof *a->frame_slots);
    a->n_frames = n;
    for (uint32_t f = 1; f < n; f++) {
        const struct sl_a_frame *k = &a->frames[f];
        uint32_t i = (uint32_t)mix((uint64_t)k->node << 32 | k->below) & (SL_A_FRAME_SLOTS - 1);
        while (a->frame_slots[i])
            i = (i + 1) & (SL_A_FRAME_SLOTS - 1);
        a->frame_slots[i] = f;
    }
}

/* Forgets every state that no cursor is in. Their places move to the front in the order that they
 * have, so that none is overwritten before it is moved. */
static void forget(struct sl_automaton *a) {
    uint32_t *new_frame = (uint32_t *)a->row; /* rows are forgotten as well, and are larger */
    keep_frames(a, new_frame);
    uint32_t n_places = 0, n_states = 1;
    /* Ascending numbers have ascending places. mask marks those to keep. */
    for (uint32_t s = 1; s < a->n_states; s++)
        a->states[s].mask = 0;
    for (struct sl_cursor *c = a->cursors; c; c = c->next)
        a->states[c->state].mask = 1;
    memset(a->state_slots, 0, SL_A_STATE_SLOTS * sizeof *a->state_slots);
    uint32_t *new_state = new_frame + SL_A_MAX_FRAMES;
    for (uint32_t s = 1; s < a->n_states; s++) {
        struct sl_a_state old = a->states[s];
        new_state[s] = 0;
        if (!old.mask)
            continue;
        for (uint32_t i = 0; i < old.n; i++) {
            uint64_t p = a->places[old.first + i];
            a->set[i] = SL_A_PLACE(new_frame[SL_A_FRAME(p)], SL_A_NODE(p), SL_A_SUB(p));
        }
        a->n_set = old.n;
        sort_set(a);
        uint64_t h = old.complete;
        for (uint32_t i = 0; i < a->n_set; i++)
            h = mix(h ^ a->set[i]) + 0x9e3779b97f4a7c15u * i;
        memcpy(a->places + n_places, a->set, a->n_set * sizeof *a->set);
        a->states[n_states] =
            (struct sl_a_state){n_places, old.n, (uint32_t)h, SL_A_MASKS, old.complete, old.token};
        n_places += old.n;
        uint32_t i = (uint32_t)h & (SL_A_STATE_SLOTS - 1);
        while (a->state_slots[i])
            i = (i + 1) & (SL_A_STATE_SLOTS - 1);
        a->state_slots[i] = n_states;
        new_state[s] = n_states++;
    }
    new_state[0] = 0;
    for (struct sl_cursor *c = a->cursors; c; c = c->next)
        c->state = new_state[c->state];
    a->n_states = n_states;
    a->n_places = n_places;
    a->start = SL_A_UNKNOWN;
    memset(a->row, 0, a->n_cls * sizeof *a->row);
    memset(a->row + a->n_cls, 0xff, (size_t)(n_states - 1) * a->n_cls * sizeof *a->row);
    for (uint32_t i = 0; i < SL_A_MASKS; i++)
        a->mask_state[i] = SL_A_DEAD;
}

void sl_a_begin(struct sl_automaton *a) {
    uint32_t debt = a->debt + a->work;
    a->debt = debt > SL_A_FREE_WORK ? debt - SL_A_FREE_WORK : 0;
    uint32_t left = a->debt < SL_A_MAX_DEBT ? SL_A_MAX_DEBT - a->debt : 0;
    a->max_work = left < SL_A_MAX_WORK ? left : SL_A_MAX_WORK;
    a->work = 0;
    a->failed = false;
    if (a->n_states > SL_A_MAX_STATES / 2 || a->n_places > SL_A_MAX_PLACES / 2 ||
        a->n_frames > SL_A_MAX_FRAMES / 2)
        forget(a);
}

bool sl_a_again(struct sl_automaton *a) {
    uint32_t n_states = a->n_states, n_places = a->n_places, n_frames = a->n_frames;
    forget(a);
    a->work = 0;
    a->failed = false;
    return a->n_states < n_states || a->n_places < n_places || a->n_frames < n_frames;
}

static size_t row_cells(const struct sl_automaton *a) {
    size_t n = (size_t)SL_A_MAX_STATES * a->n_cls;
    size_t least = SL_A_MAX_FRAMES + SL_A_MAX_STATES; /* forget's scratch */
    return n > least ? n : least;
}

uint64_t sl_automaton_memory_bytes(const struct sl_automaton *a) {
    uint64_t n = sizeof *a + SL_A_MAX_STATES * sizeof *a->states + row_cells(a) * sizeof *a->row +
                 SL_A_MAX_PLACES * sizeof *a->places + SL_A_MAX_FRAMES * sizeof *a->frames +
                 SL_A_STATE_SLOTS * sizeof *a->state_slots +
                 SL_A_FRAME_SLOTS * sizeof *a->frame_slots + SL_A_SET_PLACES * sizeof *a->set +
                 SL_A_SEEN_SLOTS * (sizeof *a->seen + sizeof *a->seen_used) +
                 (SL_A_SEEN_SLOTS + 2) * sizeof *a->todo + (a->n_eog + 1) * sizeof *a->eog;
    if (a->vocab)
        n += (uint64_t)SL_A_MASKS * a->vocab->n_words * sizeof *a->masks +
             (a->vocab->max_depth + 1) * sizeof *a->path;
    return n;
}

enum sl_status sl_automaton_create(const struct sl_grammar *g, const struct sl_vocab_trie *vocab,
                                   const uint32_t *eog, uint32_t n_eog,
                                   struct sl_automaton **out_automaton) {
    struct sl_automaton *a = calloc(1, sizeof *a);
    if (!a)
        return SL_ERR_NOMEM;
    a->g = g;
    a->vocab = vocab;
    a->n_cls = g->n_byte_classes;
    a->states = malloc(SL_A_MAX_STATES * sizeof *a->states);
    a->row = malloc(row_cells(a) * sizeof *a->row);
    a->places = malloc(SL_A_MAX_PLACES * sizeof *a->places);
    a->frames = malloc(SL_A_MAX_FRAMES * sizeof *a->frames);
    a->state_slots = malloc(SL_A_STATE_SLOTS * sizeof *a->state_slots);
    a->frame_slots = malloc(SL_A_FRAME_SLOTS * sizeof *a->frame_slots);
    a->set = malloc(SL_A_SET_PLACES * sizeof *a->set);
    a->seen = calloc(SL_A_SEEN_SLOTS, sizeof *a->seen);
    a->seen_used = malloc(SL_A_SEEN_SLOTS * sizeof *a->seen_used);
    /* Every place that is looked at adds two at most and was taken off itself. */
    a->todo = malloc((SL_A_SEEN_SLOTS + 2) * sizeof *a->todo);
    a->eog = malloc((n_eog + 1) * sizeof *a->eog);
    bool ok = a->states && a->row && a->places && a->frames && a->state_slots && a->frame_slots &&
              a->set && a->seen && a->seen_used && a->todo && a->eog;
    if (ok && vocab) {
        a->masks = malloc((size_t)SL_A_MASKS * vocab->n_words * sizeof *a->masks + 8);
        a->path = malloc((vocab->max_depth + 1) * sizeof *a->path);
        ok = a->masks && a->path;
    }
    if (!ok) {
        sl_automaton_destroy(&a);
        return SL_ERR_NOMEM;
    }
    if (n_eog)
        memcpy(a->eog, eog, n_eog * sizeof *eog);
    a->n_eog = n_eog;
    clear(a);
    *out_automaton = a;
    return SL_OK;
}

void sl_automaton_destroy(struct sl_automaton **p) {
    struct sl_automaton *a = *p;
    if (!a)
        return;
    assert(!a->cursors);
    free(a->eog);
    free(a->states);
    free(a->row);
    free(a->places);
    free(a->frames);
    free(a->state_slots);
    free(a->frame_slots);
    free(a->set);
    free(a->seen);
    free(a->seen_used);
    free(a->todo);
    free(a->masks);
    free(a->path);
    free(a);
    *p = NULL;
}

/* ---- cursors ---- */

static void link_cursor(struct sl_cursor *c) {
    c->prev = NULL;
    c->next = c->a->cursors;
    if (c->next)
        c->next->prev = c;
    c->a->cursors = c;
}

static uint32_t enter_start(struct sl_automaton *a) {
    set_begin(a);
    enter(a, a->g->rule_start[a->g->root], 0);
    return a->failed ? SL_A_UNKNOWN : intern(a);
}

enum sl_status sl_cursor_init(struct sl_cursor *c, struct sl_automaton *a, struct sl_err *err) {
    *c = (struct sl_cursor){0};
    sl_a_begin(a);
    if (a->start == SL_A_UNKNOWN) {
        uint32_t start = enter_start(a);
        if (start == SL_A_UNKNOWN && sl_a_again(a))
            start = enter_start(a);
        if (start == SL_A_UNKNOWN)
            return sl_a_too_much(err);
        a->start = start;
    }
    c->a = a;
    c->state = a->start;
    link_cursor(c);
    return SL_OK;
}

void sl_cursor_copy(struct sl_cursor *to, const struct sl_cursor *from) {
    *to = *from;
    link_cursor(to);
}

void sl_cursor_release(struct sl_cursor *c) {
    if (!c->a)
        return;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->a->cursors = c->next;
    if (c->next)
        c->next->prev = c->prev;
    *c = (struct sl_cursor){0};
}

/* SL_A_UNKNOWN: too much. */
static uint32_t walk_bytes(struct sl_automaton *a, uint32_t state, const char *bytes, size_t len) {
    for (size_t i = 0; i < len && state != SL_A_DEAD && state != SL_A_UNKNOWN; i++) {
        uint32_t cls = a->g->byte_class[(uint8_t)bytes[i]];
        uint32_t to = a->row[(size_t)state * a->n_cls + cls];
        state = to == SL_A_UNKNOWN ? sl_a_step(a, state, cls) : to;
    }
    return state;
}

static enum sl_status push(struct sl_cursor *c, const char *bytes, size_t len, struct sl_err *err) {
    struct sl_automaton *a = c->a;
    sl_a_begin(a);
    uint32_t state = walk_bytes(a, c->state, bytes, len);
    if (state == SL_A_UNKNOWN && sl_a_again(a))
        state = walk_bytes(a, c->state, bytes, len);
    if (state == SL_A_UNKNOWN)
        return sl_a_too_much(err);
    if (state == SL_A_DEAD)
        return sl_fail(err, SL_ERR_INVALID, "the grammar does not allow this text here");
    c->state = state;
    return SL_OK;
}

/* In parts, between which may be forgotten: a long text may have more states than there is room
 * for. */
enum sl_status sl_cursor_push_bytes(struct sl_cursor *c, const char *bytes, size_t len,
                                    struct sl_err *err) {
    struct sl_cursor at;
    sl_cursor_copy(&at, c);
    enum sl_status status = c->ended ? sl_fail(err, SL_ERR_INVALID, "the text has ended") : SL_OK;
    for (size_t i = 0; i < len && status == SL_OK; i += 256)
        status = push(&at, bytes + i, len - i < 256 ? len - i : 256, err);
    if (status == SL_OK)
        c->state = at.state;
    sl_cursor_release(&at);
    return status;
}

static enum sl_status end_token(struct sl_cursor *c, uint32_t id, struct sl_err *err) {
    struct sl_automaton *a = c->a;
    sl_a_begin(a);
    uint32_t state = sl_a_token(a, c->state, id);
    if (state == SL_A_UNKNOWN && sl_a_again(a))
        state = sl_a_token(a, c->state, id);
    if (state == SL_A_UNKNOWN)
        return sl_a_too_much(err);
    if (state == SL_A_DEAD)
        return sl_fail(err, SL_ERR_INVALID, "the grammar does not allow this token here");
    c->state = state;
    return SL_OK;
}

enum sl_status sl_cursor_push_token(struct sl_cursor *c, uint32_t id, struct sl_err *err) {
    const struct sl_automaton *a = c->a;
    if (c->ended || id >= a->vocab->n_vocab)
        return sl_fail(err, SL_ERR_INVALID, "the grammar does not allow this token here");
    for (uint32_t i = 0; i < a->n_eog; i++)
        if (a->eog[i] == id) {
            if (!sl_cursor_complete(c))
                return sl_fail(err, SL_ERR_INVALID, "the grammar does not allow an end here");
            c->ended = true;
            return SL_OK;
        }
    struct sl_str s = sl_vocab_text(a->vocab, id);
    if (!c->started && a->vocab->drops_first_space && s.len && s.ptr[0] == ' ') {
        s.ptr++;
        s.len--;
    }
    if (s.len == 0)
        return sl_fail(err, SL_ERR_INVALID, "the grammar does not allow a token without text");
    struct sl_cursor at;
    sl_cursor_copy(&at, c);
    enum sl_status status = sl_cursor_push_bytes(&at, s.ptr, s.len, err);
    if (status == SL_OK)
        status = end_token(&at, id, err);
    if (status == SL_OK) {
        c->state = at.state;
        c->started = true;
    }
    sl_cursor_release(&at);
    return status;
}

bool sl_cursor_complete(const struct sl_cursor *c) {
    return c->a->states[c->state].complete;
}
