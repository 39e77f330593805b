/* Drafts by the model's own draft layer (sl_model_add_drafts).
 *
 * The layer's row of position i is made of token i and of the model's state at position i - 1, and
 * writes the layer's KV of position i, in the same page as that of all other layers. So what a page
 * holds follows from the text up to its end alone, and pages are shared, kept and copied as without
 * such a layer. Behind every step its rows' states are still where the step left them: those of
 * which the next token is known go through the layer before full pages are shared, the last ones
 * when the sessions have chosen their tokens. What the layer gives for a session's last token is
 * the draft. A further token is drafted from the first and from what the layer itself gave.
 *
 * The first row behind pages that came from elsewhere lacks the state before it, as the first of a
 * text does: it is taken to be 0. Nothing here shows in an answer: a wrong draft costs time alone.
 */
#include "engine/schedule/schedule.h"

#include "engine/schedule/draft_trial.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

struct sl_draft_layer {
    struct sl_step step; /* rows of the layer, with arrays and failed of their own */
    uint32_t *from;      /* [batch_tokens] which state each reads */
    uint32_t *whose;     /* [outputs] the slots whose next tokens are drafted */
    uint32_t *row;       /* [outputs] their rows */
    bool kept;           /* the last step's states are kept by an earlier run */
    bool warned;
    struct sl_draft_trial trial;
    uint64_t run_ns; /* of the runs since the last step */
};

void sl_draft_layer_destroy(struct sl_draft_layer **pd) {
    struct sl_draft_layer *d = *pd;
    if (!d)
        return;
    free(d->step.arrays);
    free(d->step.failed);
    free(d->from);
    free(d->whose);
    free(d->row);
    free(d);
    *pd = NULL;
}

enum sl_status sl_draft_layer_create(struct sl_engine *e, struct sl_err *err) {
    uint32_t rows = e->plan.config.batch_tokens, out = e->plan.n_logit_rows;
    struct sl_draft_layer *d = calloc(1, sizeof *d);
    uint32_t *arrays = calloc(sl_step_elems(rows, out), sizeof *arrays);
    if (!d || !arrays) {
        free(d);
        free(arrays);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the arrays of drafted tokens");
    }
    d->step = sl_step_lay(arrays, rows, out);
    d->step.failed = calloc(rows, 1);
    d->from = calloc(rows, sizeof *d->from);
    d->whose = calloc(out, sizeof *d->whose);
    d->row = calloc(out, sizeof *d->row);
    if (!d->step.failed || !d->from || !d->whose || !d->row) {
        sl_draft_layer_destroy(&d);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the arrays of drafted tokens");
    }
    sl_draft_trial_init(&d->trial, e->plan.config.draft_auto);
    e->draft_layer = d;
    sl_gauge(draft_verifying, sl_draft_trial_verifies(&d->trial));
    return SL_OK;
}

bool sl_draft_layer_verifies(const struct sl_engine *e) {
    return sl_draft_trial_verifies(&e->draft_layer->trial);
}

uint32_t sl_draft_layer_positions(const struct sl_engine *e, const struct sl_session *s,
                                  uint32_t end) {
    if (!e->draft_layer)
        return end;
    uint32_t with = end + e->plan.config.draft_tokens;
    return with < s->n_max ? with : s->n_max;
}

/* ---- a run of the layer ---- */

