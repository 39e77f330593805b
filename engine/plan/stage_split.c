#include "engine/plan/stage_split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reading an expert over the link, or from disk, compared with reading it from the card's
 * memory: 4.5 TB/s and 52 GB/s on an H200, 1 TB/s and 25 GB/s on cards for desktops. */
#define ELSEWHERE_TIMES 64.0
/* What a layer takes besides reading: its kernels' beginnings and ends, and what they compute. On
 * an H200 one that reads 37 MB a token takes 34 us, of which reading is 9. */
#define LAYER_SECONDS 25e-6
/* What the last stage takes besides reading the output matrix: logits, or their maxima alone, go
 * back to the host, which waits for them before it has the stage begin anew. */
#define OUTPUT_SECONDS 15e-6

/* ---- numbers that are given ---- */

enum sl_status sl_split_parse(const char *text, uint32_t n_layer, struct sl_split *out_split,
                              struct sl_err *err) {
    struct sl_split s = {0};
    uint32_t sum = 0;
    *out_split = s;
    if (text && strncmp(text, "0,", 2) == 0)
        s.none_at_first = out_split->none_at_first = true;
    if (!text || strcmp(text, "auto") == 0 || strcmp(text, "0,auto") == 0)
        return SL_OK;
    for (const char *at = text; at; s.n++) {
        char *end = NULL;
        unsigned long v = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
        if ((!v && !(s.none_at_first && !s.n)) || v > SL_MAX_LAYERS || (*end && *end != ',') ||
            s.n == SL_MAX_STAGES)
            return sl_fail(
                err, SL_ERR_CONFIG,
                "--split is '%.60s': must be auto, or how many layers each device has, as "
                "in 20,28 (at most %u devices; with --workers the first may have 0)",
                text, SL_MAX_STAGES);
        s.n_layer[s.n] = (uint32_t)v;
        sum += (uint32_t)v;
        at = *end ? end + 1 : NULL;
    }
    if (n_layer && sum != n_layer)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--split %.60s is of %u layers, and the model has %u: the numbers must sum "
                       "to that",
                       text, sum, n_layer);
    *out_split = s;
    return SL_OK;
}

/* ---- choosing ---- */

/* Sums over layers [0, i). */
struct sums {
    uint64_t fixed, expert;
    double dense_token, routed_token;
};

struct search {
    const struct sl_split_model *model;
    const struct sl_split_card *cards;
    uint32_t n_cards;
    bool speeds_known;
    struct sums upto[SL_MAX_LAYERS + 1];
};

/* What layers [from, to) take of a card at least, and with all their experts. */
static uint64_t whole_bytes(const struct search *s, uint32_t card, uint32_t from, uint32_t to) {
    return s->cards[card].stage_bytes + s->upto[to].fixed - s->upto[from].fixed +
           s->upto[to].expert - s->upto[from].expert;
}
static uint64_t least_bytes(const struct search *s, uint32_t card, uint32_t from, uint32_t to) {
    uint64_t whole = whole_bytes(s, card, from, to);
    uint64_t streamed =
        whole - (s->upto[to].expert - s->upto[from].expert) + s->model->least_slot_bytes;
    enum sl_experts_where where = s->model->experts;
    bool resident = where == SL_EXPERTS_RESIDENT || (where == SL_EXPERTS_AUTO && whole < streamed);
    return resident ? whole : streamed;
}

/* Of the experts of layers that fit, the part that the card has room for. */
static double room_share(const struct search *s, uint32_t card, uint32_t from, uint32_t to) {
    uint64_t budget = s->cards[card].budget_bytes, whole = whole_bytes(s, card, from, to);
    uint64_t experts = s->upto[to].expert - s->upto[from].expert;
    bool in_slots = s->model->experts == SL_EXPERTS_STREAMED || whole > budget;
    if (!experts || !in_slots)
        return 1;
    uint64_t room = budget - (whole - experts + s->model->least_slot_bytes);
    return room < experts ? (double)room / (double)experts : 1;
}

/* What a token costs there; INFINITY where the layers do not fit. */
static double cost(const struct search *s, uint32_t card, uint32_t from, uint32_t to) {
    const struct sl_split_card *c = &s->cards[card];
    if (least_bytes(s, card, from, to) > c->budget_bytes)
        return INFINITY;
    double speed = s->speeds_known ? (double)c->bytes_per_s : 1;
    double here = room_share(s, card, from, to);
    double dense = s->upto[to].dense_token - s->upto[from].dense_token;
    double routed = s->upto[to].routed_token - s->upto[from].routed_token;
    if (here < 1 && s->model->heat)
        here = sl_split_heat_hits(s->model->heat, from, to, here);
    double fixed = (to - from) * LAYER_SECONDS + (to == s->model->n_layer) * OUTPUT_SECONDS;
    if (!s->speeds_known)
        fixed = 0;
    return (dense + routed * (here + (1 - here) * ELSEWHERE_TIMES)) / speed + fixed;
}

