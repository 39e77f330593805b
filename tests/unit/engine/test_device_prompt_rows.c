/* What requests are told of each row of their prompt: how likely its token was, and its hidden
 * state. Neither slices of the prompt, nor what overlaps it, nor the number of stages may show
 * in a single bit. */
#include "tests/support/card.h"
#include "tests/unit/engine/fixture.h"

#include <math.h>

#define N_PROMPT 101u
#define N_VOCAB  512u
#define N_EMBD   64u

static struct test_model model;
static struct card_source source;

static int setup(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.output = SL_DTYPE_F32;
    open_model(&model, &c);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_model(&model);
    return 0;
}

/* A run that notes what it is told. */
struct told {
    struct run *run;
    uint32_t n_scored, n_hidden;
    struct sl_token scored[N_PROMPT];
    float hidden[N_PROMPT][N_EMBD];
    uint32_t cancel_at; /* leaves when it is told of this row; 0 = never */
};

static void on_scored(struct sl_token_sink *s, uint32_t pos, const struct sl_token *token) {
    struct told *t = ((struct run *)s)->user;
    assert_int_equal(pos, t->n_scored + 1);
    assert_int_equal(token->id, t->run->prompt[pos]);
    t->scored[pos] = *token;
    t->n_scored++;
}

static void on_hidden(struct sl_token_sink *s, uint32_t pos, const float *row) {
    struct told *t = ((struct run *)s)->user;
    assert_int_equal(pos, t->n_hidden);
    memcpy(t->hidden[pos], row, sizeof t->hidden[pos]);
    t->n_hidden++;
    if (t->cancel_at && pos == t->cancel_at)
        sl_engine_cancel(t->run->engine, &t->run->req);
}

static struct told *new_told(uint32_t n_answer) {
    struct told *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->run = new_run(7, N_PROMPT, N_VOCAB, n_answer ? n_answer : 1);
    t->run->user = t;
    t->run->req.prompt_only = !n_answer;
    t->run->req.ignore_eog = true;
    t->run->req.logprobs = true;
    t->run->req.n_top_logprobs = 2;
    t->run->req.scored = on_scored;
    t->run->req.hidden = on_hidden;
    return t;
}

static void free_told(struct told *t) {
    free_run(t->run);
    free(t);
}

static void assert_same_told(const struct told *a, const struct told *b) {
    assert_int_equal(b->n_scored, N_PROMPT - 1);
    assert_int_equal(b->n_hidden, N_PROMPT);
    for (uint32_t i = 1; i < N_PROMPT; i++) {
        assert_memory_equal(&a->scored[i].logprob, &b->scored[i].logprob, sizeof(float));
        assert_int_equal(b->scored[i].n_top, 2);
        assert_memory_equal(a->scored[i].top, b->scored[i].top, 2 * sizeof a->scored[i].top[0]);
    }
    assert_memory_equal(a->hidden, b->hidden, sizeof a->hidden);
}

static struct sl_engine_config plain(uint32_t parallel, uint32_t batch) {
    return (struct sl_engine_config){.n_threads = 1,
                                     .ctx_tokens = 300,
                                     .parallel = parallel,
                                     .batch_tokens = batch,
                                     .queue_max = 16};
}

static struct sl_engine_config over(uint32_t n_cards) {
    struct sl_engine_config c = plain(4, 48);
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n_cards});
    c.ram_bytes = c.vram_bytes = (uint64_t)1 << 34;
    c.io = SL_EXPERTS_IO_PREAD;
    c.experts = SL_EXPERTS_STREAMED;
    c.device_source = &source.source;
    c.split = n_cards > 1 ? "1,2" : NULL;
    return c;
}

/* One told request, among `others` that generate; their answers. */
static struct told *tell(const struct sl_engine_config *c, uint32_t n_answer, uint32_t others,
                         struct run **out_others) {
    struct sl_engine *e = new_engine(&model, c);
    struct told *t = new_told(n_answer);
    for (uint32_t i = 0; i <= others; i++) {
        if (i == others / 2)
            submit(e, t->run);
        if (i == others)
            break;
        out_others[i] = new_run(20 + i, 30 + 20 * i, N_VOCAB, 12);
        out_others[i]->req.logprobs = out_others[i]->req.ignore_eog = true;
        submit(e, out_others[i]);
    }
    wait_run(t->run);
    assert_int_equal(t->run->result.status, SL_OK);
    assert_int_equal(t->run->result.n_predicted, n_answer);
    assert_int_equal(t->run->result.n_cached, 0);
    for (uint32_t i = 0; i < others; i++) {
        wait_run(out_others[i]);
        assert_int_equal(out_others[i]->result.status, SL_OK);
    }
    sl_engine_destroy(&e);
    return t;
}

/* The logits of all positions, as sl_engine_score gives them. */
struct scores {
    float logits[N_PROMPT][N_VOCAB];
};

static bool keep_logits(void *ctx, uint32_t pos, const float *logits) {
    memcpy(((struct scores *)ctx)->logits[pos], logits, N_VOCAB * sizeof *logits);
    return true;
}

static double log_sum_exp(const float *logits) {
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < N_VOCAB; i++)
        max = fmax(max, logits[i]);
    for (uint32_t i = 0; i < N_VOCAB; i++)
        sum += exp(logits[i] - max);
    return max + log(sum);
}

/* Log-probabilities are those of the scores, and the output matrix times the hidden states gives
 * the scores. */
