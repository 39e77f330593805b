/* Drafts by the model's own draft layer (sl_model_add_drafts).
 *
 * The layer's row of position i is made of token i and of the model's state at position i - 1, and
 * writes the layer's KV of position i, in the same page as that of all other layers. So what a page
 * holds follows from the text up to its end alone, and pages are shared, kept and copied as without
 * such a layer. Behind every step its rows' states are still where the step left them: those of
 * which the next token is known go through the layer before full pages are shared, the last ones
 * when the sessions have chosen their tokens. What the layer gives for a session's last token is
 * the guess. A further guess is made of the first and of what the layer itself gave.
 *
 * The first row behind pages that came from elsewhere lacks the state before it, as the first of a
 * text does: it is taken to be 0. Nothing here shows in an answer: a wrong guess costs time alone.
 */
#include "engine/schedule/schedule.h"

#include "engine/schedule/draft_trial.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

struct sl_guesser {
    struct sl_step step; /* rows of the layer, with arrays and failed of their own */
    uint32_t *from;      /* [batch_tokens] which state each reads */
    uint32_t *whose;     /* [outputs] the slots whose next tokens are guessed */
    uint32_t *row;       /* [outputs] their rows */
    bool kept;           /* the last step's states are kept by an earlier run */
    bool warned;
    struct sl_draft_trial trial;
    uint64_t run_ns; /* of the runs since the last step */
};

void sl_guesser_destroy(struct sl_guesser **pg) {
    struct sl_guesser *g = *pg;
    if (!g)
        return;
    free(g->step.arrays);
    free(g->step.failed);
    free(g->from);
    free(g->whose);
    free(g->row);
    free(g);
    *pg = NULL;
}

enum sl_status sl_guesser_create(struct sl_engine *e, struct sl_err *err) {
    uint32_t rows = e->plan.config.batch_tokens, out = e->plan.n_logit_rows;
    struct sl_guesser *g = calloc(1, sizeof *g);
    uint32_t *arrays = calloc(sl_step_elems(rows, out), sizeof *arrays);
    if (!g || !arrays) {
        free(g);
        free(arrays);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the arrays of guessed tokens");
    }
    g->step = sl_step_lay(arrays, rows, out);
    g->step.failed = calloc(rows, 1);
    g->from = calloc(rows, sizeof *g->from);
    g->whose = calloc(out, sizeof *g->whose);
    g->row = calloc(out, sizeof *g->row);
    if (!g->step.failed || !g->from || !g->whose || !g->row) {
        sl_guesser_destroy(&g);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the arrays of guessed tokens");
    }
    sl_draft_trial_init(&g->trial, e->plan.config.draft_auto);
    e->guesser = g;
    sl_gauge(draft_verifying, sl_draft_trial_verifies(&g->trial));
    return SL_OK;
}

bool sl_guess_verifies(const struct sl_engine *e) {
    return sl_draft_trial_verifies(&e->guesser->trial);
}

