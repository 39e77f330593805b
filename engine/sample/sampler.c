#include "engine/sample/sampler.h"

#include "engine/sample/sampler_select.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct sl_sampling sl_sampling_default = {
    .temperature = 1,
    .top_p = 1,
    .typical_p = 1,
    .repeat_penalty = 1,
    .repeat_last_n = 64,
    .dry = {.base = 1.75f, .allowed_length = 2, .last_n = UINT32_MAX},
};

#define BLOCK SL_VOCAB_BLOCK
/* Single logits are changed and their blocks looked at again while these are at most such a part of
 * all blocks: then that is less than half of looking at all. */
#define CHANGES_PART 4u

enum sl_status sl_sampler_space_init(struct sl_sampler_space *space, uint32_t n_vocab) {
    *space = (struct sl_sampler_space){.n_vocab = n_vocab, .pass = sl_vocab_pass_best()};
    space->key = malloc(n_vocab * sizeof *space->key);
    space->mass = malloc(n_vocab * sizeof *space->mass);
    space->spare = malloc(n_vocab * sizeof *space->spare);
    space->block_max = malloc(SL_VOCAB_BLOCKS(n_vocab) * sizeof *space->block_max);
    space->block_sum = malloc(SL_VOCAB_BLOCKS(n_vocab) * sizeof *space->block_sum);
    space->id = malloc(n_vocab * sizeof *space->id);
    space->order = malloc(n_vocab * sizeof *space->order);
    space->count = calloc(n_vocab, sizeof *space->count);
    space->matches = malloc(SL_DRY_MAX_LENGTH * sizeof *space->matches);
    space->bucket_n = malloc(SL_SAMPLER_BUCKETS * sizeof *space->bucket_n);
    space->bucket_mass = malloc(SL_SAMPLER_BUCKETS * sizeof *space->bucket_mass);
    if (space->key && space->mass && space->spare && space->block_max && space->block_sum &&
        space->id && space->order && space->count && space->matches && space->bucket_n &&
        space->bucket_mass)
        return SL_OK;
    sl_sampler_space_release(space);
    return SL_ERR_NOMEM;
}

void sl_sampler_space_release(struct sl_sampler_space *space) {
    free(space->key);
    free(space->mass);
    free(space->spare);
    free(space->block_max);
    free(space->block_sum);
    free(space->id);
    free(space->order);
    free(space->count);
    free(space->matches);
    free(space->bucket_n);
    free(space->bucket_mass);
    memset(space, 0, sizeof *space);
}

uint64_t sl_sampler_space_bytes(uint32_t n_vocab) {
    return (uint64_t)n_vocab * 6 * 4 + SL_VOCAB_BLOCKS(n_vocab) * (uint64_t)8 +
           SL_DRY_MAX_LENGTH * 4 + SL_SAMPLER_BUCKETS * (4 + 8);
}