static void rows_are_right(void **state) {
    (void)state;
    struct sl_engine_config c = plain(1, 512);
    struct told *t = tell(&c, 0, 0, NULL);
    struct scores *scores = calloc(1, sizeof *scores);
    float *w = calloc((size_t)N_VOCAB * N_EMBD, sizeof *w);
    assert_true(scores && w);
    struct sl_engine *e = new_engine(&model, &c);
    assert_ok(sl_engine_score(e, t->run->prompt, N_PROMPT, keep_logits, scores, &test_err));
    sl_engine_destroy(&e);
    for (uint32_t i = 1; i < N_PROMPT; i++) {
        const float *l = scores->logits[i - 1];
        double expected = l[t->run->prompt[i]] - log_sum_exp(l);
        assert_true(fabs(t->scored[i].logprob - expected) < 1e-5);
    }
    const struct sl_gguf_tensor *output = model.model->global[SL_G_OUTPUT];
    assert_int_equal(output->dtype, SL_DTYPE_F32);
    FILE *f = fopen(model.path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)output->offset_bytes, SEEK_SET), 0);
    assert_int_equal(fread(w, N_EMBD * sizeof *w, N_VOCAB, f), N_VOCAB);
    fclose(f);
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        for (uint32_t v = 0; v < N_VOCAB; v++) {
            double sum = 0;
            for (uint32_t k = 0; k < N_EMBD; k++)
                sum += (double)w[v * N_EMBD + k] * t->hidden[i][k];
            assert_true(fabs(sum - scores->logits[i][v]) < 1e-4 * (1 + fabs(sum)));
        }
    }
    free(w);
    free(scores);
    free_told(t);
}

static void placement_does_not_show(void **state) {
    (void)state;
    struct sl_engine_config alone = plain(1, 512);
    struct run *others[3], *overlapped[3];
    struct told *first = tell(&alone, 0, 3, others);
    static const struct {
        uint32_t parallel, batch, threads, cards;
    } variants[] = {{4, 7, 1, 0}, {4, 64, 2, 0}, {2, 16, 1, 0}, {4, 48, 1, 1}, {4, 48, 1, 2}};
    for (uint32_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        struct sl_engine_config c = variants[v].cards
                                        ? over(variants[v].cards)
                                        : plain(variants[v].parallel, variants[v].batch);
        c.n_threads = variants[v].threads;
        struct told *t = tell(&c, 0, 3, overlapped);
        assert_same_told(first, t);
        for (uint32_t i = 0; i < 3; i++) {
            assert_same_tokens(others[i], overlapped[i]);
            free_run(overlapped[i]);
        }
        free_told(t);
    }
    for (uint32_t i = 0; i < 3; i++)
        free_run(others[i]);
    free_told(first);
}

/* The answer is the one that the prompt has without being told of. */
static void answer_follows(void **state) {
    (void)state;
    for (uint32_t cards = 0; cards < 3; cards++) {
        struct sl_engine_config c = cards ? over(cards) : plain(2, 32);
        struct run *overlapped[1];
        struct told *t = tell(&c, 10, 1, overlapped);
        assert_int_equal(t->n_scored, N_PROMPT - 1);
        struct sl_engine *e = new_engine(&model, &c);
        struct run *r = new_run(7, N_PROMPT, N_VOCAB, 10);
        r->req.logprobs = r->req.ignore_eog = true;
        submit(e, r);
        wait_run(r);
        assert_same_tokens(r, t->run);
        sl_engine_destroy(&e);
        free_run(r);
        free_run(overlapped[0]);
        free_told(t);
    }
}

/* They share steps, and none waits for ever, neither those that are told nor those that are not. */
static void several_at_once(void **state) {
    (void)state;
    struct sl_engine_config alone = plain(1, 512);
    struct run *overlapped[1];
    struct told *first = tell(&alone, 10, 0, NULL);
    for (uint32_t cards = 0; cards < 3; cards++) {
        struct sl_engine_config c = cards ? over(cards) : plain(4, 64);
        struct sl_engine *e = new_engine(&model, &c);
        struct told *told[7];
        overlapped[0] = new_run(30, 40, N_VOCAB, 120);
        overlapped[0]->req.ignore_eog = true;
        submit(e, overlapped[0]);
        for (uint32_t i = 0; i < 7; i++) {
            told[i] = new_told(i % 3 == 1 ? 10 : 0);
            submit(e, told[i]->run);
        }
        for (uint32_t i = 0; i < 7; i++) {
            wait_run(told[i]->run);
            assert_int_equal(told[i]->run->result.status, SL_OK);
            assert_same_told(first, told[i]);
            if (i % 3 == 1)
                assert_same_tokens(first->run, told[i]->run);
            free_told(told[i]);
        }
        wait_run(overlapped[0]);
        assert_int_equal(overlapped[0]->result.n_predicted, 120);
        free_run(overlapped[0]);
        sl_engine_destroy(&e);
    }
    free_told(first);
}

static void ends_when_canceled(void **state) {
    (void)state;
    for (uint32_t cards = 0; cards < 3; cards += 2) {
        struct sl_engine_config c = cards ? over(cards) : plain(2, 32);
        struct sl_engine *e = new_engine(&model, &c);
        struct told *t = new_told(0);
        t->cancel_at = 20;
        submit(e, t->run);
        wait_run(t->run);
        assert_int_equal(t->run->result.reason, SL_FINISH_CANCELED);
        assert_true(t->n_hidden > 20 && t->n_hidden < N_PROMPT);
        struct run *r = new_run(3, 40, N_VOCAB, 4); /* and the engine goes on */
        submit(e, r);
        wait_run(r);
        assert_int_equal(r->result.status, SL_OK);
        free_run(r);
        sl_engine_destroy(&e);
        free_told(t);
    }
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_right),     cmocka_unit_test(placement_does_not_show),
        cmocka_unit_test(answer_follows),     cmocka_unit_test(several_at_once),
        cmocka_unit_test(ends_when_canceled),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, setup, teardown);
}