/* The largest logit's id; NaN are passed over. */
static uint32_t largest(const struct sl_logits *l, uint32_t row, uint32_t n_vocab) {
    uint32_t n_blocks = SL_VOCAB_BLOCKS(n_vocab), best = 0;
    if (!l->rows && l->blocks.max) {
        const float *max = l->blocks.max + (size_t)row * n_blocks;
        for (uint32_t b = 1; b < n_blocks; b++)
            best = max[b] > max[best] ? b : best;
        return best * SL_VOCAB_BLOCK + l->blocks.at[(size_t)row * n_blocks + best];
    }
    const float *x = l->rows + (size_t)row * n_vocab;
    for (uint32_t i = 1; i < n_vocab; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static void begin(struct sl_draft_layer *d) {
    sl_step_begin(&d->step);
    d->step.only_largest = true;
}

static void add_row(struct sl_engine *e, const struct sl_session *s, uint32_t pos, uint32_t id,
                    uint32_t from) {
    struct sl_draft_layer *d = e->draft_layer;
    d->from[d->step.n_rows] = from;
    sl_step_add_row(e, &d->step, s->slot, pos, id);
}

/* The row that was added last is one behind which the session's next token is drafted. */
static void want(struct sl_draft_layer *d, const struct sl_session *s) {
    d->whose[d->step.n_out] = s->slot;
    d->row[d->step.n_out] = d->step.n_rows - 1;
    sl_step_add_out(&d->step, 0);
}

/* The which-th token drafted for a session: what the layer gave, or what a measurement asks for. */
static uint32_t drafted(const struct sl_engine *e, const struct sl_session *s, uint32_t which,
                        uint32_t id) {
    const struct sl_engine_config *c = &e->plan.config;
    uint32_t i = sl_session_predicted(s) + which;
    if (!c->draft_forced || !s->req->forced || i >= s->req->max_tokens)
        return id;
    struct sl_rng rng = {s->n_history + which};
    bool right = sl_rng_below(&rng, 100) < c->draft_percent;
    return right ? s->req->forced[i] : (s->req->forced[i] + 1) % e->space.n_vocab;
}

/* Runs the rows that were added, if there are any, and takes the drafts over, as the `which`-th of
 * each session. Not SL_OK: the device is lost or the files are not what they were. *out_good: the
 * rows went through. */
static enum sl_status run(struct sl_engine *e, enum sl_draft_states states, uint32_t which,
                          bool *out_good, struct sl_err *err) {
    struct sl_draft_layer *d = e->draft_layer;
    struct sl_logits logits;
    uint32_t n_failed = 0;
    *out_good = true;
    if (!d->step.n_rows)
        return SL_OK;
    uint64_t start = sl_now_ns();
    const struct sl_draft_rows rows = {&d->step, d->from, states};
    enum sl_status status = sl_stage_local_draft(&e->stages[0], &rows, &logits, &n_failed, err);
    uint64_t ns = sl_now_ns() - start;
    sl_count(draft_ns_total, ns);
    d->run_ns += ns;
    *out_good = status == SL_OK && !n_failed;
    if (sl_is_fatal(status))
        return status;
    if (status != SL_OK && status != SL_AGAIN && !d->warned) {
        sl_warn("tokens are not drafted: %s", err->text);
        d->warned = true;
    }
    for (uint32_t i = 0; i < d->step.n_out && *out_good; i++) {
        struct sl_session *s = e->slots[d->whose[i]];
        s->draft[which] = drafted(e, s, which, largest(&logits, i, e->space.n_vocab));
        s->n_draft = which + 1;
        s->draft_at = s->n_history;
    }
    return SL_OK;
}

/* ---- what the layer has not seen ---- */

static enum sl_status flush(struct sl_engine *e, bool *out_good, struct sl_err *err) {
    struct sl_draft_layer *d = e->draft_layer;
    enum sl_status status =
        run(e, d->kept ? SL_DRAFT_STATES_KEPT : SL_DRAFT_STATES_STEP, 0, out_good, err);
    d->kept |= d->step.n_rows > 0;
    return status;
}

/* Does the session want to know what may come next? The last token of an answer has no row. */
static bool wants_draft(const struct sl_session *s) {
    return sl_session_runs(s) && !s->req->prompt_only && s->n_history >= s->n_prompt &&
           s->n_history + 1 < s->n_max;
}

/* Adds the positions of a session up to the one before `end`. */
static enum sl_status add_session(struct sl_engine *e, const struct sl_micro_batch_share *a,
                                  uint32_t end, bool chosen, struct sl_err *err) {
    struct sl_draft_layer *d = e->draft_layer;
    struct sl_session *s = a->s;
    uint32_t first = s->n_draft_seen > a->pos ? s->n_draft_seen : a->pos;
    for (uint32_t pos = first; pos < end; pos++) {
        if (d->step.n_rows == e->plan.config.batch_tokens) {
            bool good;
            SL_TRY(flush(e, &good, err));
            begin(d);
            d->step.n_decode = 0;
        }
        add_row(e, s, pos, s->history[pos],
                pos > a->pos ? a->first + (pos - 1 - a->pos) : SL_DRAFT_NO_STATE);
        if (chosen && pos + 1 == s->n_history && wants_draft(s) &&
            d->step.n_out < e->plan.n_logit_rows)
            want(d, s);
    }
    if (end > first)
        s->n_draft_seen = end;
    return SL_OK;
}

/* Tokens behind the first, each drafted from the one before, for the sessions of the last run. */
static enum sl_status draft_on(struct sl_engine *e, struct sl_err *err) {
    struct sl_draft_layer *d = e->draft_layer;
    bool good = true;
    for (uint32_t k = 1; k < e->plan.config.draft_tokens && good && d->step.n_out; k++) {
        uint32_t n = d->step.n_out;
        begin(d);
        for (uint32_t i = 0; i < n; i++) {
            const struct sl_session *s = e->slots[d->whose[i]];
            uint32_t pos = s->n_history + k - 1;
            if (pos + 2 >= s->n_max)
                continue;
            uint32_t from = d->row[i];
            add_row(e, s, pos, s->draft[k - 1], from);
            want(d, s); /* of those that were before it in the list: whose and row are read */
        }
        d->step.n_decode = d->step.n_rows;
        SL_TRY(run(e, SL_DRAFT_STATES_OWN, k, &good, err));
    }
    return SL_OK;
}

/* What the step's sessions have got of it, for who compares steps. */
static void account(struct sl_engine *e, const struct sl_micro_batch *l) {
    struct sl_draft_layer *d = e->draft_layer;
    struct sl_draft_step s = {.step_ns = l->took_ns, .layer_ns = d->run_ns, .seen = true};
    if (!l->step.n_rows || l->step.n_decode < l->step.n_rows)
        return;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        const struct sl_micro_batch_share *a = &l->shares[i];
        if (!a->s)
            continue;
        s.n_sessions++;
        s.n_tokens += a->s->n_history - (a->pos + 1);
        s.seen = s.seen && !a->s->unseen;
    }
    if (s.n_sessions)
        sl_draft_trial_step(&d->trial, &s);
    sl_gauge(draft_verifying, sl_draft_trial_verifies(&d->trial));
}

/* The layer will not see what the step has added: it drafts nothing more for these sessions. */
static void pass_over(struct sl_engine *e, const struct sl_micro_batch *l) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (l->shares[i].s)
            l->shares[i].s->unseen = true;
}

