/* Drafts by a model's own layer: what it drafts is what its definition says, and whole runs with
 * its drafts have the bits of runs without. */
#include "tests/support/card.h"
#include "tests/support/folder.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/draft_requests.h"

#include "common/metrics.h"
#include "engine/schedule/schedule.h"

#include <fcntl.h>

/* That have draft layers, and how those work is known. */
static const char *const archs[] = {"glm4moe", "deepseek2", "qwen35moe",  "hy_v3", "qwen3next",
                                    "qwen35",  "glm-dsa",   "deepseek32", "step35"};
#define N_ARCHS (sizeof archs / sizeof *archs)

static struct sl_synth_config drafting(const char *arch, uint32_t right) {
    struct sl_synth_config c = tiny_config(arch);
    c.n_nextn = 1;
    c.nextn_right = right;
    c.locality = 0.1f; /* so that texts go where the cycle of tokens does */
    if (strcmp(arch, "step35") == 0)
        c.n_layer = 4; /* the fifth has a window again */
    return c;
}

/* The same file, with the layer and without. */
static void open_both(struct test_model *without, struct test_model *with,
                      const struct sl_synth_config *c) {
    open_model(without, c);
    *with = *without;
    assert_ok(sl_model_open(without->path, &with->model, &test_err));
    assert_ok(sl_model_add_drafts(with->model, &test_err));
}

static void close_both(struct test_model *without, struct test_model *with) {
    sl_model_close(&with->model);
    close_model(without);
}

/* ---- whole runs ---- */

static uint32_t compare(const struct test_model *m, struct sl_engine_config c,
                        struct run *const *want, uint32_t park_every) {
    struct run *have[N_RUNS];
    uint32_t n_accepted = 0;
    make_all(have, m->model->hp.n_vocab);
    for (uint32_t i = 0; i < N_RUNS; i++)
        have[i]->park_every = park_every ? park_every + i : 0;
    struct sl_engine *e = new_engine(m, &c);
    finish_all(e, have);
    sl_engine_destroy(&e);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        assert_same_tokens(want[i], have[i]);
        assert_int_equal(want[i]->result.reason, have[i]->result.reason);
        assert_true(have[i]->result.n_draft_accepted <= have[i]->result.n_draft);
        n_accepted += have[i]->result.n_draft_accepted;
    }
    free_all(have);
    return n_accepted;
}

static void compare_ways(const struct sl_synth_config *sc, struct sl_engine_config c) {
    struct test_model m, d;
    struct run *want[N_RUNS];
    open_both(&m, &d, sc);
    make_all(want, sc->n_vocab);
    struct sl_engine *e = new_engine(&m, &c);
    finish_all(e, want);
    sl_engine_destroy(&e);
    c.draft_tokens = 1;
    uint32_t one = compare(&d, c, want, 0);
    c.draft_tokens = 2;
    (void)compare(&d, c, want, 3);
    c.draft_tokens = SL_MAX_DRAFT;
    c.parallel = 1;
    uint32_t many = compare(&d, c, want, 0);
    c.draft_auto = true;
    (void)compare(&d, c, want, 0);
    c.draft_auto = false;
    c.parallel = 5;
    c.batch_tokens = 8; /* less room than there are drafts, and prompts in many slices */
    (void)compare(&d, c, want, 5);
    /* Half of the requests go where the logits point to. */
    if (sc->nextn_right == 100)
        assert_true(one > 40 && many > one);
    else if (!sc->nextn_right)
        assert_true(one < 20);
    free_all(want);
    close_both(&m, &d);
}

static void right_and_wrong(void **state) {
    (void)state;
    for (uint32_t right = 0; right <= 100; right += BY_BUILD(50, 100, 50)) {
        struct sl_synth_config sc = drafting("glm4moe", right);
        compare_ways(&sc, config());
    }
}

/* Among them models with states in the layers that give the answer, and with windows in all kinds
 * of layers; in contexts that are long enough to keep their ends alone, too. */
static void families(void **state) {
    (void)state;
    for (size_t i = 1; i < BY_BUILD(N_ARCHS, 3, 3); i++) {
        struct sl_synth_config sc = drafting(archs[i], 100);
        struct sl_engine_config c = config();
        c.ctx_tokens = i % 2 ? c.ctx_tokens : 1000;
        compare_ways(&sc, c);
    }
}

