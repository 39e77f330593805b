#include "engine/plan/split_heat.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* From 1024 times the mean use, which is all of the most experts that a layer can have, down to a
 * 64th of it. Less than that is hardly used at all. */
#define LEVELS     64u
#define PER_OCTAVE 4.0
#define OCTAVES_UP 10.0
/* Classes that are told apart; those that come after are one. Models have one or two, and a split
 * over 8 cards of as many layers as a model may have is to be found within a tenth of a second. */
#define MAX_CLASSES 4u

/* Experts at least as used as each level, the most used one first, of layers [0, i). */
struct row {
    uint32_t n[LEVELS];
    double bytes[LEVELS]; /* that a token reads of them */
};

struct sl_split_heat {
    uint32_t n_layer, n_class;
    struct row rows[]; /* [n_class, n_layer + 1] */
};

static struct row *row_of(struct sl_split_heat *h, uint32_t c, uint32_t layer) {
    return &h->rows[(size_t)c * (h->n_layer + 1) + layer];
}

static double use_of(const float *uses, uint32_t expert) {
    float u = uses[expert];
    return isfinite(u) && u > 0 ? (double)u : 0;
}

static double sum_of(const float *uses, uint32_t n) {
    double sum = 0;
    for (uint32_t e = 0; uses && e < n; e++)
        sum += use_of(uses, e);
    return sum;
}

/* times: of the layer's mean. The mean is in the middle of a level, so that sums that round
 * otherwise do not tell alike ones apart. */
static uint32_t level_of(double times) {
    if (times <= 0)
        return LEVELS - 1;
    double at = (OCTAVES_UP - log2(times)) * PER_OCTAVE + 0.5;
    return at < 0 ? 0 : at < LEVELS ? (uint32_t)at : LEVELS - 1;
}

/* Adds a layer to what is in row; whether it tells experts apart. */
static bool add_layer(const struct sl_split_routing *r, uint32_t layer, struct row *row) {
    struct row of = {.n = {0}};
    const float *uses = r->uses[layer];
    uint32_t n_expert = r->n_expert[layer];
    double sum = sum_of(uses, n_expert), bytes = r->routed_token_bytes[layer];
    uint32_t least = LEVELS, most = 0;
    for (uint32_t e = 0; e < n_expert && bytes > 0; e++) {
        double part = sum > 0 ? use_of(uses, e) / sum : 1.0 / n_expert;
        uint32_t l = level_of(part * n_expert);
        of.bytes[l] += part * bytes;
        of.n[l]++;
        least = l < least ? l : least;
        most = l > most ? l : most;
    }
    uint32_t n = 0;
    double upto = 0;
    for (uint32_t l = 0; l < LEVELS; l++) {
        row->n[l] += n += of.n[l];
        row->bytes[l] += upto += of.bytes[l];
    }
    return least < most;
}

static uint32_t class_of(const struct sl_split_routing *r, uint32_t layer) {
    uint32_t c = r->size_class[layer];
    return c < MAX_CLASSES ? c : MAX_CLASSES - 1;
}

enum sl_status sl_split_heat_create(const struct sl_split_routing *r,
                                    struct sl_split_heat **out_heat) {
    uint32_t n_class = 1;
    bool differs = false;
    for (uint32_t i = 0; i < r->n_layer; i++)
        n_class = class_of(r, i) >= n_class ? class_of(r, i) + 1 : n_class;
    size_t n_rows = (size_t)n_class * (r->n_layer + 1);
    struct sl_split_heat *h = calloc(1, sizeof *h + n_rows * sizeof *h->rows);
    if (!h)
        return SL_ERR_NOMEM;
    h->n_layer = r->n_layer;
    h->n_class = n_class;
    for (uint32_t i = 0; i < r->n_layer; i++)
        for (uint32_t c = 0; c < n_class; c++) {
            struct row *row = row_of(h, c, i + 1);
            *row = *row_of(h, c, i);
            if (class_of(r, i) == c)
                differs |= add_layer(r, i, row);
        }
    if (!differs)
        sl_split_heat_destroy(&h);
    *out_heat = h;
    return SL_OK;
}

void sl_split_heat_destroy(struct sl_split_heat **heat) {
    free(*heat);
    *heat = NULL;
}

/* What a token reads of the n most used of the experts from row a to row b; those of a level are
 * alike. */
static double most_used(const struct row *a, const struct row *b, double n) {
    uint32_t lo = 0, whole = (uint32_t)ceil(n); /* the first level with so many, without a branch */
    for (uint32_t step = LEVELS / 2; step; step /= 2)
        lo += b->n[lo + step - 1] - a->n[lo + step - 1] < whole ? step : 0;
    double above_n = lo ? b->n[lo - 1] - a->n[lo - 1] : 0;
    double above = lo ? b->bytes[lo - 1] - a->bytes[lo - 1] : 0;
    double in_n = b->n[lo] - a->n[lo] - above_n, in = b->bytes[lo] - a->bytes[lo] - above;
    return in_n > 0 ? above + fmin((n - above_n) / in_n, 1) * in : above;
}

double sl_split_heat_hits(const struct sl_split_heat *h, uint32_t from, uint32_t to, double share) {
    double hit = 0, all = 0;
    for (uint32_t c = 0; c < h->n_class; c++) {
        const struct row *a = &h->rows[(size_t)c * (h->n_layer + 1) + from], *b = a + (to - from);
        uint32_t n = b->n[LEVELS - 1] - a->n[LEVELS - 1];
        if (n) {
            hit += most_used(a, b, share * n);
            all += b->bytes[LEVELS - 1] - a->bytes[LEVELS - 1];
        }
    }
    return all > 0 ? fmin(fmax(hit / all, 0), 1) : share;
}