enum sl_status sl_sampling_check(const struct sl_sampling *s, uint32_t n_vocab,
                                 struct sl_err *err) {
    if (!(s->temperature >= 0) || !isfinite(s->temperature))
        return sl_fail(err, SL_ERR_INVALID, "temperature must be a number from 0 up");
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return sl_fail(err, SL_ERR_INVALID, "top_p must be from 0 to 1");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return sl_fail(err, SL_ERR_INVALID, "min_p must be from 0 to 1");
    if (!(s->typical_p >= 0 && s->typical_p <= 1))
        return sl_fail(err, SL_ERR_INVALID, "typical_p must be from 0 to 1");
    if (!(s->top_n_sigma >= 0) || !isfinite(s->top_n_sigma))
        return sl_fail(err, SL_ERR_INVALID, "top_n_sigma must be a number from 0 up");
    if (!(s->xtc_probability >= 0 && s->xtc_probability <= 1))
        return sl_fail(err, SL_ERR_INVALID, "xtc_probability must be from 0 to 1");
    if (!(s->xtc_threshold >= 0 && s->xtc_threshold <= 1))
        return sl_fail(err, SL_ERR_INVALID, "xtc_threshold must be from 0 to 1");
    if (!(s->repeat_penalty > 0) || !isfinite(s->repeat_penalty))
        return sl_fail(err, SL_ERR_INVALID, "repeat_penalty must be above 0");
    if (!isfinite(s->presence_penalty))
        return sl_fail(err, SL_ERR_INVALID, "presence_penalty must be a finite number");
    if (!isfinite(s->frequency_penalty))
        return sl_fail(err, SL_ERR_INVALID, "frequency_penalty must be a finite number");
    if (sl_dry_check(&s->dry, err) != SL_OK)
        return SL_ERR_INVALID;
    for (uint32_t i = 0; i < s->n_logit_bias; i++) {
        if (s->logit_bias[i].token >= n_vocab)
            return sl_fail(err, SL_ERR_INVALID,
                           "logit_bias: token %u is outside the vocabulary of %u",
                           s->logit_bias[i].token, n_vocab);
        if (!isfinite(s->logit_bias[i].bias) && s->logit_bias[i].bias != -INFINITY)
            return sl_fail(err, SL_ERR_INVALID, "logit_bias: the bias of token %u is not a number",
                           s->logit_bias[i].token);
    }
    for (uint32_t i = 0; i < s->n_held; i++)
        if (s->held[i] >= n_vocab)
            return sl_fail(err, SL_ERR_INVALID, "token %u is outside the vocabulary of %u",
                           s->held[i], n_vocab);
    return SL_OK;
}

void sl_sampler_init(struct sl_sampler *s, const struct sl_sampling *set) {
    s->set = *set;
    s->n_picked = 0;
    s->clear = (struct sl_dry_clear){0, 0};
    s->rng.state = set->seed;
}

/* ---- blocks of the whole vocabulary ---- */

/* Capped: next to nothing must not become 0 times infinity at the largest logit. */
static float inverse(float temperature) {
    return temperature > 1e-30f ? 1 / temperature : 1e30f;
}

float sl_sampling_sums_at(const struct sl_sampling *s, bool logprobs) {
    if (logprobs)
        return 1;
    if (s->temperature == 0 || s->constraint || s->top_k || s->typical_p < 1)
        return 0;
    return s->top_p < 1 ? 1 : inverse(s->temperature);
}

/* Takes over what is known of the blocks of logits that come; NULL: nothing. Are the maxima? */
static bool take_blocks(struct sl_sampler_space *sp, const struct sl_vocab_blocks *known) {
    size_t bytes = SL_VOCAB_BLOCKS(sp->n_vocab) * sizeof *sp->block_max;
    sp->sums_at = 0;
    if (!known || !known->max)
        return false;
    memcpy(sp->block_max, known->max, bytes);
    if (known->sum && known->inv_t > 0) {
        memcpy(sp->block_sum, known->sum, bytes);
        sp->sums_at = known->inv_t;
    }
    return true;
}

/* A logit has changed: what is known of its block. */
static void renew_block(struct sl_sampler_space *sp, const float *logits, uint32_t id) {
    uint32_t b = id / BLOCK, left = sp->n_vocab - b * BLOCK, n = left < BLOCK ? left : BLOCK;
    const float *x = logits + (size_t)b * BLOCK;
    float without_nan;
    sp->block_max[b] = sp->pass->max(x, n, &without_nan);
    if (sp->sums_at > 0)
        sp->pass->block_sums(x, &sp->block_max[b], sp->sums_at, &sp->block_sum[b], n);
}

/* The largest logit, NaN when any is NaN. known: the space has the blocks' maxima; else it gets
 * them. */
static float find_max(struct sl_sampler_space *sp, const float *logits, bool known) {
    return known ? sp->pass->max(sp->block_max, SL_VOCAB_BLOCKS(sp->n_vocab), sp->key)
                 : sp->pass->max(logits, sp->n_vocab, sp->block_max);
}