static void quantised(void **state) {
    (void)state;
    struct sl_synth_config sc = drafting("glm4moe", 70);
    sc.n_embd = 256;
    sc.n_ff_expert = sc.n_ff_shared = 256;
    sc.attn = sc.ffn = sc.gate = sc.up = (struct sl_synth_types){{SL_DTYPE_Q4_K}, 1};
    sc.down = (struct sl_synth_types){{SL_DTYPE_Q6_K}, 1};
    struct sl_engine_config c = config();
    c.n_threads = 2;
    c.kv_dtype = SL_DTYPE_Q8_0;
    compare_ways(&sc, c);
}

/* The layer's experts pass through the same slots. */
static void streamed(void **state) {
    (void)state;
    for (uint32_t i = 0; i < BY_BUILD(2, 1, 1); i++) {
        struct sl_synth_config sc = drafting(i ? "qwen35moe" : "glm4moe", 100);
        struct sl_engine_config c = config();
        c.experts = SL_EXPERTS_STREAMED;
        compare_ways(&sc, c);
    }
}

/* On a card whose memory the host cannot follow, with experts on it and behind it. */
static void on_a_card(void **state) {
    (void)state;
    static const char *const some[] = {"glm4moe", "qwen35moe", "step35"};
    for (uint32_t i = 0; i < BY_BUILD(3, 2, 2); i++) {
        struct sl_synth_config sc = drafting(some[i], 100);
        struct sl_engine_config c = config();
        static struct card_source source;
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 1});
        c.ram_bytes = c.vram_bytes = (uint64_t)1 << 34;
        c.io = SL_EXPERTS_IO_PREAD;
        c.experts = i == 1 ? SL_EXPERTS_STREAMED : SL_EXPERTS_RESIDENT;
        c.device_source = &source.source;
        compare_ways(&sc, c);
    }
}

/* A text that goes on from an answer finds its pages, from memory and from disk. */
static void pages_of(const char *arch) {
    struct test_model m, d;
    struct folder folder;
    struct sl_synth_config sc = drafting(arch, 100);
    open_both(&m, &d, &sc);
    open_folder(&folder);
    struct sl_engine_config c = config();
    struct sl_engine *e = new_engine(&m, &c);
    struct run *first = new_run(5, 70, sc.n_vocab, 80);
    first->req.ignore_eog = true;
    submit(e, first);
    wait_run(first);
    struct run *want = new_run(5, 70, sc.n_vocab, 40);
    for (uint32_t i = 0; i < first->n; i++)
        want->prompt[want->req.n_prompt++] = first->tokens[i].id;
    want->req.ignore_eog = want->req.no_cache = true;
    submit(e, want);
    wait_run(want);
    sl_engine_destroy(&e);
    c.draft_tokens = 2;
    c.cache_dir = folder.path;
    c.cache_read_always = true;
    for (uint32_t again = 0; again < 2; again++) {
        e = new_engine(&d, &c);
        if (!again) {
            struct run *same = new_run(5, 70, sc.n_vocab, 80);
            same->req.ignore_eog = true;
            submit(e, same);
            wait_run(same);
            assert_same_tokens(first, same);
            free_run(same);
        }
        struct run *r = new_run(5, want->req.n_prompt, sc.n_vocab, 40);
        memcpy(r->prompt, want->prompt, sizeof r->prompt);
        r->req.ignore_eog = true;
        submit(e, r);
        wait_run(r);
        assert_int_equal(r->result.status, SL_OK);
        assert_true(r->result.n_cached >= 128);
        assert_same_tokens(want, r);
        assert_true(r->result.n_draft_accepted > 10);
        free_run(r);
        sl_engine_destroy(&e);
    }
    free_run(first);
    free_run(want);
    close_folder(&folder);
    close_both(&m, &d);
}

static void pages(void **state) {
    (void)state;
    pages_of("glm4moe");
    pages_of("qwen35moe");
}

/* ---- the layer's definition ---- */

#define N_PROMPT 60u
#define N_TEXT   160u
#define N_EMBD   64u

static float *floats_of(const struct sl_model *m, const char *path, const char *name) {
    const struct sl_gguf_tensor *t = sl_gguf_tensor_find(m->gguf, name);
    assert_non_null(t);
    assert_int_equal(t->dtype, SL_DTYPE_F32);
    float *x = malloc(t->size_bytes);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, x, t->size_bytes, (off_t)t->offset_bytes), t->size_bytes);
    close(fd);
    return x;
}

