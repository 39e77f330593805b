/* Synthetic models: scale of the weights for every type, reproducibility, and that every
 * architecture opens. Here rather than beside model/ because it needs the backend's definition of
 * the formats. */
#include "backends/cpu/matmul/formats.h"
#include "common/rng.h"
#include "model/arch/model.h"
#include "model/synth/synth.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void spread_of_every_type(void **state) {
    (void)state;
    enum { N = 256 * 512 };
    float *y = malloc(N * sizeof *y);
    void *row = malloc(N * 4);
    assert_non_null(y);
    assert_non_null(row);
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        if (!sl_dtype_info(t))
            continue;
        for (int i = 0; i < 3; i++) {
            float std = (float[]){0.003f, 0.02f, 1.5f}[i];
            struct sl_rng r = {t};
            sl_synth_random_row((enum sl_dtype)t, &r, std, row, N);
            sl_dequantize_row((enum sl_dtype)t, row, N, y);
            double sum = 0, sq = 0;
            for (int j = 0; j < N; j++) {
                assert_true(isfinite(y[j]));
                sum += y[j];
                sq += (double)y[j] * y[j];
            }
            double got = sqrt(sq / N);
            /* MXFP4 has powers of two only: within a factor of sqrt(2) and its jitter. */
            double slack = t == SL_DTYPE_MXFP4 ? 0.45 : 0.15;
            if (fabs(got / std - 1) > slack || fabs(sum / N) > 0.05 * got)
                fail_msg("%s: asked for %g, got std %g mean %g", sl_dtype_name(t), (double)std, got,
                         sum / N);
        }
    }
    free(y);
    free(row);
}

static void temp_path(char *out) {
    strcpy(out, "/tmp/sluice-synth-XXXXXX");
    int fd = mkstemp(out);
    assert_true(fd >= 0);
    close(fd);
}

static void every_architecture_opens(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        uint32_t n_expert;
        bool tied, rope_freqs;
        uint32_t n_dense;
    } cases[] = {{"grovemoe", 6, true, false, 0},     {"maple", 6, true, false, 0},
                 {"phimoe", 6, false, false, 0},      {"smallthinker", 6, true, false, 0},
                 {"hy_v3", 6, false, false, 1},       {"mellum", 6, false, false, 0},
                 {"granitemoe", 6, true, false, 0},   {"exaone-moe", 6, false, false, 1},
                 {"dots1", 6, false, false, 2},       {"deepseek", 6, true, false, 1},
                 {"bailingmoe", 6, false, false, 0},  {"bailingmoe2", 6, false, false, 1},
                 {"minimax-m2", 6, false, false, 0},  {"glm4moe", 6, false, false, 1},
                 {"qwen3moe", 7, false, false, 0},    {"qwen2moe", 6, false, false, 0},
                 {"olmoe", 8, false, false, 0},       {"llama", 5, false, true, 0},
                 {"llama", 0, true, false, 0},        {"qwen3", 0, true, false, 0},
                 {"qwen2", 0, false, false, 0},       {"ernie4_5-moe", 6, true, false, 2},
                 {"hunyuan-moe", 6, false, false, 0}, {"gpt-oss", 6, false, false, 0},
                 {"gemma4", 6, true, false, 0},       {"llama4", 5, true, true, 0},
                 {"afmoe", 6, false, false, 1},       {"laguna", 6, true, false, 2},
                 {"cohere2moe", 6, true, false, 1},   {"dbrx", 6, false, false, 0},
                 {"grok", 6, false, false, 0},        {"mimo2", 6, false, false, 1},
                 {"arctic", 6, false, false, 0},      {"step35", 6, false, true, 1},
                 {"lfm2moe", 6, true, false, 1},      {"granitehybrid", 6, true, false, 0},
                 {"jamba", 6, true, false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_synth_config c = sl_synth_default;
        c.arch = cases[i].arch;
        c.n_expert = cases[i].n_expert;
        c.n_expert_used = strcmp(c.arch, "llama4") == 0 ? 1 : c.n_expert ? 3 : 0;
        c.tied = cases[i].tied;
        c.rope_freqs = cases[i].rope_freqs;
        c.head_dim = 40;
        c.n_layer_dense = cases[i].n_dense;
        c.n_head_kv_odd = 4;
        char path[64];
        temp_path(path);
        struct sl_err err = {""};
        if (sl_synth_write(&c, path, NULL, NULL, &err))
            fail_msg("%s: %s", c.arch, err.text);
        struct sl_model *m = NULL;
        enum sl_status status = sl_model_open(path, &m, &err);
        unlink(path);
        if (status)
            fail_msg("%s: %s", c.arch, err.text);
        assert_string_equal(sl_model_arch_name(m), c.arch);
        assert_int_equal(m->hp.n_expert, c.n_expert);
        assert_int_equal(m->hp.n_expert_used, c.n_expert_used);
        for (uint32_t l = 0; l < c.n_layer; l++) {
            const struct sl_layer_spec *s = &m->layers[l].spec;
            assert_int_equal(s->attention.head_dim_k, 40);
            bool conv = strcmp(c.arch, "lfm2moe") == 0,
                 mamba = strcmp(c.arch, "granitehybrid") == 0,
                 mamba1 = strcmp(c.arch, "jamba") == 0;
            bool attends = (!conv && !mamba && !mamba1) || (l + 1) % c.attn_every == 0;
            assert_int_equal(s->attention.n_head_kv, !attends ? 0 : l % 2 ? 4 : c.n_head_kv);
            assert_int_equal(s->mixer, attends ? SL_MIXER_ATTENTION
                                       : conv  ? SL_MIXER_CONV
                                       : mamba ? SL_MIXER_MAMBA
                                               : SL_MIXER_MAMBA1);
            assert_int_equal(sl_model_layer_is_moe(m, l), c.n_expert && l >= c.n_layer_dense);
        }
        assert_int_equal(m->hp.n_vocab, c.n_vocab);
        sl_model_close(&m);
        assert_null(m);
    }
}