/* The sum of exp((logit - max) * inv_t), and that of each block in sp->key; the blocks' maxima are
 * known. */
static double weigh_blocks(struct sl_sampler_space *sp, const float *logits, float max,
                           float inv_t) {
    if (sp->sums_at != inv_t)
        sp->pass->block_sums(logits, sp->block_max, inv_t, sp->block_sum, sp->n_vocab);
    sp->sums_at = inv_t;
    return sp->pass->weigh(sp->block_sum, sp->block_max, max, inv_t, sp->key,
                           SL_VOCAB_BLOCKS(sp->n_vocab));
}

double sl_log_sum_exp(const float *logits, const struct sl_vocab_blocks *known, uint32_t n) {
    const struct sl_vocab_pass *pass = sl_vocab_pass_best();
    enum { PART = SL_VOCAB_BLOCK * SL_VOCAB_BLOCK }; /* what weigh() sums in float */
    float own_max[PART / BLOCK], own_sum[PART / BLOCK], mass[PART / BLOCK], max = -INFINITY;
    bool have_max = known && known->max, have_sum = have_max && known->sum && known->inv_t == 1;
    double total = 0;
    for (uint32_t i = 0; i < n; i += PART) {
        uint32_t m = n - i < PART ? n - i : PART;
        float top = have_max ? pass->max(known->max + i / BLOCK, SL_VOCAB_BLOCKS(m), mass)
                             : pass->max(logits + i, m, own_max);
        if (isnan(top))
            return (double)top;
        max = top > max ? top : max;
    }
    if (!isfinite(max))
        return (double)max;
    for (uint32_t i = 0; i < n; i += PART) {
        uint32_t m = n - i < PART ? n - i : PART;
        const float *block_max = have_max ? known->max + i / BLOCK : own_max;
        if (!have_max)
            (void)pass->max(logits + i, m, own_max);
        if (!have_sum)
            pass->block_sums(logits + i, block_max, 1, own_sum, m);
        total += pass->weigh(have_sum ? known->sum + i / BLOCK : own_sum, block_max, max, 1, mass,
                             SL_VOCAB_BLOCKS(m));
    }
    return (double)max + log(total);
}

/* ---- the candidate set: id[0..n) with logits key[], by ascending id ---- */

struct set {
    struct sl_sampler_space *sp;
    const float *logit; /* [n]; at first the request's logits themselves, */
    float *left;        /* later what filters have left, here */
    uint32_t n;
    bool all; /* id[i] == i */
    float max;
};

/* Keeps the candidates that sl_select_best() has cut off by sp->key: n of them. */
static void keep(struct set *c, uint32_t n, struct sl_cut cut) {
    struct sl_sampler_space *sp = c->sp;
    uint32_t kept = 0;
    if (n == c->n)
        return;
    for (uint32_t i = 0; i < c->n; i++) {
        float l = c->logit[i];
        sp->id[kept] = c->all ? i : sp->id[i];
        c->left[kept] = l;
        kept += sl_cut_has(cut, sp->key, i);
    }
    c->logit = c->left;
    c->all = false;
    c->n = kept;
}

/* By sp->key: as many as it takes to reach the limit, in number or in mass. */
static void keep_best(struct set *c, const float *mass, double limit) {
    struct sl_cut cut;
    uint32_t n = sl_select_best(c->sp, c->sp->key, mass, c->n, limit, &cut);
    keep(c, n, cut);
}

static void keys_from_max(struct set *c) {
    for (uint32_t i = 0; i < c->n; i++)
        c->sp->key[i] = c->max - c->logit[i];
}

/* Drops, in one pass, every candidate below floor: a first cut so that the exact ones have less to
 * do. While the set is the whole vocabulary, blocks without a candidate are skipped unread. */
