#include "model/grammar/json_schema_regex.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NODES  (1u << 18)
#define MAX_RANGES (1u << 18)
#define MAX_MEMO   (1u << 20)
#define MAX_STEPS  (1u << 21)
#define MAX_DEPTH  1000u
#define FOREVER    SL_SCHEMA_NO_MAX

void sl_rx_fail(struct sl_rx *x, enum sl_status status, const char *what) {
    if (x->status == SL_OK)
        x->status = sl_fail(x->err, status, "%s", what);
}

static void too_much(struct sl_rx *x) {
    sl_rx_fail(x, SL_ERR_INVALID,
               "pattern: it is too complex, alone or beside format, minLength "
               "and maxLength");
}

/* Doubles an array of elements; false: no memory, or there are max. */
static bool grow(struct sl_rx *x, void **array, uint32_t *cap, uint32_t need, uint32_t max,
                 size_t size) {
    if (need <= *cap)
        return true;
    uint32_t more = *cap ? *cap : 64;
    while (more < need)
        more *= 2;
    if (more > max) {
        too_much(x);
        return false;
    }
    void *p = realloc(*array, more * size);
    if (!p) {
        sl_rx_fail(x, SL_ERR_NOMEM, "out of memory");
        return false;
    }
    *array = p;
    *cap = more;
    return true;
}

static uint32_t add(uint32_t a, uint32_t b) {
    return a == FOREVER || b == FOREVER || a + b > 1u << 24 ? FOREVER : a + b;
}

static uint32_t times(uint32_t a, uint32_t b) {
    if (a == 0 || b == 0)
        return 0;
    return a == FOREVER || b == FOREVER || (uint64_t)a * b > 1u << 24 ? FOREVER : a * b;
}

static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static uint32_t hash_node(const struct sl_rx_node *n) {
    uint64_t h = mix((uint64_t)n->a << 32 | n->b);
    return (uint32_t)mix(h ^ ((uint64_t)n->least << 8 | n->kind));
}

static uint32_t *slot_of(struct sl_rx *x, const struct sl_rx_node *n) {
    uint32_t i = hash_node(n) & (x->n_slots - 1);
    for (; x->slots[i]; i = (i + 1) & (x->n_slots - 1)) {
        const struct sl_rx_node *o = &x->nodes[x->slots[i] - 1];
        if (o->kind == n->kind && o->a == n->a && o->b == n->b && o->least == n->least)
            break;
    }
    return &x->slots[i];
}

static uint32_t node(struct sl_rx *x, struct sl_rx_node n) {
    if (x->status != SL_OK)
        return SL_RX_NONE;
    if (++x->steps > MAX_STEPS) {
        too_much(x);
        return SL_RX_NONE;
    }
    if (2 * x->n_nodes >= x->n_slots) {
        uint32_t *old = x->slots, n_new = x->n_slots ? 2 * x->n_slots : 256;
        uint32_t *slots = calloc(n_new, sizeof *slots);
        if (!slots) {
            sl_rx_fail(x, SL_ERR_NOMEM, "out of memory");
            return SL_RX_NONE;
        }
        x->slots = slots;
        x->n_slots = n_new;
        for (uint32_t i = 0; i < x->n_nodes; i++)
            *slot_of(x, &x->nodes[i]) = i + 1;
        free(old);
    }
    uint32_t *slot = slot_of(x, &n);
    if (*slot)
        return *slot - 1;
    if (!grow(x, (void **)&x->nodes, &x->cap_nodes, x->n_nodes + 1, MAX_NODES, sizeof n))
        return SL_RX_NONE;
    x->nodes[x->n_nodes] = n;
    *slot = ++x->n_nodes;
    return x->n_nodes - 1;
}

void sl_rx_init(struct sl_rx *x, struct sl_err *err) {
    *x = (struct sl_rx){.err = err};
    struct sl_rx_range all = {0, 0x10ffff};
    (void)node(x, (struct sl_rx_node){.kind = SL_RX_K_NONE, .direct = true, .min_len = FOREVER});
    (void)node(x, (struct sl_rx_node){.kind = SL_RX_K_EMPTY, .nullable = true, .direct = true});
    /* SL_RX_ANY before the set that it repeats, so that its number is known. */
    (void)node(x, (struct sl_rx_node){.kind = SL_RX_K_REPEAT,
                                      .nullable = true,
                                      .direct = true,
                                      .a = SL_RX_ANY + 1,
                                      .b = FOREVER,
                                      .max_len = FOREVER});
    (void)sl_rx_set(x, &all, 1);
}

