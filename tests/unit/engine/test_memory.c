/* KV pages, the memory plan, RoPE frequencies, and reading weights from files that misbehave. */
#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "common/metrics.h"
#include "engine/kv/kv.h"
#include "engine/plan/memory_plan.h"
#include "engine/forward/rope_freq.h"
#include "engine/weights/weights.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>

static struct sl_device *open_device(void) {
    struct sl_device *d;
    struct sl_cpu_config c = {.n_threads = 1, .isa = SL_CPU_C};
    assert_ok(sl_cpu_open(&c, &d, &test_err));
    return d;
}

/* ---- KV ---- */

static void kv_pages(void **state) {
    (void)state;
    struct sl_device *d = open_device();
    /* Layers of three shapes. */
    struct sl_layer layers[3] = {{.spec.attention = {4, 2, 32, 64}},
                                 {.spec.attention = {4, 1, 32, 64}},
                                 {.spec.attention = {4, 4, 96, 32}}};
    static const size_t want_bytes[3][2] = {{2 * 64 * 32 * 2, 2 * 64 * 64 * 2},
                                            {64 * 32 * 2, 64 * 64 * 2},
                                            {4 * 64 * 96 * 2, 4 * 64 * 32 * 2}};
    struct sl_model model = {.hp = {.n_layer = 3}, .layers = layers};
    struct sl_kv_pages pool;
    struct sl_kv_data kv;
    struct sl_kv_size size = {.stores = {.kv_dtype = SL_DTYPE_F16}, .n_pages = 10};
    assert_ok(sl_kv_pages_init(&pool, 10, &test_err));
    assert_ok(sl_kv_data_init(&kv, d, &model, &size, &test_err));
    uint32_t page[10];
    bool taken[10] = {false};
    for (uint32_t i = 0; i < 10; i++) {
        page[i] = sl_kv_page_take(&pool);
        assert_true(page[i] < 10);
        assert_false(taken[page[i]]);
        taken[page[i]] = true;
    }
    assert_int_equal(sl_metric(kv_pages_used), 10);
    assert_int_equal(sl_kv_page_take(&pool), SL_KV_NO_PAGE);
    sl_kv_page_give(&pool, page[4]);
    assert_int_equal(sl_kv_page_take(&pool), page[4]);
    for (uint32_t i = 0; i < 10; i++)
        sl_kv_page_give(&pool, page[i]);
    assert_int_equal(sl_metric(kv_pages_used), 0);
    /* Layers and their two parts do not overlap and end where the pool ends. */
    for (uint32_t l = 0; l < 3; l++) {
        struct sl_kv_view v = sl_kv_layer(&kv, l);
        assert_int_equal(v.k_page_bytes, want_bytes[l][0]);
        assert_int_equal(v.v_page_bytes, want_bytes[l][1]);
        assert_int_equal(v.n_kv_heads, layers[l].spec.attention.n_head_kv);
        assert_int_equal((char *)v.v - (char *)v.k, 10 * v.k_page_bytes);
        char *end = (char *)v.v + 10 * v.v_page_bytes;
        assert_int_equal(kv.data.n_parts, 1);
        assert_ptr_equal(end,
                         l < 2 ? sl_kv_layer(&kv, l + 1).k
                               : (void *)((char *)kv.data.parts[0].buffer->addr + kv.data_bytes));
    }
    sl_kv_pages_release(&pool);
    sl_kv_data_release(&kv);
    sl_kv_data_release(&kv); /* again is fine */
    sl_device_close(&d);
}

/* ---- the plan ---- */