static void prune(struct set *c, float floor) {
    struct sl_sampler_space *sp = c->sp;
    uint32_t kept = 0;
    for (uint32_t b = 0; b < c->n; b += BLOCK) {
        if (c->all && sp->block_max[b / BLOCK] < floor)
            continue;
        uint32_t end = b + BLOCK < c->n ? b + BLOCK : c->n;
        for (uint32_t i = b; i < end; i++) {
            float l = c->logit[i];
            sp->id[kept] = c->all ? i : sp->id[i];
            c->left[kept] = l;
            kept += l >= floor;
        }
    }
    if (kept == c->n)
        return;
    c->logit = c->left;
    c->all = false;
    c->n = kept;
}

/* A logit that at least k candidates reach: the k-th largest of the blocks' maxima, which are
 * candidates themselves. */
static float kth_floor(struct sl_sampler_space *sp, float max, uint32_t n, uint32_t k) {
    uint32_t n_blocks = SL_VOCAB_BLOCKS(n);
    if (k > n_blocks)
        return -INFINITY;
    for (uint32_t i = 0; i < n_blocks; i++)
        sp->key[i] = max - sp->block_max[i];
    struct sl_cut cut;
    sl_select_best(sp, sp->key, NULL, n_blocks, k, &cut);
    float floor = max;
    for (uint32_t i = 0; i < n_blocks; i++)
        if (sp->key[i] <= cut.key && sp->block_max[i] < floor)
            floor = sp->block_max[i];
    return floor;
}

static void filter_sigma(struct set *c, float n) {
    double sum = 0, squares = 0;
    uint32_t counted = 0;
    if (!(n > 0))
        return;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->logit[i] > -INFINITY) {
            sum += (double)c->logit[i];
            counted++;
        }
    for (uint32_t i = 0; i < c->n; i++)
        if (c->logit[i] > -INFINITY) {
            double off = (double)c->logit[i] - sum / counted;
            squares += off * off;
        }
    prune(c, (float)((double)c->max - (double)n * sqrt(squares / counted)));
}

static void filter_top_k(struct set *c, uint32_t k) {
    if (!k || k >= c->n)
        return;
    prune(c, kth_floor(c->sp, c->max, c->n, k));
    keys_from_max(c);
    keep_best(c, NULL, k);
}

static void filter_top_p(struct set *c, float p) {
    if (p >= 1)
        return;
    struct sl_sampler_space *sp = c->sp;
    double total = c->all ? weigh_blocks(sp, c->logit, c->max, 1)
                          : sp->pass->exp_sum(c->logit, c->max, 1, sp->mass, c->n);
    /* All the candidates that have less than an equal share of the mass to be dropped have,
     * together, less than that mass: none of them is needed. */
    double share = (1 - (double)p) * total / c->n;
    prune(c, c->max + (float)log(share) - 1e-3f);
    sp->pass->exp(c->logit, c->max, 1, sp->mass, c->n);
    keys_from_max(c);
    keep_best(c, sp->mass, (double)p * total);
}

/* Keeps the tokens whose surprise is nearest to the expected one. */
static void filter_typical(struct set *c, float p) {
    if (p >= 1)
        return;
    struct sl_sampler_space *sp = c->sp;
    double total = sp->pass->exp_sum(c->logit, c->max, 1, sp->mass, c->n), weighted = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (sp->mass[i] > 0)
            weighted += (double)sp->mass[i] * (double)(c->max - c->logit[i]);
    /* surprise_i = log(total) + max - logit_i; its expectation is the entropy */
    float mean = (float)(weighted / total);
    for (uint32_t i = 0; i < c->n; i++)
        sp->key[i] = fabsf(c->max - c->logit[i] - mean);
    keep_best(c, sp->mass, (double)p * total);
    c->max = sp->pass->max(c->logit, c->n, sp->block_max);
}

static void filter_min_p(struct set *c, float p) {
    if (p > 0)
        prune(c, c->max + logf(p));
}

