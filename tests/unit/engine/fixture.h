/* Tiny synthetic models and a sink that collects, for the engine's tests. */
#ifndef TESTS_ENGINE_FIXTURE_H
#define TESTS_ENGINE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/rng.h"
#include "engine/engine.h"
#include "model/synth/synth.h"
#include "tests/support/quick_dir.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TOKENS 1500u

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        enum sl_status ok_st = (call);                                                             \
        if (ok_st != SL_OK)                                                                        \
            fail_msg("%s: %s: %s", #call, sl_status_text(ok_st), test_err.text);                   \
    } while (0)

static struct sl_err test_err __attribute__((unused));

/* Writes a model and opens it; the file is unlinked at close_model. */
struct test_model {
    char path[64];
    struct sl_model *model;
};

static inline struct sl_synth_config tiny_config(const char *arch) {
    struct sl_synth_config c = sl_synth_default;
    c.arch = arch;
    c.n_layer = 3;
    c.n_embd = 64;
    c.n_head = 4;
    c.n_head_kv = 2;
    c.head_dim = 32;
    c.n_ff = 96;
    c.n_ff_expert = 32;
    c.n_ff_shared = 64;
    bool dense = strcmp(arch, "qwen3") == 0 || strcmp(arch, "qwen35") == 0 ||
                 strcmp(arch, "nemotron_h") == 0;
    c.n_expert = dense ? 0 : 6;
    c.n_expert_used = dense ? 0 : 2;
    bool note = strcmp(arch, "dots3note") == 0, blocks = strcmp(arch, "minimax-m3") == 0;
    bool index = strcmp(arch, "deepseek32") == 0 || strcmp(arch, "glm-dsa") == 0 || note;
    bool kimi = strcmp(arch, "kimi-linear") == 0, ling3 = strcmp(arch, "bailingmoe3") == 0;
    bool k3 = strcmp(arch, "kimi-k3") == 0, kda = kimi || ling3 || k3;
    bool latent = strcmp(arch, "deepseek2") == 0 || index || kda;
    c.n_layer_dense = strcmp(arch, "ernie4_5-moe") == 0 || latent || blocks;
    c.n_head_kv_odd = strcmp(arch, "hunyuan-moe") == 0; /* layers of two shapes */
    c.window = 40;
    c.attn_every = 2; /* where others have a gated delta net */
    c.n_delta_head = 6;
    c.n_delta_head_k = 2;
    c.delta_dim = 24;
    c.n_rot = strncmp(arch, "qwen35", 6) == 0 ? 12 : 0;
    if (latent) { /* rows of the cache must be whole blocks of Q8_0 */
        c.n_head = 5;
        c.n_head_kv = 1;
        c.head_dim = 56;
        c.n_rot = 32;
        c.head_dim_v = 24;
        c.n_lora_q = kimi ? 0 : 32;
        c.router_sigmoid = true;
        c.n_expert_latent = k3 ? 48 : 0;
    }
    if (index) {
        c.n_index_head = 3;
        c.index_dim = 48;
        c.n_index_top = 40;
        c.index_every = arch[0] == 'g' ? 2 : 0;
    }
    if (note) { /* the second layer of three has no window */
        c.n_head_window = 3;
        c.head_dim_window = 40;
        c.head_dim_v_window = 16;
        c.n_latent_window = 32;
        c.rope_base_window = 10000;
    }
    if (strcmp(arch, "deepseek4") == 0) { /* layers with blocks of 4, of 128, and without */
        c.n_lora_q = 32;
        c.n_lora_out = 16;
        c.n_index_head = 3;
        c.index_dim = 48;
        c.n_index_top = 8;
    }
    if (blocks) {
        c.n_rot = 16;
        c.index_dim = 24;
        c.index_block = 10;
        c.n_index_top = 4;
        c.n_index_local = 2;
    }
    if (strcmp(arch, "llama4") == 0) {
        c.chunk = 40;
        c.n_expert_used = 1;
    }
    if (strcmp(arch, "gemma4") == 0) { /* heads of two sizes, and of two numbers */
        c.window_period = 2;
        c.head_dim_window = 64;
        c.n_head_kv_window = 4;
        c.rope_base_window = 10000;
        c.logit_softcap = 30;
    }
    c.n_vocab = 512;
    c.n_ctx = 1024;
    return c;
}