static void plan_adds_up(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen2moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_device *d = open_device();
    struct sl_engine_config c = {.ctx_tokens = 100, .parallel = 3, .batch_tokens = 2};
    struct sl_memory_plan p;
    assert_ok(sl_memory_plan_make(m.model, &c, d, &p, &test_err));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p.n_rows; i++)
        sum += p.rows[i].bytes;
    assert_int_equal(sum, p.total_bytes);
    assert_int_equal(p.weight_bytes + p.kv_bytes + p.activation_bytes + p.scratch_bytes +
                         p.host_bytes + p.session_bytes + p.thread_bytes + p.kernel_bytes +
                         p.slack_bytes,
                     p.total_bytes);
    assert_true(p.total_bytes <= p.budget_bytes);
    assert_int_equal(p.config.batch_tokens, 3); /* a row for every session */
    assert_int_equal(p.session_pages, 2);
    assert_int_equal(p.n_pages, 6);
    assert_int_equal(p.kv_bytes, 6ull * 64 * 3 * (2 * 32 * 2) * 2);
    uint64_t tensors = 0;
    for (uint64_t i = 0; i < sl_gguf_n_tensors(m.model->gguf); i++)
        tensors += sl_gguf_tensor_at(m.model->gguf, i)->size_bytes;
    assert_true(p.weight_bytes >= tensors);
    assert_true(p.weight_bytes < tensors + 65536 + 8 * 4096);
    uint64_t kv = p.kv_bytes;
    c.kv_dtype = SL_DTYPE_Q8_0;
    assert_ok(sl_memory_plan_make(m.model, &c, d, &p, &test_err));
    assert_int_equal(p.kv_bytes, kv * 34 / 64);
    sl_device_close(&d);
    close_model(&m);
}

static void plan_refuses(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    sc.head_dim = 20;
    struct test_model m;
    open_model(&m, &sc);
    struct sl_memory_plan p;
    struct sl_engine_config c = {.kv_dtype = SL_DTYPE_Q8_0};
    assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "f16"));
    c = (struct sl_engine_config){.kv_dtype = SL_DTYPE_Q4_K};
    assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
    c = (struct sl_engine_config){.parallel = 100000};
    assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
    c = (struct sl_engine_config){.ctx_tokens = 1};
    assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
    c = (struct sl_engine_config){.ctx_tokens = 1 << 24, .parallel = 1000};
    assert_int_equal(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err), SL_ERR_CONFIG);
    /* More than the machine has: refused before anything is loaded, with the figures. */
    c = (struct sl_engine_config){.ctx_tokens = 1 << 23, .parallel = 500, .n_threads = 1};
    struct sl_engine *e = NULL;
    enum sl_status status = sl_engine_create(m.model, &c, NULL, &e, &test_err);
    assert_int_not_equal(status, SL_OK);
    assert_null(e);
    assert_non_null(strstr(test_err.text, "MiB"));
    c = (struct sl_engine_config){.cpu_isa = "sse9"};
    assert_int_equal(sl_engine_create(m.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "sse9"));
    close_model(&m);
}

/* ---- weights ---- */

static const struct sl_weights_part all = {.experts = true};

static void weights_are_the_files_bytes(void **state) {
    (void)state;
    static const uint32_t splits[] = {1, 3};
    for (uint32_t pass = 0; pass < 2; pass++) {
        struct sl_synth_config sc = tiny_config("qwen3moe");
        sc.n_split = splits[pass];
        sc.tied = pass == 1;
        struct test_model m;
        if (pass == 0) {
            open_model(&m, &sc);
        } else {
            snprintf(m.path, sizeof m.path, "/tmp/sluice-test-%ld", (long)getpid());
            assert_ok(sl_synth_write(&sc, m.path, NULL, NULL, &test_err));
            char first[100];
            snprintf(first, sizeof first, "%s-00001-of-00003.gguf", m.path);
            assert_ok(sl_model_open(first, &m.model, &test_err));
        }
        struct sl_device *d = open_device();
        struct sl_weights *w;
        assert_ok(sl_weights_load(m.model, all, d, &sl_weights_system_io, NULL, &w, &test_err));
        for (uint64_t i = 0; i < sl_gguf_n_tensors(m.model->gguf); i++) {
            const struct sl_gguf_tensor *t = sl_gguf_tensor_at(m.model->gguf, i);
            const void *have = sl_weights_addr(w, t);
            assert_non_null(have);
            void *want = malloc(t->size_bytes);
            FILE *f = fopen(sl_gguf_file_path(m.model->gguf, t->file), "rb");
            assert_non_null(f);
            assert_int_equal(fseek(f, (long)t->offset_bytes, SEEK_SET), 0);
            assert_int_equal(fread(want, 1, t->size_bytes, f), t->size_bytes);
            fclose(f);
            assert_memory_equal(have, want, t->size_bytes);
            free(want);
        }
        assert_null(sl_weights_addr(w, NULL));
        sl_weights_destroy(&w);
        sl_device_close(&d);
        for (uint32_t i = 0; pass == 1 && i < 3; i++)
            unlink(sl_gguf_file_path(m.model->gguf, i));
        close_model(&m);
    }
}