/* Layers of one part, by the pattern. */
static void layers_of_one_part(void **state) {
    (void)state;
    static const char *const archs[] = {"nemotron_h", "nemotron_h_moe", "nemotron_h_moe"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct sl_synth_config c = sl_synth_default;
        struct sl_err err = {""};
        struct sl_model *m = NULL;
        char path[64];
        c.arch = archs[i];
        c.pattern = "EM*ME";
        c.n_layer = 7;
        c.n_nextn = i == 2;
        c.n_expert_latent = i == 2 ? 72 : 0;
        if (!i)
            c.n_expert = c.n_expert_used = 0;
        temp_path(path);
        enum sl_status status = sl_synth_write(&c, path, NULL, NULL, &err);
        if (status == SL_OK)
            status = sl_model_open(path, &m, &err);
        unlink(path);
        if (status)
            fail_msg("%s: %s", c.arch, err.text);
        for (uint32_t l = 0; l < c.n_layer; l++) {
            const struct sl_layer *layer = &m->layers[l];
            char part = c.pattern[l % 5];
            assert_int_equal(layer->spec.mixer, part == 'E'   ? SL_MIXER_NONE
                                                : part == 'M' ? SL_MIXER_MAMBA
                                                              : SL_MIXER_ATTENTION);
            assert_int_equal(layer->spec.ffn, part != 'E' ? SL_FFN_NONE
                                              : i         ? SL_FFN_EXPERTS
                                                          : SL_FFN_DENSE);
            assert_true(layer->spec.relu_squared);
            bool moe = i && part == 'E';
            assert_int_equal(layer->spec.experts.n_latent, moe ? c.n_expert_latent : 0);
            if (moe) /* up and down */
                assert_int_equal(sl_model_expert_bytes(m, l),
                                 (layer->t[SL_L_EXPERTS_UP]->size_bytes +
                                  layer->t[SL_L_EXPERTS_DOWN]->size_bytes) /
                                     c.n_expert);
            else
                assert_int_equal(sl_model_expert_bytes(m, l), 0);
        }
        assert_int_equal(m->hp.n_layer_nextn, c.n_nextn);
        sl_model_close(&m);
    }
    struct sl_synth_config c = sl_synth_default;
    struct sl_err err = {""};
    c.arch = "nemotron_h_moe";
    c.pattern = "MX";
    assert_int_equal(sl_synth_write(&c, "/nowhere", NULL, NULL, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "--pattern"));
    c.pattern = "M*";
    assert_int_equal(sl_synth_write(&c, "/nowhere", NULL, NULL, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "experts"));
}