static double need(const struct search *s, uint32_t card, uint32_t from, uint32_t to) {
    return (double)least_bytes(s, card, from, to);
}

/* best[i]: of layers [0, i) over the cards up to now; cut[c][i]: where card c's layers begin. */
struct table {
    double best[SL_MAX_LAYERS + 1], next[SL_MAX_LAYERS + 1];
    uint16_t cut[SL_MAX_STAGES][SL_MAX_LAYERS + 1];
};

static double sum_of(double a, double b) {
    return a + b;
}
static double larger_of(double a, double b) {
    return a > b ? a : b;
}

/* Joins what the stages are with `join`; a stage above `most` is out. */
static double fill(const struct search *s, struct table *t,
                   double (*stage)(const struct search *, uint32_t, uint32_t, uint32_t),
                   double (*join)(double, double), double most) {
    uint32_t n = s->model->n_layer;
    for (uint32_t i = 0; i <= n; i++)
        t->best[i] = i ? INFINITY : 0;
    for (uint32_t c = 0; c < s->n_cards; c++) {
        for (uint32_t to = 0; to <= n; to++) {
            t->next[to] = INFINITY;
            t->cut[c][to] = 0;
            for (uint32_t from = 0; from < to; from++) {
                if (!(t->best[from] < t->next[to])) /* neither kind of joining makes less of it */
                    continue;
                if (s->model->layers[from].joined)
                    continue;
                double v = stage(s, c, from, to);
                v = v > most ? INFINITY : join(t->best[from], v);
                if (v < t->next[to]) {
                    t->next[to] = v;
                    t->cut[c][to] = (uint16_t)from;
                }
            }
        }
        memcpy(t->best, t->next, sizeof t->best);
    }
    return t->best[n];
}

static void read_cuts(const struct search *s, const struct table *t, struct sl_split *out) {
    uint32_t to = s->model->n_layer;
    out->n = s->n_cards;
    for (uint32_t c = s->n_cards; c-- > 0;) {
        out->n_layer[c] = to - t->cut[c][to];
        to = t->cut[c][to];
    }
}

static void put_none_first(struct sl_split *out) {
    memmove(out->n_layer + 1, out->n_layer, out->n++ * sizeof *out->n_layer);
    out->n_layer[0] = 0;
}

static void add_up(struct search *s) {
    s->upto[0] = (struct sums){0};
    for (uint32_t i = 0; i < s->model->n_layer; i++) {
        const struct sl_split_layer *l = &s->model->layers[i];
        const struct sums *u = &s->upto[i];
        s->upto[i + 1] = (struct sums){u->fixed + l->fixed_bytes, u->expert + l->expert_bytes,
                                       u->dense_token + l->dense_token_bytes,
                                       u->routed_token + l->routed_token_bytes};
    }
    s->speeds_known = true;
    for (uint32_t c = 0; c < s->n_cards; c++)
        s->speeds_known &= s->cards[c].bytes_per_s != 0;
}

bool sl_split_lacks_room(const struct sl_split_model *model, const struct sl_split_card *cards,
                         const struct sl_split *split) {
    bool lacks = false;
    for (uint32_t c = 0, i = 0; c < split->n; c++) {
        uint64_t fixed = cards[c].stage_bytes, experts = 0;
        for (uint32_t end = i + split->n_layer[c]; i < end; i++) {
            fixed += model->layers[i].fixed_bytes;
            experts += model->layers[i].expert_bytes;
        }
        if (model->experts == SL_EXPERTS_STREAMED)
            fixed += model->least_slot_bytes;
        lacks |= experts && fixed + experts > cards[c].budget_bytes;
    }
    return lacks;
}

enum sl_status sl_split_choose(const struct sl_split_model *model,
                               const struct sl_split_card *cards, uint32_t n_cards,
                               bool none_at_first, struct sl_split *out_split,
                               uint64_t *out_least_bytes) {
    struct search *s = calloc(1, sizeof *s);
    struct table *t = malloc(sizeof *t);
    enum sl_status status = s && t ? SL_OK : SL_ERR_NOMEM;
    if (status == SL_OK) {
        s->model = model;
        s->cards = cards + none_at_first;
        s->n_cards = n_cards - none_at_first;
        add_up(s);
        double slowest = fill(s, t, cost, larger_of, INFINITY);
        if (isinf(slowest)) {
            double least = fill(s, t, need, larger_of, INFINITY);
            *out_least_bytes = least < 0x1p63 ? (uint64_t)least : UINT64_MAX;
            status = SL_ERR_CONFIG;
        } else {
            /* A little more than the least, for sums that round otherwise. */
            (void)fill(s, t, cost, sum_of, slowest * (1 + 1e-9));
            read_cuts(s, t, out_split);
            if (none_at_first)
                put_none_first(out_split);
        }
    }
    free(s);
    free(t);
    return status;
}