/* Leaves of the likely candidates only the least likely. */
static void exclude_top(struct set *c, float threshold) {
    struct sl_sampler_space *sp = c->sp;
    double total = c->all ? weigh_blocks(sp, c->logit, c->max, 1)
                          : sp->pass->exp_sum(c->logit, c->max, 1, sp->mass, c->n);
    float floor = threshold > 0 ? c->max + (float)log((double)threshold * total) : -INFINITY;
    uint32_t n_likely = 0, least = 0, kept = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->logit[i] < floor || c->logit[i] == -INFINITY)
            continue;
        if (!n_likely++ || c->logit[i] <= c->logit[least])
            least = i;
    }
    if (n_likely < 2)
        return;
    float max = c->logit[least];
    for (uint32_t i = 0; i < c->n; i++) {
        float l = c->logit[i];
        sp->id[kept] = c->all ? i : sp->id[i];
        c->left[kept] = l;
        kept += (l < floor) | (i == least);
    }
    c->logit = c->left;
    c->all = false;
    c->n = kept;
    c->max = max;
}

static void filter_xtc(struct set *c, const struct sl_sampling *s, struct sl_rng *rng) {
    if (!(s->xtc_probability > 0) || s->xtc_threshold > 0.5f)
        return;
    if (sl_rng_unit(rng) < (double)s->xtc_probability && c->n)
        exclude_top(c, s->xtc_threshold);
}

static uint32_t largest(const float *mass, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = mass[i] > mass[best] ? i : best;
    return best;
}

/* Where a draw falls among n masses; out_left, what is left of it there. Rounding may carry it past
 * the last, which may be as good as impossible: then it is the largest, with more than all of it
 * left. */
static uint32_t fall(const float *mass, uint32_t n, double draw, double *out_left) {
    for (uint32_t i = 0; i < n; i++) {
        if (!(mass[i] > 0))
            continue;
        if (draw < (double)mass[i]) {
            *out_left = draw;
            return i;
        }
        draw -= (double)mass[i];
    }
    *out_left = INFINITY;
    return largest(mass, n);
}

/* unit: from 0 to 1. Of the whole vocabulary, only the block in which it falls is looked at. */
static uint32_t draw_from_all(struct set *c, float inv_t, double unit) {
    struct sl_sampler_space *sp = c->sp;
    double left = unit * weigh_blocks(sp, c->logit, c->max, inv_t);
    uint32_t b = fall(sp->key, SL_VOCAB_BLOCKS(c->n), left, &left), at = b * BLOCK;
    uint32_t n = c->n - at < BLOCK ? c->n - at : BLOCK;
    sp->pass->exp(c->logit + at, sp->block_max[b], inv_t, sp->mass, n);
    /* In the block's own measure, by which its sum was made. */
    return at + fall(sp->mass, n, left * (double)sp->block_sum[b] / (double)sp->key[b], &left);
}

static uint32_t draw(struct set *c, float inv_t, double unit) {
    struct sl_sampler_space *sp = c->sp;
    if (c->all)
        return draw_from_all(c, inv_t, unit);
    double left = unit * sp->pass->exp_sum(c->logit, c->max, inv_t, sp->mass, c->n);
    return sp->id[fall(sp->mass, c->n, left, &left)];
}

/* ---- changes of single logits; known: the space has their blocks ---- */

static void apply_bias(const struct sl_sampling *s, struct sl_sampler_space *sp, float *logits,
                       bool known) {
    for (uint32_t i = 0; i < s->n_logit_bias; i++) {
        logits[s->logit_bias[i].token] += s->logit_bias[i].bias;
        if (known)
            renew_block(sp, logits, s->logit_bias[i].token);
    }
}

/* So many tokens may not come yet. */
static uint32_t n_held(const struct sl_sampler *s) {
    return s->n_picked < s->set.min_tokens ? s->set.n_held : 0;
}

static void apply_held(const struct sl_sampling *s, struct sl_sampler_space *sp, float *logits,
                       bool known, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        logits[s->held[i]] = -INFINITY;
        if (known)
            renew_block(sp, logits, s->held[i]);
    }
}