uint32_t sl_guess_end(const struct sl_engine *e, const struct sl_session *s, uint32_t end) {
    if (!e->guesser)
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

static void begin(struct sl_guesser *g) {
    sl_step_begin(&g->step);
    g->step.only_largest = true;
}

static void add_row(struct sl_engine *e, const struct sl_session *s, uint32_t pos, uint32_t id,
                    uint32_t from) {
    struct sl_guesser *g = e->guesser;
    g->from[g->step.n_rows] = from;
    sl_step_add_row(e, &g->step, s->slot, pos, id);
}

/* The row that was added last is one behind which the session's next token is guessed. */
static void want(struct sl_guesser *g, const struct sl_session *s) {
    g->whose[g->step.n_out] = s->slot;
    g->row[g->step.n_out] = g->step.n_rows - 1;
    sl_step_add_out(&g->step, 0);
}

/* The which-th guess for a session: what the layer gave, or what a measurement asks for. */
static uint32_t guessed(const struct sl_engine *e, const struct sl_session *s, uint32_t which,
                        uint32_t id) {
    const struct sl_engine_config *c = &e->plan.config;
    uint32_t i = sl_session_predicted(s) + which;
    if (!c->draft_forced || !s->req->forced || i >= s->req->max_tokens)
        return id;
    struct sl_rng rng = {s->n_history + which};
    bool right = sl_rng_below(&rng, 100) < c->draft_percent;
    return right ? s->req->forced[i] : (s->req->forced[i] + 1) % e->space.n_vocab;
}

/* Runs the rows that were added, if there are any, and takes the guesses over, as the `which`-th of
 * each session. Not SL_OK: the device is lost or the files are not what they were. *out_good: the
 * rows went through. */
static enum sl_status run(struct sl_engine *e, enum sl_draft_states states, uint32_t which,
                          bool *out_good, struct sl_err *err) {
    struct sl_guesser *g = e->guesser;
    struct sl_logits logits;
    uint32_t n_failed = 0;
    *out_good = true;
    if (!g->step.n_rows)
        return SL_OK;
    uint64_t start = sl_now_ns();
    const struct sl_draft_rows rows = {&g->step, g->from, states};
    enum sl_status status = sl_stage_local_draft(&e->stages[0], &rows, &logits, &n_failed, err);
    uint64_t ns = sl_now_ns() - start;
    sl_count(draft_ns_total, ns);
    g->run_ns += ns;
    *out_good = status == SL_OK && !n_failed;
    if (sl_is_fatal(status))
        return status;
    if (status != SL_OK && status != SL_AGAIN && !g->warned) {
        sl_warn("tokens are not drafted: %s", err->text);
        g->warned = true;
    }
    for (uint32_t i = 0; i < g->step.n_out && *out_good; i++) {
        struct sl_session *s = e->slots[g->whose[i]];
        s->draft[which] = guessed(e, s, which, largest(&logits, i, e->space.n_vocab));
        s->n_draft = which + 1;
        s->draft_at = s->n_history;
    }
    return SL_OK;
}

/* ---- what the layer has not seen ---- */

static enum sl_status flush(struct sl_engine *e, bool *out_good, struct sl_err *err) {
    struct sl_guesser *g = e->guesser;
    enum sl_status status =
        run(e, g->kept ? SL_DRAFT_STATES_KEPT : SL_DRAFT_STATES_STEP, 0, out_good, err);
    g->kept |= g->step.n_rows > 0;
    return status;
}

/* Does the session want to know what may come next? The last token of an answer has no row. */
static bool is_guessed(const struct sl_session *s) {
    return sl_session_runs(s) && !s->req->prompt_only && s->n_history >= s->n_prompt &&
           s->n_history + 1 < s->n_max;
}

/* Adds the positions of a session up to the one before `end`. */
static enum sl_status add_session(struct sl_engine *e, const struct sl_micro_batch_share *a,
                                  uint32_t end, bool chosen, struct sl_err *err) {
    struct sl_guesser *g = e->guesser;
    struct sl_session *s = a->s;
    uint32_t first = s->n_guessed > a->pos ? s->n_guessed : a->pos;
    for (uint32_t pos = first; pos < end; pos++) {
        if (g->step.n_rows == e->plan.config.batch_tokens) {
            bool good;
            SL_TRY(flush(e, &good, err));
            begin(g);
            g->step.n_decode = 0;
        }
        add_row(e, s, pos, s->history[pos],
                pos > a->pos ? a->first + (pos - 1 - a->pos) : SL_DRAFT_NO_STATE);
        if (chosen && pos + 1 == s->n_history && is_guessed(s) &&
            g->step.n_out < e->plan.n_logit_rows)
            want(g, s);
    }
    if (end > first)
        s->n_guessed = end;
    return SL_OK;
}

/* Guesses behind the first, each from the one before it, for the sessions of the last run. */
static enum sl_status guess_on(struct sl_engine *e, struct sl_err *err) {
    struct sl_guesser *g = e->guesser;
    bool good = true;
    for (uint32_t k = 1; k < e->plan.config.draft_tokens && good && g->step.n_out; k++) {
        uint32_t n = g->step.n_out;
        begin(g);
        for (uint32_t i = 0; i < n; i++) {
            const struct sl_session *s = e->slots[g->whose[i]];
            uint32_t pos = s->n_history + k - 1;
            if (pos + 2 >= s->n_max)
                continue;
            uint32_t from = g->row[i];
            add_row(e, s, pos, s->draft[k - 1], from);
            want(g, s); /* of those that were before it in the list: whose and row are read */
        }
        g->step.n_decode = g->step.n_rows;
        SL_TRY(run(e, SL_DRAFT_STATES_OWN, k, &good, err));
    }
    return SL_OK;
}

/* What the step's sessions have got of it, for who compares steps. */
static void account(struct sl_engine *e, const struct sl_micro_batch *l) {
    struct sl_guesser *g = e->guesser;
    struct sl_draft_step s = {.step_ns = l->took_ns, .guess_ns = g->run_ns, .seen = true};
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
        sl_draft_trial_step(&g->trial, &s);
    sl_gauge(draft_verifying, sl_draft_trial_verifies(&g->trial));
}

/* The layer will not see what the step has added: it guesses nothing more for these sessions. */
static void pass_over(struct sl_engine *e, const struct sl_micro_batch *l) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (l->shares[i].s)
            l->shares[i].s->unseen = true;
}

enum sl_status sl_guess(struct sl_engine *e, const struct sl_micro_batch *l, bool chosen,
                        struct sl_err *err) {
    struct sl_guesser *g = e->guesser;
    bool good = true;
    if (!g)
        return SL_OK;
    if (!chosen) {
        g->kept = false;
        g->run_ns = 0;
    }
    /* The states of rows that are kept are still asked for. */
    if (l->step.keep_all || !sl_draft_trial_guesses(&g->trial)) {
        pass_over(e, l);
        if (chosen)
            account(e, l);
        return SL_OK;
    }
    begin(g);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        const struct sl_micro_batch_share *a = &l->shares[i];
        if (!a->s || a->s->unseen || atomic_load(&a->s->cancel))
            continue;
        uint32_t known = chosen ? a->s->n_kv : a->pos + a->rows - a->drafts;
        uint32_t end = known + 1 < a->s->n_history ? known + 1 : a->s->n_history;
        SL_TRY(add_session(e, a, end, chosen, err));
    }
    g->step.n_decode = chosen ? g->step.n_rows : 0;
    SL_TRY(flush(e, &good, err));
    if (!chosen)
        return SL_OK;
    if (good)
        SL_TRY(guess_on(e, err));
    account(e, l);
    return SL_OK;
}