static void put_floats(const struct sl_model *m, const char *path, const char *name,
                       const float *x) {
    const struct sl_gguf_tensor *t = sl_gguf_tensor_find(m->gguf, name);
    assert_non_null(t);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, x, t->size_bytes, (off_t)t->offset_bytes), t->size_bytes);
    close(fd);
}

static void norm(const float *x, const float *w, double eps, double *y) {
    double sum = 0;
    for (uint32_t i = 0; i < N_EMBD; i++)
        sum += (double)x[i] * x[i];
    for (uint32_t i = 0; i < N_EMBD; i++)
        y[i] = x[i] / sqrt(sum / N_EMBD + eps) * w[i];
}

struct told {
    struct run *run;
    float hidden[N_TEXT][N_EMBD];
    uint32_t best[N_TEXT + 1];
};

static void on_hidden(struct sl_token_sink *s, uint32_t pos, const float *row) {
    struct told *t = ((struct run *)(void *)s)->user;
    memcpy(t->hidden[pos], row, sizeof t->hidden[pos]);
}

static void on_scored(struct sl_token_sink *s, uint32_t pos, const struct sl_token *token) {
    struct told *t = ((struct run *)(void *)s)->user;
    t->best[pos] = token->top[0].id;
}

static void tell(const struct test_model *m, const struct sl_engine_config *c, struct told *t,
                 const uint32_t *text) {
    struct sl_engine *e = new_engine(m, c);
    t->run = new_run(1, N_TEXT, 100, 1);
    memcpy(t->run->prompt, text, N_TEXT * sizeof *text);
    t->run->user = t;
    t->run->req.hidden = on_hidden;
    t->run->req.scored = on_scored;
    t->run->req.n_top_logprobs = 1;
    t->run->req.ignore_eog = true;
    submit(e, t->run);
    wait_run(t->run);
    assert_int_equal(t->run->result.status, SL_OK);
    free_run(t->run);
    sl_engine_destroy(&e);
}

static void all_f32(struct sl_synth_config *c) {
    c->attn = c->ffn = c->gate = c->up = c->down = (struct sl_synth_types){{SL_DTYPE_F32}, 1};
    c->embd = c->output = SL_DTYPE_F32;
}

/* The weights of the layer that drafts, in the only layer of `out`. */
static void copy_layer(const struct test_model *m, uint32_t layer, struct test_model *out) {
    char prefix[32], name[128];
    int n_prefix = snprintf(prefix, sizeof prefix, "blk.%u.", layer);
    uint32_t n_own = 0, n_copied = 0;
    for (uint64_t i = 0; i < sl_gguf_n_tensors(m->model->gguf); i++) {
        struct sl_str from = sl_gguf_tensor_at(m->model->gguf, i)->name;
        n_own += from.len > (size_t)n_prefix && memcmp(from.ptr, prefix, (size_t)n_prefix) == 0 &&
                 memcmp(from.ptr + n_prefix, "nextn", 5) != 0;
    }
    for (uint64_t i = 0; i < sl_gguf_n_tensors(out->model->gguf); i++) {
        struct sl_str to = sl_gguf_tensor_at(out->model->gguf, i)->name;
        char own[96];
        snprintf(own, sizeof own, "%.*s", (int)to.len, to.ptr);
        if (strncmp(own, "blk.0.", 6) != 0)
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, own + 6);
        float *x = floats_of(m->model, m->path, name);
        put_floats(out->model, out->path, own, x);
        free(x);
        n_copied++;
    }
    assert_int_equal(n_copied, n_own);
}

/* A model of one layer, which is the one that drafts: its embedding has for each position of the
 * text what the definition makes of the token and of the state before it. */