static inline void open_model(struct test_model *m, const struct sl_synth_config *c) {
    snprintf(m->path, sizeof m->path, "%s/sluice-test-%ld-XXXXXX", quick_dir(), (long)getpid());
    int fd = mkstemp(m->path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(sl_synth_write(c, m->path, NULL, NULL, &test_err));
    assert_ok(sl_model_open(m->path, &m->model, &test_err));
}

static inline void close_model(struct test_model *m) {
    sl_model_close(&m->model);
    unlink(m->path);
}

/* A request with its sink and what came out. */
struct run {
    struct sl_token_sink sink; /* first */
    struct sl_gen_request req;
    uint32_t prompt[MAX_TOKENS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sl_token tokens[MAX_TOKENS];
    uint32_t n, n_pushes, n_progress;
    uint32_t park_every; /* refuse each multiple of this once, 0 = never */
    uint32_t hold_at;    /* refuse all tokens from this one on, until released; 0 = never */
    bool parked, refused;
    bool ends_only; /* whoever waits does so for its end or its parking, and not for tokens */
    int n_finish;
    struct sl_gen_result result;
    /* called in push after a token was taken, on the scheduler thread */
    void (*on_token)(struct run *r);
    void (*on_progress)(struct run *r);
    /* likewise, just before the run counts as finished */
    void (*on_finish)(struct run *r);
    void *user;
    struct sl_engine *engine;
};

static inline enum sl_status run_push(struct sl_token_sink *s, const struct sl_token *t) {
    struct run *r = (struct run *)s;
    pthread_mutex_lock(&r->lock);
    r->n_pushes++;
    bool refuse = (r->hold_at && r->n + 1 >= r->hold_at) ||
                  (r->park_every && (r->n + 1) % r->park_every == 0 && !r->refused);
    r->refused = refuse;
    if (refuse) {
        r->parked = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        return SL_AGAIN;
    }
    r->parked = false;
    if (r->n < MAX_TOKENS)
        r->tokens[r->n++] = *t;
    if (!r->ends_only)
        pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (r->on_token)
        r->on_token(r);
    return SL_OK;
}

static inline void run_progress(struct sl_token_sink *s, const struct sl_prompt_progress *p) {
    struct run *r = (struct run *)s;
    if (p->n_cached < p->n_done && p->n_done <= p->n_prompt)
        r->n_progress++;
    if (r->on_progress)
        r->on_progress(r);
}

static inline void run_finish(struct sl_token_sink *s, const struct sl_gen_result *result) {
    struct run *r = (struct run *)s;
    if (r->on_finish)
        r->on_finish(r);
    pthread_mutex_lock(&r->lock);
    r->result = *result;
    r->n_finish++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* A prompt of n pseudo-random tokens from the seed. */
static inline struct run *new_run(uint32_t seed, uint32_t n_prompt, uint32_t n_vocab,
                                  uint32_t max_tokens) {
    struct run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_true(n_prompt <= MAX_TOKENS);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->sink = (struct sl_token_sink){run_push, run_progress, run_finish};
    struct sl_rng rng = {seed};
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = sl_rng_below(&rng, n_vocab);
    r->req = (struct sl_gen_request){.prompt = r->prompt,
                                     .n_prompt = n_prompt,
                                     .max_tokens = max_tokens,
                                     .sampling = sl_sampling_default,
                                     .sink = &r->sink};
    r->req.sampling.temperature = 0;
    return r;
}

static inline void free_run(struct run *r) {
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r);
}

static inline void submit(struct sl_engine *e, struct run *r) {
    r->engine = e;
    assert_ok(sl_engine_submit(e, &r->req, &test_err));
}

/* Waits for the finish, resuming whenever the run parks by park_every. */
static inline void wait_run(struct run *r) {
    pthread_mutex_lock(&r->lock);
    r->ends_only = true;
    while (!r->n_finish) {
        if (r->parked && !r->hold_at) {
            r->parked = false;
            pthread_mutex_unlock(&r->lock);
            sl_engine_resume(r->engine, &r->req);
            pthread_mutex_lock(&r->lock);
            continue;
        }
        pthread_cond_wait(&r->changed, &r->lock);
    }
    r->ends_only = false;
    pthread_mutex_unlock(&r->lock);
}

static inline void wait_parked(struct run *r) {
    pthread_mutex_lock(&r->lock);
    while (!r->parked && !r->n_finish)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    assert_int_equal(r->n_finish, 0);
}

static inline void assert_same_tokens(const struct run *a, const struct run *b) {
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_int_equal(a->tokens[i].id, b->tokens[i].id);
        assert_memory_equal(&a->tokens[i].logprob, &b->tokens[i].logprob, sizeof(float));
    }
}

static inline struct sl_engine *new_engine(const struct test_model *m,
                                           const struct sl_engine_config *c) {
    struct sl_engine *e;
    assert_ok(sl_engine_create(m->model, c, NULL, &e, &test_err));
    return e;
}

/* How fast the disk is, which is nobody's business here; false: too few experts are in slots. */
static inline bool measure_disk(struct sl_engine *e, double seconds) {
    double rate = 0;
    enum sl_status status = sl_engine_disk_speed(e, seconds, &rate, &test_err);
    if (status == SL_ERR_UNSUPPORTED)
        return false;
    assert_ok(status);
    assert_true(rate > 0);
    return true;
}

#endif