void sl_rx_release(struct sl_rx *x) {
    free(x->nodes);
    free(x->ranges);
    free(x->sets);
    free(x->slots);
    free(x->memo);
    *x = (struct sl_rx){0};
}

/* ---- nodes ---- */

static int by_lo(const void *a, const void *b) {
    const struct sl_rx_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

uint32_t sl_rx_set(struct sl_rx *x, struct sl_rx_range *r, uint32_t n) {
    uint32_t k = 0, s;
    if (x->status != SL_OK || n == 0)
        return SL_RX_NONE;
    qsort(r, n, sizeof *r, by_lo);
    for (uint32_t i = 1; i < n; i++) {
        if (r[i].lo <= r[k].hi + 1)
            r[k].hi = r[i].hi > r[k].hi ? r[i].hi : r[k].hi;
        else
            r[++k] = r[i];
    }
    n = k + 1;
    for (s = 0; s < x->n_sets; s++)
        if (x->sets[s].n == n && memcmp(x->ranges + x->sets[s].first, r, n * sizeof *r) == 0)
            break;
    x->steps += x->n_sets / 16;
    if (s == x->n_sets) {
        if (!grow(x, (void **)&x->sets, &x->cap_sets, s + 1, MAX_RANGES, sizeof *x->sets) ||
            !grow(x, (void **)&x->ranges, &x->cap_ranges, x->n_ranges + n, MAX_RANGES, sizeof *r))
            return SL_RX_NONE;
        x->sets[s] = (struct sl_rx_set){x->n_ranges, n};
        memcpy(x->ranges + x->n_ranges, r, n * sizeof *r);
        x->n_ranges += n;
        x->n_sets++;
    }
    return node(x, (struct sl_rx_node){
                       .kind = SL_RX_K_SET, .direct = true, .a = s, .min_len = 1, .max_len = 1});
}

uint32_t sl_rx_cat(struct sl_rx *x, uint32_t a, uint32_t b) {
    if (a == SL_RX_NONE || b == SL_RX_NONE || x->status != SL_OK)
        return SL_RX_NONE;
    if (a == SL_RX_EMPTY)
        return b;
    if (b == SL_RX_EMPTY)
        return a;
    if (a == SL_RX_ANY && b == SL_RX_ANY)
        return a;
    if (x->nodes[a].kind == SL_RX_K_CAT) { /* to the right */
        uint32_t first = x->nodes[a].a, rest = x->nodes[a].b;
        if (++x->depth > MAX_DEPTH) {
            too_much(x);
            return SL_RX_NONE;
        }
        rest = sl_rx_cat(x, rest, b);
        x->depth--;
        return sl_rx_cat(x, first, rest);
    }
    const struct sl_rx_node *m = &x->nodes[a], *n = &x->nodes[b];
    return node(x, (struct sl_rx_node){.kind = SL_RX_K_CAT,
                                       .nullable = m->nullable && n->nullable,
                                       .direct = m->direct && n->direct,
                                       .a = a,
                                       .b = b,
                                       .min_len = add(m->min_len, n->min_len),
                                       .max_len = add(m->max_len, n->max_len)});
}

static uint32_t pair(struct sl_rx *x, enum sl_rx_kind kind, uint32_t a, uint32_t b) {
    const struct sl_rx_node *m = &x->nodes[a], *n = &x->nodes[b];
    bool alt = kind == SL_RX_K_ALT;
    return node(x, (struct sl_rx_node){
                       .kind = (uint8_t)kind,
                       .nullable = alt ? m->nullable || n->nullable : m->nullable && n->nullable,
                       .direct = alt && m->direct && n->direct,
                       .a = a,
                       .b = b,
                       .min_len = m->min_len < n->min_len ? m->min_len : n->min_len,
                       .max_len = m->max_len > n->max_len ? m->max_len : n->max_len});
}

/* A chain of ALT or AND is in descending order, each member once: equal ones are found equal, and
 * what is new goes to the front. */
static uint32_t join(struct sl_rx *x, enum sl_rx_kind kind, uint32_t a, uint32_t b) {
    uint32_t absorbs = kind == SL_RX_K_ALT ? SL_RX_ANY : SL_RX_NONE;
    uint32_t neutral = kind == SL_RX_K_ALT ? SL_RX_NONE : SL_RX_ANY;
    if (x->status != SL_OK)
        return SL_RX_NONE;
    if (a == b || b == neutral)
        return a;
    if (a == neutral)
        return b;
    if (a == absorbs || b == absorbs)
        return absorbs;
    uint32_t first_a = x->nodes[a].kind == kind ? x->nodes[a].a : a;
    uint32_t first_b = x->nodes[b].kind == kind ? x->nodes[b].a : b;
    uint32_t rest_a = x->nodes[a].kind == kind ? x->nodes[a].b : neutral;
    uint32_t rest_b = x->nodes[b].kind == kind ? x->nodes[b].b : neutral;
    if (++x->depth > MAX_DEPTH) {
        too_much(x);
        return SL_RX_NONE;
    }
    uint32_t first = first_a > first_b ? first_a : first_b;
    uint32_t rest = join(x, kind, first == first_a ? rest_a : a, first == first_b ? rest_b : b);
    x->depth--;
    if (x->status != SL_OK)
        return SL_RX_NONE;
    if (rest == neutral)
        return first;
    return rest == absorbs ? absorbs : pair(x, kind, first, rest);
}

uint32_t sl_rx_alt(struct sl_rx *x, uint32_t a, uint32_t b) {
    return join(x, SL_RX_K_ALT, a, b);
}

uint32_t sl_rx_and(struct sl_rx *x, uint32_t a, uint32_t b) {
    if (a == SL_RX_EMPTY || b == SL_RX_EMPTY) {
        uint32_t other = a == SL_RX_EMPTY ? b : a;
        return x->status == SL_OK && x->nodes[other].nullable ? SL_RX_EMPTY : SL_RX_NONE;
    }
    return join(x, SL_RX_K_AND, a, b);
}

uint32_t sl_rx_not(struct sl_rx *x, uint32_t a) {
    if (x->status != SL_OK || a == SL_RX_ANY)
        return SL_RX_NONE;
    if (a == SL_RX_NONE)
        return SL_RX_ANY;
    if (x->nodes[a].kind == SL_RX_K_NOT)
        return x->nodes[a].a;
    return node(
        x, (struct sl_rx_node){
               .kind = SL_RX_K_NOT, .nullable = !x->nodes[a].nullable, .a = a, .max_len = FOREVER});
}

uint32_t sl_rx_repeat(struct sl_rx *x, uint32_t a, uint32_t least, uint32_t most) {
    if (x->status != SL_OK)
        return SL_RX_NONE;
    if (most == 0 || a == SL_RX_EMPTY || (a == SL_RX_NONE && least == 0))
        return SL_RX_EMPTY;
    if (a == SL_RX_NONE || (least == 1 && most == 1) || a == SL_RX_ANY)
        return a;
    const struct sl_rx_node *m = &x->nodes[a];
    if (m->nullable)
        least = 0;
    return node(x, (struct sl_rx_node){.kind = SL_RX_K_REPEAT,
                                       .nullable = least == 0,
                                       .direct = m->direct,
                                       .a = a,
                                       .b = most,
                                       .least = least,
                                       .min_len = times(m->min_len, least),
                                       .max_len = times(m->max_len, most)});
}

uint32_t sl_rx_text(struct sl_rx *x, const char *text) {
    uint32_t cps[512], n = 0, out = SL_RX_EMPTY;
    for (const unsigned char *p = (const unsigned char *)text; *p; n++) {
        uint32_t len = sl_utf8_len(p, strnlen((const char *)p, 4));
        if (!len || n == 512) {
            too_much(x);
            return SL_RX_NONE;
        }
        cps[n] = sl_utf8_get(p, len);
        p += len;
    }
    while (n--) {
        struct sl_rx_range r = {cps[n], cps[n]};
        out = sl_rx_cat(x, sl_rx_set(x, &r, 1), out);
    }
    return out;
}

uint32_t sl_rx_lengths(struct sl_rx *x, uint32_t least, uint32_t most) {
    if (least == 0 && most == FOREVER)
        return x->status == SL_OK ? SL_RX_ANY : SL_RX_NONE;
    return sl_rx_repeat(x, SL_RX_ANY + 1, least, most);
}

/* ---- derivatives ---- */

static bool in_set(const struct sl_rx *x, uint32_t s, uint32_t cp) {
    const struct sl_rx_range *r = x->ranges + x->sets[s].first;
    uint32_t lo = 0, hi = x->sets[s].n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (cp > r[mid].hi)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < x->sets[s].n && r[lo].lo <= cp;
}

/* The key's place, or where it would be. */
static uint64_t *memo_of(uint64_t *memo, uint32_t cap, uint64_t key) {
    uint32_t i = (uint32_t)mix(key) & (cap - 1);
    while (memo[2 * i] && memo[2 * i] != key)
        i = (i + 1) & (cap - 1);
    return &memo[2 * i];
}

static bool memo_grow(struct sl_rx *x) {
    if (2 * x->n_memo < x->cap_memo)
        return true;
    uint32_t cap = x->cap_memo ? 2 * x->cap_memo : 256;
    uint64_t *memo = cap <= MAX_MEMO ? calloc(cap, 2 * sizeof *memo) : NULL;
    if (!memo) {
        if (cap > MAX_MEMO)
            too_much(x);
        else
            sl_rx_fail(x, SL_ERR_NOMEM, "out of memory");
        return false;
    }
    for (uint32_t i = 0; i < x->cap_memo; i++)
        if (x->memo[2 * i])
            memcpy(memo_of(memo, cap, x->memo[2 * i]), &x->memo[2 * i], 2 * sizeof *memo);
    free(x->memo);
    x->memo = memo;
    x->cap_memo = cap;
    return true;
}

static uint32_t derive(struct sl_rx *x, const struct sl_rx_node *n, uint32_t cp) {
    uint32_t d, e;
    switch (n->kind) {
    case SL_RX_K_SET:
        return in_set(x, n->a, cp) ? SL_RX_EMPTY : SL_RX_NONE;
    case SL_RX_K_CAT:
        d = sl_rx_cat(x, sl_rx_derive(x, n->a, cp), n->b);
        if (x->status != SL_OK || !x->nodes[n->a].nullable)
            return d;
        e = sl_rx_derive(x, n->b, cp);
        return sl_rx_alt(x, d, e);
    case SL_RX_K_ALT:
        d = sl_rx_derive(x, n->a, cp);
        e = sl_rx_derive(x, n->b, cp);
        return sl_rx_alt(x, d, e);
    case SL_RX_K_AND:
        d = sl_rx_derive(x, n->a, cp);
        e = d == SL_RX_NONE ? d : sl_rx_derive(x, n->b, cp);
        return sl_rx_and(x, d, e);
    case SL_RX_K_NOT:
        d = sl_rx_derive(x, n->a, cp);
        return sl_rx_not(x, d);
    case SL_RX_K_REPEAT:
        d = sl_rx_derive(x, n->a, cp);
        e = sl_rx_repeat(x, n->a, n->least ? n->least - 1 : 0, n->b == FOREVER ? n->b : n->b - 1);
        return sl_rx_cat(x, d, e);
    default:
        return SL_RX_NONE;
    }
}

uint32_t sl_rx_derive(struct sl_rx *x, uint32_t a, uint32_t cp) {
    if (x->status != SL_OK)
        return SL_RX_NONE;
    if (a <= SL_RX_ANY)
        return a == SL_RX_ANY ? a : SL_RX_NONE;
    uint64_t key = (uint64_t)a << 32 | (cp + 1);
    if (x->cap_memo) {
        const uint64_t *known = memo_of(x->memo, x->cap_memo, key);
        if (*known)
            return (uint32_t)known[1];
    }
    if (++x->depth > MAX_DEPTH || ++x->steps > MAX_STEPS) {
        too_much(x);
        return SL_RX_NONE;
    }
    const struct sl_rx_node n = x->nodes[a]; /* the array may move */
    uint32_t d = derive(x, &n, cp);
    x->depth--;
    if (x->status != SL_OK || !memo_grow(x))
        return SL_RX_NONE;
    uint64_t *at = memo_of(x->memo, x->cap_memo, key);
    at[0] = key;
    at[1] = d;
    x->n_memo++;
    return d;
}

bool sl_rx_has(struct sl_rx *x, uint32_t a, const char *text) {
    for (const unsigned char *p = (const unsigned char *)text; *p && x->status == SL_OK;) {
        uint32_t len = sl_utf8_len(p, strnlen((const char *)p, 4));
        if (!len)
            return false;
        a = sl_rx_derive(x, a, sl_utf8_get(p, len));
        p += len;
    }
    return x->status == SL_OK && x->nodes[a].nullable;
}