/* Reads that come in small and odd pieces, with interruptions; and reads that fail. */
struct bad_io {
    struct sl_weights_io base;
    off_t fail_at; /* error when a read reaches this offset; -1 = never */
    int error;     /* 0 = end of file */
    bool cached;
    atomic_uint calls;
};

static ssize_t bad_pread(const struct sl_weights_io *io, int fd, void *buf, size_t n,
                         off_t offset) {
    struct bad_io *b = (struct bad_io *)(uintptr_t)io;
    uint32_t call = atomic_fetch_add(&b->calls, 1);
    if (call % 5 == 1) {
        errno = EINTR;
        return -1;
    }
    if (b->fail_at >= 0 && offset + (off_t)n > b->fail_at) {
        if (offset >= b->fail_at) {
            errno = b->error;
            return b->error ? -1 : 0;
        }
        n = (size_t)(b->fail_at - offset);
    }
    size_t some = call % 3 == 0 ? 1237 : call % 3 == 1 ? 4096 : 100000;
    return pread(fd, buf, n < some ? n : some, offset);
}

static bool bad_cached(const struct sl_weights_io *io, int fd, off_t offset, size_t n) {
    (void)fd;
    (void)offset;
    (void)n;
    return ((const struct bad_io *)io)->cached;
}

static void short_reads_and_errors(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    sc.n_vocab = 4096; /* some runs above the size from which reads are unbuffered */
    struct test_model m;
    open_model(&m, &sc);
    struct sl_device *d = open_device();
    struct sl_weights *good, *w = NULL;
    assert_ok(sl_weights_load(m.model, all, d, &sl_weights_system_io, NULL, &good, &test_err));
    const struct sl_gguf_tensor *t = sl_gguf_tensor_find(m.model->gguf, "blk.1.ffn_up_exps.weight");
    assert_non_null(t);
    for (uint32_t cached = 0; cached < 2; cached++) {
        struct bad_io io = {.base = {bad_pread, bad_cached}, .fail_at = -1, .cached = cached};
        assert_ok(sl_weights_load(m.model, all, d, &io.base, NULL, &w, &test_err));
        for (uint64_t i = 0; i < sl_gguf_n_tensors(m.model->gguf); i++) {
            const struct sl_gguf_tensor *each = sl_gguf_tensor_at(m.model->gguf, i);
            assert_memory_equal(sl_weights_addr(w, each), sl_weights_addr(good, each),
                                each->size_bytes);
        }
        sl_weights_destroy(&w);
        static const int errors[] = {EIO, 0};
        for (uint32_t e = 0; e < 2; e++) {
            io.fail_at = (off_t)t->offset_bytes + 100;
            io.error = errors[e];
            assert_int_equal(sl_weights_load(m.model, all, d, &io.base, NULL, &w, &test_err),
                             SL_ERR_IO);
            assert_null(w);
            assert_non_null(strstr(test_err.text, m.path));
            assert_non_null(strstr(test_err.text, "blk.1.ffn_up_exps.weight"));
            assert_non_null(strstr(test_err.text, e ? "copy it again" : strerror(EIO)));
        }
    }
    /* The real thing: the file is cut after it was opened. */
    assert_int_equal(truncate(m.path, (off_t)t->offset_bytes + 10), 0);
    assert_int_equal(sl_weights_load(m.model, all, d, &sl_weights_system_io, NULL, &w, &test_err),
                     SL_ERR_IO);
    assert_non_null(strstr(test_err.text, "blk.1.ffn_up_exps.weight"));
    sl_weights_destroy(&good);
    sl_device_close(&d);
    close_model(&m);
}