static void make_plain(const struct test_model *m, const struct sl_synth_config *sc,
                       const struct told *t, const uint32_t *text, struct test_model *out) {
    struct sl_synth_config one = *sc;
    one.n_layer = one.attn_every = 1;
    one.n_nextn = one.nextn_right = one.n_layer_dense = 0;
    open_model(out, &one);
    copy_layer(m, sc->n_layer, out);
    char name[64];
    snprintf(name, sizeof name, "blk.%u.nextn.shared_head_norm.weight", sc->n_layer);
    float *x = floats_of(m->model, m->path, name);
    put_floats(out->model, out->path, "output_norm.weight", x);
    free(x);
    snprintf(name, sizeof name, "blk.%u.nextn.shared_head_head.weight", sc->n_layer);
    x = floats_of(m->model, m->path, name);
    put_floats(out->model, out->path, "output.weight", x);
    free(x);
    snprintf(name, sizeof name, "blk.%u.nextn.enorm.weight", sc->n_layer);
    float *enorm = floats_of(m->model, m->path, name);
    snprintf(name, sizeof name, "blk.%u.nextn.hnorm.weight", sc->n_layer);
    float *hnorm = floats_of(m->model, m->path, name);
    snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", sc->n_layer);
    float *w = floats_of(m->model, m->path, name);
    float *embd = floats_of(m->model, m->path, "token_embd.weight");
    float *onorm = floats_of(m->model, m->path, "output_norm.weight");
    bool plain = strcmp(sc->arch, "step35") == 0;
    float *rows = floats_of(out->model, out->path, "token_embd.weight");
    for (uint32_t i = 0; i < N_TEXT; i++) {
        double in[2 * N_EMBD] = {0};
        double eps = (double)m->model->hp.norm_eps;
        norm(embd + (size_t)text[i] * N_EMBD, enorm, eps, in);
        /* But for its length, which a norm takes out, the state is what the output's has made of
         * it. */
        float state[N_EMBD] = {0};
        for (uint32_t k = 0; i && k < N_EMBD; k++)
            state[k] = t->hidden[i - 1][k] / (plain ? onorm[k] : 1);
        if (i)
            norm(state, hnorm, eps, in + N_EMBD);
        for (uint32_t o = 0; o < N_EMBD; o++) {
            double sum = 0;
            for (uint32_t k = 0; k < 2 * N_EMBD; k++)
                sum += in[k] * w[(size_t)o * 2 * N_EMBD + k];
            rows[i * N_EMBD + o] = (float)sum;
        }
    }
    put_floats(out->model, out->path, "token_embd.weight", rows);
    free(onorm);
    free(enorm);
    free(hnorm);
    free(w);
    free(embd);
    free(rows);
}

/* The state has a part in what is drafted, and the output's norm in the state. */
static void let_states_matter(const struct test_model *m, uint32_t layer) {
    static float by[N_EMBD];
    for (uint32_t k = 0; k < N_EMBD; k++)
        by[k] = k % 3 ? 0.4f : 2;
    put_floats(m->model, m->path, "output_norm.weight", by);
    char name[64];
    snprintf(name, sizeof name, "blk.%u.nextn.eh_proj.weight", layer);
    float *w = floats_of(m->model, m->path, name);
    struct sl_rng rng = {7};
    for (uint32_t o = 0; o < N_EMBD; o++)
        for (uint32_t k = N_EMBD; k < 2 * N_EMBD; k++)
            w[(size_t)o * 2 * N_EMBD + k] = 0.25f * (float)(sl_rng_unit(&rng) - 0.5);
    put_floats(m->model, m->path, name, w);
    free(w);
}

/* Takes the layer's norm out of the file, so that the model's stands in for it. That gets the same
 * weights, of both signs: a norm without weights would draft something else. */
static void lose_norm(const struct test_model *m, struct test_model *d, uint32_t layer) {
    static const char other[] = "counts"; /* a tensor that is ignored */
    static uint8_t head[1 << 16];
    char name[64];
    float w[N_EMBD];
    struct sl_rng rng = {8};
    for (uint32_t i = 0; i < N_EMBD; i++)
        w[i] = (0.2f + 2 * (float)sl_rng_unit(&rng)) * (i % 4 ? 1 : -1);
    int n = snprintf(name, sizeof name, "blk.%u.nextn.shared_head_norm.weight", layer);
    put_floats(m->model, m->path, "output_norm.weight", w);
    put_floats(m->model, m->path, name, w); /* m still has it by this name */
    int fd = open(m->path, O_RDWR);
    assert_true(fd >= 0);
    ssize_t end = pread(fd, head, sizeof head, 0) - n, at = 0;
    while (at < end && memcmp(head + at, name, (size_t)n) != 0)
        at++;
    assert_true(at < end);
    assert_int_equal(pwrite(fd, other, 6, at + n - 6), 6);
    close(fd);
    sl_model_close(&d->model);
    assert_ok(sl_model_open(d->path, &d->model, &test_err));
    assert_ok(sl_model_add_drafts(d->model, &test_err));
    assert_null(d->model->layers[layer].t[SL_L_DRAFT_NORM]);
}

static uint32_t drafted[N_TEXT]; /* for each position; UINT32_MAX: none was */