enum sl_status sl_draft_layer_step(struct sl_engine *e, const struct sl_micro_batch *l, bool chosen,
                                   struct sl_err *err) {
    struct sl_draft_layer *d = e->draft_layer;
    bool good = true;
    if (!d)
        return SL_OK;
    if (!chosen) {
        d->kept = false;
        d->run_ns = 0;
    }
    /* The states of rows that are kept are still asked for. */
    if (l->step.keep_all || !sl_draft_trial_drafts(&d->trial)) {
        pass_over(e, l);
        if (chosen)
            account(e, l);
        return SL_OK;
    }
    begin(d);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        const struct sl_micro_batch_share *a = &l->shares[i];
        if (!a->s || a->s->unseen || atomic_load(&a->s->cancel))
            continue;
        uint32_t known = chosen ? a->s->n_kv : a->pos + a->rows - a->drafts;
        uint32_t end = known + 1 < a->s->n_history ? known + 1 : a->s->n_history;
        SL_TRY(add_session(e, a, end, chosen, err));
    }
    d->step.n_decode = chosen ? d->step.n_rows : 0;
    SL_TRY(flush(e, &good, err));
    if (!chosen)
        return SL_OK;
    if (good)
        SL_TRY(draft_on(e, err));
    account(e, l);
    return SL_OK;
}