struct stop_early {
    struct sl_progress base;
    uint64_t last_done, total;
};

static bool stop_now(struct sl_progress *p, uint64_t done, uint64_t total) {
    (void)p;
    (void)done;
    (void)total;
    return false;
}

static bool watch(struct sl_progress *p, uint64_t done, uint64_t total) {
    struct stop_early *s = (struct stop_early *)p;
    s->last_done = done > s->last_done ? done : s->last_done;
    s->total = total;
    return true;
}

static void progress_reports_and_cancels(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = {.n_threads = 1, .ctx_tokens = 64};
    struct sl_engine *e = NULL;
    struct stop_early s = {.base = {stop_now}};
    assert_int_equal(sl_engine_create(m.model, &c, &s.base, &e, &test_err), SL_ERR_CANCELED);
    assert_null(e);
    s.base.report = watch;
    assert_ok(sl_engine_create(m.model, &c, &s.base, &e, &test_err));
    assert_true(s.total > 0);
    assert_int_equal(s.last_done, s.total);
    sl_engine_destroy(&e);
    close_model(&m);
}

/* ---- RoPE ---- */

static void rope_frequencies(void **state) {
    (void)state;
    struct sl_rope_spec hp = {.n_rot = 64, .base = 10000, .scale = 1, .yarn_attn = 1};
    float f[32], mscale;
    sl_rope_inv_freq(&hp, NULL, f, &mscale);
    assert_true(mscale == 1);
    for (uint32_t i = 0; i < 32; i++)
        assert_true(fabs((double)f[i] / pow(10000, -(double)i / 32) - 1) < 1e-6);
    hp.scale = 0.25f; /* linear */
    sl_rope_inv_freq(&hp, NULL, f, &mscale);
    assert_true(fabs((double)f[0] - 0.25) < 1e-7);
    float divisors[32];
    for (uint32_t i = 0; i < 32; i++)
        divisors[i] = (float)(1 + i);
    hp.scale = 1;
    sl_rope_inv_freq(&hp, divisors, f, &mscale);
    for (uint32_t i = 0; i < 32; i++)
        assert_true(fabs((double)f[i] * (1 + i) / pow(10000, -(double)i / 32) - 1) < 1e-6);
    /* YaRN by 4 from 4096 tokens. With these constants the ramp runs from pair
     * floor(32 ln(4096/(32*2pi))/ln(1e4)) = 10 to ceil(32 ln(4096/(2pi))/ln(1e4)) = 23. */
    hp = (struct sl_rope_spec){.n_rot = 64,
                               .base = 10000,
                               .scale = 1,
                               .yarn_factor = 4,
                               .yarn_ext = 1,
                               .yarn_attn = 1,
                               .yarn_beta_fast = 32,
                               .yarn_beta_slow = 1,
                               .yarn_ctx_orig = 4096};
    sl_rope_inv_freq(&hp, NULL, f, &mscale);
    assert_true(fabs((double)mscale - (1 + 0.1 * log(4))) < 1e-6);
    for (uint32_t i = 0; i < 32; i++) {
        double plain = pow(10000, -(double)i / 32), ramp = (i - 10.0) / 13;
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        double want = plain * (1 - ramp) + plain / 4 * ramp;
        assert_true(fabs((double)f[i] / want - 1) < 1e-6);
    }
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kv_pages),
        cmocka_unit_test(plan_adds_up),
        cmocka_unit_test(plan_refuses),
        cmocka_unit_test(weights_are_the_files_bytes),
        cmocka_unit_test(short_reads_and_errors),
        cmocka_unit_test(progress_reports_and_cancels),
        cmocka_unit_test(rope_frequencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