/* On the scheduler's thread, when the token of the position is there. */
static void note_draft(struct run *r) {
    const struct sl_session *s = r->engine->slots[0];
    if (s->n_draft && s->draft_at + 1 == s->n_history)
        drafted[s->draft_at] = s->draft[0];
}

/* Token by token, what is drafted, and as many drafts are made and right, as a model of that layer
 * alone would have. */
static void as_defined_by(const char *arch, bool without_norm) {
    struct test_model m, d, plain;
    struct sl_synth_config sc = drafting(arch, 60);
    struct sl_engine_config c = config();
    static struct told main_rows, layer_rows;
    uint32_t text[N_TEXT], order[N_TEXT];
    all_f32(&sc);
    open_both(&m, &d, &sc);
    let_states_matter(&m, sc.n_layer);
    if (without_norm)
        lose_norm(&m, &d, sc.n_layer);
    struct sl_engine *e = new_engine(&m, &c);
    struct run *want = new_run(3, N_PROMPT, sc.n_vocab, N_TEXT - N_PROMPT);
    want->req.ignore_eog = true;
    submit(e, want);
    wait_run(want);
    assert_int_equal(want->n, N_TEXT - N_PROMPT);
    sl_engine_destroy(&e);
    for (uint32_t i = 0; i < N_TEXT; i++) {
        text[i] = i < N_PROMPT ? want->prompt[i] : want->tokens[i - N_PROMPT].id;
        order[i] = i;
    }
    tell(&m, &c, &main_rows, text);
    make_plain(&m, &sc, &main_rows, text, &plain);
    tell(&plain, &c, &layer_rows, order);

    uint32_t n_draft = 0, n_accepted = 0;
    for (uint32_t n = N_PROMPT + 1; n < N_TEXT;) { /* tokens that have been chosen */
        bool any = n + 1 < N_TEXT, right = any && layer_rows.best[n] == text[n];
        n_draft += any;
        n_accepted += right;
        n += 1 + right;
    }
    c.draft_tokens = 1;
    e = new_engine(&d, &c);
    struct run *have = new_run(3, N_PROMPT, sc.n_vocab, N_TEXT - N_PROMPT);
    have->req.ignore_eog = true;
    have->on_token = note_draft;
    memset(drafted, 0xff, sizeof drafted);
    submit(e, have);
    wait_run(have);
    sl_engine_destroy(&e);
    assert_same_tokens(want, have);
    for (uint32_t i = 0; i < N_TEXT; i++)
        if (drafted[i] != UINT32_MAX)
            assert_int_equal(drafted[i], layer_rows.best[i]);
    assert_int_equal(have->result.n_draft, n_draft);
    assert_int_equal(have->result.n_draft_accepted, n_accepted);
    assert_true(n_accepted > 10 && n_accepted + 10 < n_draft);
    free_run(want);
    free_run(have);
    close_model(&plain);
    close_both(&m, &d);
}

/* Attention, latent and with a gate; experts that are shared and how; no experts. */
static void as_defined(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ARCHS; i++)
        as_defined_by(archs[i], false);
    as_defined_by("qwen35moe", true);
}

/* ---- what is refused ---- */

static void refused(void **state) {
    (void)state;
    struct test_model m, d;
    struct sl_synth_config sc = tiny_config("glm4moe");
    open_model(&m, &sc);
    assert_int_equal(sl_model_add_drafts(m.model, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "has no layers that draft"));
    close_model(&m);
    sc = tiny_config("exaone-moe");
    sc.n_nextn = 1;
    open_model(&m, &sc);
    assert_int_equal(sl_model_add_drafts(m.model, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "exaone-moe"));
    assert_int_equal(m.model->hp.n_layer, sc.n_layer);
    close_model(&m);
    sc = drafting("glm4moe", 0);
    open_both(&m, &d, &sc);
    static struct card_source source;
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 2});
    struct sl_engine_config c = config();
    struct sl_engine *e;
    c.ram_bytes = c.vram_bytes = (uint64_t)1 << 34;
    c.device_source = &source.source;
    c.draft_tokens = 1;
    assert_int_equal(sl_engine_create(d.model, &c, NULL, &e, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "--draft off"));
    close_both(&m, &d);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_defined), cmocka_unit_test(right_and_wrong),
        cmocka_unit_test(families),   cmocka_unit_test(quantised),
        cmocka_unit_test(streamed),   cmocka_unit_test(on_a_card),
        cmocka_unit_test(pages),      cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