/* So many of the last tokens are penalised. */
static uint32_t n_penalised(const struct sl_sampling *s, uint32_t n_history) {
    if (s->repeat_penalty == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0)
        return 0;
    return n_history < s->repeat_last_n ? n_history : s->repeat_last_n;
}

static void apply_penalties(const struct sl_sampling *s, struct sl_sampler_space *sp, float *logits,
                            bool known, const uint32_t *seen, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        sp->count[seen[i]]++;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = seen[i], count = sp->count[id];
        if (!count)
            continue;
        sp->count[id] = 0;
        float l = logits[id];
        l = l > 0 ? l / s->repeat_penalty : l * s->repeat_penalty;
        logits[id] = l - (float)count * s->frequency_penalty - s->presence_penalty;
        if (known)
            renew_block(sp, logits, id);
    }
}

/* What sl_dry_find() has left in the space. */
static void apply_dry(struct sl_sampler_space *sp, float *logits, bool known, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        logits[sp->order[i]] -= sp->key[i];
        if (known)
            renew_block(sp, logits, sp->order[i]);
    }
}

/* How many logits each step changes. */
struct changes {
    uint32_t n_held, n_seen, n_dry;
};

/* DRY's are found, and stay in the space's order and key. */
static struct changes find_changes(struct sl_sampler *s, struct sl_sampler_space *sp,
                                   const uint32_t *history, uint32_t n_history) {
    uint32_t n_dry = sl_dry_is_on(&s->set.dry)
                         ? sl_dry_find(&s->set.dry, history, n_history, &s->clear, sp->matches,
                                       sp->count, sp->order, sp->key)
                         : 0;
    return (struct changes){n_held(s), n_penalised(&s->set, n_history), n_dry};
}

/* Bias, tokens held back, penalties, DRY. Returns whether the space has the blocks' maxima
 * afterwards: not of many changes, where looking at all logits once is less, and not when a
 * constraint follows, whose changes are anywhere. */
static bool change_logits(const struct sl_sampling *s, struct changes c,
                          struct sl_sampler_space *sp, float *logits,
                          const struct sl_vocab_blocks *blocks, const uint32_t *history,
                          uint32_t n_history) {
    uint64_t n_changes = (uint64_t)s->n_logit_bias + c.n_held + c.n_seen + c.n_dry;
    bool known = !s->constraint && n_changes <= SL_VOCAB_BLOCKS(sp->n_vocab) / CHANGES_PART;
    known = take_blocks(sp, known ? blocks : NULL);
    apply_bias(s, sp, logits, known);
    apply_held(s, sp, logits, known, c.n_held);
    apply_penalties(s, sp, logits, known, history + (n_history - c.n_seen), c.n_seen);
    apply_dry(sp, logits, known, c.n_dry);
    return known;
}

/* ---- picking ---- */

/* The first block of the largest logits; max is one of the blocks'. */
static uint32_t first_block(const float *block_max, float max) {
    uint32_t block = 0;
    while (block_max[block] != max)
        block++;
    return block;
}

bool sl_sampling_is_largest(const struct sl_sampling *s) {
    return s->temperature == 0 && !s->constraint && !s->n_logit_bias && !s->min_tokens &&
           !n_penalised(s, UINT32_MAX) && !sl_dry_is_on(&s->dry);
}

enum sl_status sl_sampler_largest(struct sl_sampler_space *space,
                                  const struct sl_vocab_blocks *known, uint32_t *out_id) {
    float max = space->pass->max(known->max, SL_VOCAB_BLOCKS(space->n_vocab), space->key);
    if (!isfinite(max))
        return SL_ERR_INVALID;
    uint32_t block = first_block(known->max, max), at = known->at[block];
    if (at >= BLOCK || block * BLOCK + at >= space->n_vocab) /* a device that has gone wrong */
        return SL_ERR_INVALID;
    *out_id = block * BLOCK + at;
    return SL_OK;
}