static char *slurp(const char *path, size_t *out_n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *out_n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*out_n);
    assert_int_equal(fread(p, 1, *out_n, f), *out_n);
    fclose(f);
    return p;
}

static void same_seed_same_bytes(void **state) {
    (void)state;
    struct sl_synth_config c = sl_synth_default;
    c.gate = (struct sl_synth_types){{SL_DTYPE_Q4_K, SL_DTYPE_IQ2_XXS}, 2};
    char *bytes[3];
    size_t n[3];
    for (int i = 0; i < 3; i++) {
        char path[64];
        struct sl_err err;
        temp_path(path);
        c.seed = i == 2 ? 2 : 1;
        assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
        bytes[i] = slurp(path, &n[i]);
        unlink(path);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    assert_int_equal(n[0], n[2]);
    assert_memory_not_equal(bytes[0], bytes[2], n[0]);
    for (int i = 0; i < 3; i++)
        free(bytes[i]);
}

static void split_files_open_as_one(void **state) {
    (void)state;
    struct sl_synth_config c = sl_synth_default;
    c.n_split = 3;
    char prefix[64], path[128];
    struct sl_err err;
    temp_path(prefix);
    assert_int_equal(sl_synth_write(&c, prefix, NULL, NULL, &err), SL_OK);
    snprintf(path, sizeof path, "%s-00001-of-00003.gguf", prefix);
    struct sl_model *m = NULL;
    enum sl_status status = sl_model_open(path, &m, &err);
    for (int i = 1; i <= 3; i++) {
        snprintf(path, sizeof path, "%s-0000%d-of-00003.gguf", prefix, i);
        assert_int_equal(unlink(path), 0);
    }
    unlink(prefix);
    if (status)
        fail_msg("%s", err.text);
    assert_int_equal(sl_gguf_n_files(m->gguf), 3);
    sl_model_close(&m);
}

static void headers_alone_take_no_space(void **state) {
    (void)state;
    struct sl_synth_config c = sl_synth_default;
    struct sl_err err;
    struct stat whole, holes;
    size_t n;
    char path[64];
    c.n_layer = 20;
    temp_path(path);
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    assert_int_equal(stat(path, &whole), 0);
    char *filled = slurp(path, &n);
    c.headers_only = true;
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_OK);
    assert_int_equal(stat(path, &holes), 0);
    char *empty = slurp(path, &n);
    struct sl_model *m = NULL;
    enum sl_status status = sl_model_open(path, &m, &err);
    unlink(path);
    if (status)
        fail_msg("%s", err.text);
    assert_int_equal(holes.st_size, whole.st_size);
    assert_true((uint64_t)holes.st_blocks * 512 < (uint64_t)whole.st_size / 8);
    size_t header = (size_t)sl_gguf_tensor_at(m->gguf, 0)->offset_bytes;
    assert_true(header > 1000 && header < n);
    assert_memory_equal(filled, empty, header);
    for (size_t i = header; i < n; i++)
        assert_int_equal(empty[i], 0);
    sl_model_close(&m);
    free(filled);
    free(empty);
}

static bool stop_at_once(void *ctx, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)done;
    (void)total;
    return false;
}

static void failure_leaves_no_file(void **state) {
    (void)state;
    struct sl_synth_config c = sl_synth_default;
    struct sl_err err;
    char path[64];
    temp_path(path);
    assert_int_equal(sl_synth_write(&c, path, stop_at_once, NULL, &err), SL_ERR_CANCELED);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(sl_synth_write(&c, "/nonexistent/x.gguf", NULL, NULL, &err), SL_ERR_IO);
    c.n_expert_used = 9;
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "top-k"));
    c = sl_synth_default;
    c.arch = "gpt-5";
    assert_int_equal(sl_synth_write(&c, path, NULL, NULL, &err), SL_ERR_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_of_every_type),        cmocka_unit_test(every_architecture_opens),
        cmocka_unit_test(same_seed_same_bytes),        cmocka_unit_test(split_files_open_as_one),
        cmocka_unit_test(headers_alone_take_no_space), cmocka_unit_test(failure_leaves_no_file),
        cmocka_unit_test(layers_of_one_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