/* The first of the largest logits. */
static enum sl_status pick_largest(const struct sl_sampler_space *sp, const float *logits,
                                   float max, uint32_t *out_id) {
    for (uint32_t i = first_block(sp->block_max, max) * BLOCK; i < sp->n_vocab; i++)
        if (logits[i] == max) {
            *out_id = i;
            return SL_OK;
        }
    return SL_ERR_INVALID;
}

/* left [n_vocab] is written, and may be the logits. */
static enum sl_status pick(struct sl_sampler *s, struct sl_sampler_space *space, float *logits,
                           float *left, bool known, uint32_t *out_id) {
    const struct sl_sampling *set = &s->set;
    struct set c = {space, logits, left, space->n_vocab, true, 0};
    c.max = find_max(space, logits, known);
    if (!isfinite(c.max))
        return SL_ERR_INVALID;
    if (set->temperature == 0)
        return pick_largest(space, logits, c.max, out_id);
    filter_sigma(&c, set->top_n_sigma);
    filter_top_k(&c, set->top_k);
    filter_typical(&c, set->typical_p);
    filter_top_p(&c, set->top_p);
    filter_min_p(&c, set->min_p);
    filter_xtc(&c, set, &s->rng);
    if (!c.n) /* maxima that are no logit's */
        return SL_ERR_INVALID;
    *out_id = draw(&c, inverse(set->temperature), sl_rng_unit(&s->rng));
    return SL_OK;
}

enum sl_status sl_sampler_pick(struct sl_sampler *s, struct sl_sampler_space *space, float *logits,
                               const struct sl_vocab_blocks *blocks, const uint32_t *history,
                               uint32_t n_history, uint32_t *out_id, float *out_logit) {
    struct sl_constraint *bound = s->set.constraint;
    struct changes c = find_changes(s, space, history, n_history);
    bool changes = bound || s->set.n_logit_bias || c.n_held || c.n_seen || c.n_dry;
    if (changes && out_logit)
        memcpy(space->spare, logits, space->n_vocab * sizeof *logits);
    bool known = change_logits(&s->set, c, space, logits, blocks, history, n_history);
    enum sl_status status = bound ? bound->mask(bound, logits, space->n_vocab) : SL_OK;
    if (status == SL_OK)
        status = pick(s, space, logits, changes ? logits : space->spare, known, out_id);
    s->n_picked += status == SL_OK;
    if (status == SL_OK && out_logit)
        *out_logit = (changes ? space->spare : logits)[*out_id];
    return status == SL_OK && bound ? bound->accept(bound, *out_id) : status;
}

void sl_top_logprobs(struct sl_sampler_space *space, const float *logits,
                     const struct sl_vocab_blocks *known, double lse, uint32_t n_top,
                     struct sl_token *out_token) {
    uint32_t n = space->n_vocab;
    if (n_top > SL_MAX_TOP_LOGPROBS)
        n_top = SL_MAX_TOP_LOGPROBS;
    if (n_top > n)
        n_top = n;
    out_token->n_top = n_top;
    if (!n_top)
        return;
    struct set c = {space, logits, space->spare, n, true, 0};
    c.max = find_max(space, logits, take_blocks(space, known));
    out_token->n_top = 0;
    if (!isfinite(c.max)) /* keys would be NaN, of which any number may be kept */
        return;
    filter_top_k(&c, n_top);
    assert(c.n <= n_top);
    keys_from_max(&c);
    for (uint32_t i = 0; i < c.n; i++)
        space->order[i] = i;
    sl_sort_by_key(space->key, space->order, c.n);
    for (uint32_t j = 0; j < c.n; j++) {
        uint32_t i = space->order[j];
        out_token->top[j].id = c.all ? i : space->id[i];
        out_token->top[j].logprob = (float)((double)c.logit[i] - lse);
    }
    out_token->n_top = c.n;
}
