#include "model/synth/synth.h"

#include "common/output.h"
#include "common/rng.h"
#include "model/gguf/gguf_write.h"
#include "model/synth/synth_plan.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 4 << 20, MAX_THREADS = 16, CLUSTER_TOKENS = 64 };
#define NAME "synthetic" /* general.name of all that is written here */
/* The constant at the head of every embedding: small beside the norm, large enough to carry the
 * popularity column. */
static const float embedding_constant = 4;
/* How far the likeliest successor's logit stands above the others' unit spread. */
static const float successor_logit = 12;

const struct sl_synth_config sl_synth_default = {
    .arch = "qwen3moe",
    .seed = 1,
    .n_layer = 4,
    .n_embd = 256,
    .n_head = 4,
    .n_head_kv = 2,
    .head_dim = 64,
    .n_ff = 512,
    .n_ff_expert = 128,
    .n_ff_shared = 256,
    .n_expert = 8,
    .n_expert_used = 2,
    .n_vocab = 1024,
    .rope_base = 1e6f,
    .window = 128,
    .n_ctx = 4096,
    .attn_every = 4,
    .n_delta_head = 4,
    .n_delta_head_k = 2,
    .delta_dim = 32,
    .n_taps = 4,
    .n_state = 32,
    .n_ff_adjugate = 64,
    .n_per_adjugate = 2,
    .n_latent = 64,
    .head_dim_v = 64,
    .n_index_head = 4,
    .index_dim = 64,
    .n_index_top = 64,
    .index_block = 16,
    .keep_every = 2,
    .n_group_out = 2,
    .n_lora_out = 32,
    .n_layer_table = 1,
    .n_ngram_head = 2,
    .n_ngram_rows = 251,
    .n_index_local = 1,
    .attn = {{SL_DTYPE_Q8_0}, 1},
    .ffn = {{SL_DTYPE_Q8_0}, 1},
    .gate = {{SL_DTYPE_Q8_0}, 1},
    .up = {{SL_DTYPE_Q8_0}, 1},
    .down = {{SL_DTYPE_Q8_0}, 1},
    .embd = SL_DTYPE_Q8_0,
    .output = SL_DTYPE_Q8_0,
    .skew = 1.2f,
    .locality = 0.87f,
    .stay = 0.78f,
    .n_split = 1,
};

struct job {
    const struct sl_synth_config *config;
    struct sl_synth_plan plan;
    struct sl_output *files; /* [n_split] */
    uint32_t *chunk_tensor;  /* chunk → tensor */
    uint64_t *chunk_row;     /* chunk → first row */
    uint64_t n_chunks, total_bytes;
    uint32_t *predecessor; /* token → the token that it follows in the cycle */
    bool (*report)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
    atomic_ullong next, done_bytes;
    atomic_int failed; /* enum sl_status, the first */
    int error_number;
};

static struct sl_rng stream(uint64_t seed, uint64_t a, uint64_t b) {
    struct sl_rng r = {seed * 0x9e3779b97f4a7c15u ^ a * 0xd1342543de82ef95u ^
                       b * 0xaf251af3b0f025b5u};
    r.state = sl_rng_u64(&r);
    return r;
}

static float unit(struct sl_rng *r) {
    return (float)((sl_rng_unit(r) * 2 - 1) * 1.7320508);
}

enum { STREAM_CENTRE = 1 << 20, STREAM_OWN, STREAM_POPULARITY, STREAM_CYCLE, STREAM_KNOWN };

static uint32_t n_text_tokens(const struct sl_synth_config *c) {
    return c->n_vocab - 3; /* control tokens stand at the end and follow nothing */
}

static void embedding(const struct sl_synth_config *c, uint32_t token, float *out) {
    struct sl_rng centre = stream(c->seed, STREAM_CENTRE, token / CLUSTER_TOKENS);
    struct sl_rng own = stream(c->seed, STREAM_OWN, token);
    float a = sqrtf(c->locality), b = sqrtf(1 - c->locality);
    for (uint32_t i = 0; i < c->n_embd; i++)
        out[i] = a * unit(&centre) + b * unit(&own);
    out[0] = embedding_constant;
}

/* A cycle through all text tokens in runs that stay in a cluster with chance `stay` a step. */
static bool make_cycle(struct job *j) {
    const struct sl_synth_config *c = j->config;
    uint32_t n = n_text_tokens(c), n_clusters = (n + CLUSTER_TOKENS - 1) / CLUSTER_TOKENS;
    uint32_t *live = malloc(n_clusters * sizeof *live), *used = calloc(n_clusters, sizeof *used);
    j->predecessor = malloc(c->n_vocab * sizeof *j->predecessor);
    if (!live || !used || !j->predecessor) {
        free(live);
        free(used);
        return false;
    }
    for (uint32_t t = 0; t < c->n_vocab; t++)
        j->predecessor[t] = UINT32_MAX;
    for (uint32_t i = 0; i < n_clusters; i++)
        live[i] = i;
    struct sl_rng r = stream(c->seed, STREAM_CYCLE, 0);
    uint32_t first = UINT32_MAX, last = UINT32_MAX, n_live = n_clusters;
    while (n_live) {
        uint32_t k = sl_rng_below(&r, n_live), cluster = live[k];
        uint32_t base = cluster * CLUSTER_TOKENS;
        uint32_t size = n - base < CLUSTER_TOKENS ? n - base : CLUSTER_TOKENS;
        do {
            uint32_t token = base + used[cluster]++;
            if (first == UINT32_MAX)
                first = token;
            j->predecessor[token] = last;
            last = token;
        } while (used[cluster] < size && sl_rng_unit(&r) < c->stay);
        if (used[cluster] == size)
            live[k] = live[--n_live];
    }
    j->predecessor[first] = last;
    free(live);
    free(used);
    return true;
}

/* Does a draft layer know what follows the token? */
static bool is_known(const struct sl_synth_config *c, uint32_t token) {
    struct sl_rng r = stream(c->seed, STREAM_KNOWN, token);
    return sl_rng_below(&r, 100) < c->nextn_right;
}

/* The output matrix's number among the tensors, or `own` where it is the embedding: both agree on
 * all but what is known. */
static uint64_t output_of(const struct job *j, uint64_t own) {
    for (uint32_t i = 0; i < j->plan.n; i++)
        if (j->plan.tensors[i].fill == SL_FILL_SUCCESSOR)
            return i;
    return own;
}

static void structured_row(const struct job *j, const struct sl_synth_tensor *t, uint64_t tensor,
                           uint64_t row, float *v, float *scratch) {
    const struct sl_synth_config *c = j->config;
    struct sl_rng r = stream(c->seed, t->fill == SL_FILL_SOME ? output_of(j, tensor) : tensor, row);
    uint64_t n = t->ne[0];
    switch (t->fill) {
    case SL_FILL_EMBEDDING:
        embedding(c, (uint32_t)row, v);
        break;
    case SL_FILL_SUCCESSOR:
    case SL_FILL_SOME: {
        uint32_t before = j->predecessor[row];
        if (t->fill == SL_FILL_SOME && before != UINT32_MAX && !is_known(c, before))
            before = UINT32_MAX;
        for (uint64_t i = 0; i < n; i++)
            v[i] = t->std * unit(&r);
        if (before != UINT32_MAX) {
            /* What a draft layer knows must be as clear to the model, whose layers add more. */
            float logit = c->nextn_right ? 40 * successor_logit : successor_logit;
            embedding(c, before, scratch);
            for (uint64_t i = 1; i < n; i++)
                v[i] += logit / (float)n * scratch[i];
        }
        break;
    }
    case SL_FILL_ROUTER: {
        struct sl_rng pop = stream(c->seed, STREAM_POPULARITY + tensor, row);
        for (uint64_t i = 0; i < n; i++)
            v[i] = t->std * unit(&r);
        /* The sum of three uniforms is near enough to a normal. */
        float g = (unit(&pop) + unit(&pop) + unit(&pop)) * 0.57735f;
        v[0] = c->skew * t->std * sqrtf((float)n) / embedding_constant * g;
        break;
    }
    case SL_FILL_NORM:
        for (uint64_t i = 0; i < n; i++)
            v[i] = 1 + t->std * unit(&r);
        break;
    case SL_FILL_FIRST_HALF:
        memset(v, 0, n * sizeof *v);
        v[row] = 1;
        break;
    case SL_FILL_ROPE_FREQS:
        /* Divisors 1 for short wavelengths, 8 for long ones, a ramp between. */
        for (uint64_t i = 0; i < n; i++) {
            float x = ((float)i / (float)n - 0.4f) / 0.3f;
            v[i] = 1 + 7 * fminf(fmaxf(x, 0), 1);
        }
        break;
    case SL_FILL_DECAY:
        for (uint64_t i = 0; i < n; i++)
            v[i] = -0.02f * expf(2.2f * (unit(&r) + 1.7320508f)); /* to -40 */
        break;
    case SL_FILL_GROWTH:
        for (uint64_t i = 0; i < n; i++)
            v[i] = 0.1f * expf(1.1f * (unit(&r) + 1.7320508f)); /* to 4.5 */
        break;
    case SL_FILL_TABLE:
        for (uint64_t i = 0; i < n; i++) {
            uint64_t k = 0;
            v[i] = (float)sl_rng_below(&r, c->n_expert);
            while (k < i && v[k] != v[i])
                k++;
            i -= k < i; /* it is there already */
        }
        break;
    case SL_FILL_RANDOM:
        break;
    }
}

static void fill_row(const struct job *j, uint64_t tensor, uint64_t row, uint8_t *out, float *v,
                     float *scratch) {
    const struct sl_synth_tensor *t = &j->plan.tensors[tensor];
    if (t->fill != SL_FILL_RANDOM) {
        structured_row(j, t, tensor, row, v, scratch);
        if (sl_synth_encode_row(t->dtype, v, out, t->ne[0]))
            return;
    }
    struct sl_rng r = stream(j->config->seed, tensor, row);
    sl_synth_random_row(t->dtype, &r, t->std, out, t->ne[0]);
}

static uint64_t rows_per_chunk(const struct sl_synth_tensor *t) {
    uint64_t n = CHUNK_BYTES / sl_dtype_row_bytes(t->dtype, t->ne[0]);
    return n ? n : 1;
}

static void fail_job(struct job *j, enum sl_status status, int error_number) {
    int expected = SL_OK;
    if (atomic_compare_exchange_strong(&j->failed, &expected, (int)status))
        j->error_number = error_number;
}

static bool write_all(int fd, const uint8_t *p, size_t n, uint64_t offset) {
    while (n) {
        ssize_t w = pwrite(fd, p, n, (off_t)offset);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        p += w;
        n -= (size_t)w;
        offset += (uint64_t)w;
    }
    return true;
}

static void *worker(void *arg) {
    struct job *j = arg;
    uint64_t widest = 0, buf_bytes = 0;
    for (uint32_t i = 0; i < j->plan.n; i++) {
        const struct sl_synth_tensor *t = &j->plan.tensors[i];
        uint64_t bytes = rows_per_chunk(t) * sl_dtype_row_bytes(t->dtype, t->ne[0]);
        widest = t->ne[0] > widest ? t->ne[0] : widest;
        buf_bytes = bytes > buf_bytes ? bytes : buf_bytes;
    }
    uint8_t *buf = malloc(buf_bytes);
    float *v = malloc(2 * widest * sizeof *v);
    if (!buf || !v)
        fail_job(j, SL_ERR_NOMEM, 0);
    while (!atomic_load(&j->failed)) {
        uint64_t chunk = atomic_fetch_add(&j->next, 1);
        if (chunk >= j->n_chunks)
            break;
        uint32_t tensor = j->chunk_tensor[chunk];
        const struct sl_synth_tensor *t = &j->plan.tensors[tensor];
        uint64_t row = j->chunk_row[chunk], rows = sl_synth_rows(t) - row;
        if (rows > rows_per_chunk(t))
            rows = rows_per_chunk(t);
        size_t row_bytes = sl_dtype_row_bytes(t->dtype, t->ne[0]);
        for (uint64_t i = 0; i < rows; i++)
            fill_row(j, tensor, row + i, buf + i * row_bytes, v, v + widest);
        if (!write_all(j->files[t->file].fd, buf, rows * row_bytes,
                       t->offset_bytes + row * row_bytes)) {
            fail_job(j, SL_ERR_IO, errno);
            break;
        }
        uint64_t done = atomic_fetch_add(&j->done_bytes, rows * row_bytes) + rows * row_bytes;
        if (j->report && !j->report(j->ctx, done, j->total_bytes))
            fail_job(j, SL_ERR_CANCELED, 0);
    }
    free(buf);
    free(v);
    return NULL;
}

static bool make_chunks(struct job *j) {
    for (int pass = 0; pass < 2; pass++) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < j->plan.n; i++) {
            const struct sl_synth_tensor *t = &j->plan.tensors[i];
            for (uint64_t row = 0; row < sl_synth_rows(t); row += rows_per_chunk(t), n++)
                if (pass) {
                    j->chunk_tensor[n] = i;
                    j->chunk_row[n] = row;
                }
            if (!pass)
                j->total_bytes += sl_synth_rows(t) * sl_dtype_row_bytes(t->dtype, t->ne[0]);
        }
        if (!pass) {
            j->n_chunks = n;
            j->chunk_tensor = malloc(n * sizeof *j->chunk_tensor);
            j->chunk_row = malloc(n * sizeof *j->chunk_row);
            if (!j->chunk_tensor || !j->chunk_row)
                return false;
        }
    }
    return true;
}

/* Its own: limits of SwiGLU in all layers but the first two, small enough to show. */
static void write_ling3(struct sl_gguf_writer *w, const struct sl_synth_config *c) {
    static const char *const limits[] = {"swiglu_clamp_exp", "swiglu_clamp_shexp"};
    char key[96];
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    sl_gguf_write_bool(w, KEY("kda.safe_gate"), true);
    sl_gguf_write_f32(w, KEY("kda.gate_lower_bound"), -5);
#undef KEY
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%s.%s", c->arch, limits[i]);
        sl_gguf_array_begin_f32(w, key);
        for (uint32_t l = 0; l < c->n_layer + c->n_nextn; l++)
            sl_gguf_array_add_f32(w, l < 2 ? 0 : 0.6f + 0.2f * (float)i);
        sl_gguf_array_end(w);
    }
}

/* Its own: limits of SiTU small enough to show. */
static void write_k3(struct sl_gguf_writer *w, const struct sl_synth_config *c) {
    char key[96];
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    sl_gguf_write_f32(w, KEY("kda.gate_lower_bound"), -5);
    sl_gguf_write_f32(w, KEY("activation.situ_beta"), 1.25f);
    sl_gguf_write_f32(w, KEY("activation.situ_linear_beta"), 2);
    sl_gguf_write_u32(w, KEY("attn_res.block_size"), c->keep_every);
    if (c->n_expert_latent)
        sl_gguf_write_u32(w, KEY("expert_latent_length"), c->n_expert_latent);
#undef KEY
}

/* The other shape of latent attention, and which layers have it: the others have an indexer. */
static void write_note(struct sl_gguf_writer *w, const struct sl_synth_config *c) {
    char key[96];
    uint32_t latent = c->n_latent_window ? c->n_latent_window : c->n_latent;
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    sl_gguf_write_u32(w, KEY("attention.sliding_window"), c->window);
    sl_gguf_write_u32(w, KEY("attention.kv_lora_rank_swa"), latent);
    sl_gguf_write_u32(w, KEY("attention.key_length_swa"), latent + sl_synth_latent_rot(c));
    sl_gguf_write_u32(w, KEY("attention.value_length_swa"), latent);
    sl_gguf_write_u32(w, KEY("attention.key_length_mla_swa"),
                      c->head_dim_window ? c->head_dim_window : c->head_dim);
    sl_gguf_write_u32(w, KEY("attention.value_length_mla_swa"),
                      c->head_dim_v_window ? c->head_dim_v_window : c->head_dim_v);
    sl_gguf_array_begin_bool(w, KEY("attention.sliding_window_pattern"));
    for (uint32_t l = 0; l < c->n_layer; l++)
        sl_gguf_array_add_bool(w, sl_synth_note_window(c, l));
    sl_gguf_array_end(w);
    sl_gguf_array_begin_bool(w, KEY("attention.indexer.types"));
    for (uint32_t l = 0; l < c->n_layer; l++)
        sl_gguf_array_add_bool(w, !sl_synth_note_window(c, l));
    sl_gguf_array_end(w);
#undef KEY
}

/* What only deepseek4 has: layers' ratios, groups of the output, hyper-connections, limits of
 * SwiGLU small enough to show. */
static void write_v4(struct sl_gguf_writer *w, const struct sl_synth_config *c) {
    static const char *const limits[] = {"swiglu_clamp_exp", "swiglu_clamp_shexp"};
    char key[96];
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    sl_gguf_write_u32(w, KEY("attention.q_lora_rank"), sl_synth_lora_q(c));
    sl_gguf_write_u32(w, KEY("attention.indexer.head_count"), c->n_index_head);
    sl_gguf_write_u32(w, KEY("attention.indexer.key_length"), c->index_dim);
    sl_gguf_write_u32(w, KEY("attention.indexer.top_k"), c->n_index_top);
    sl_gguf_write_u32(w, KEY("attention.output_group_count"), c->n_group_out);
    sl_gguf_write_u32(w, KEY("attention.output_lora_rank"), c->n_lora_out);
    sl_gguf_write_f32(w, KEY("attention.compress_rope_freq_base"), 16 * c->rope_base);
    sl_gguf_array_begin_i32(w, KEY("attention.compress_ratios"));
    for (uint32_t l = 0; l < c->n_layer; l++)
        sl_gguf_array_add_i32(w, (int32_t)sl_synth_ratio(c, l));
    sl_gguf_array_end(w);
    sl_gguf_write_u32(w, KEY("hyper_connection.count"), SL_SYNTH_STREAMS);
    sl_gguf_write_u32(w, KEY("hyper_connection.sinkhorn_iterations"), 20);
    sl_gguf_write_f32(w, KEY("hyper_connection.epsilon"), 1e-6f);
    sl_gguf_write_u32(w, KEY("hash_layer_count"), c->n_layer_table);
    sl_gguf_write_u32(w, KEY("embedding_length_out"), SL_SYNTH_STREAMS * c->n_embd);
#undef KEY
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%s.%s", c->arch, limits[i]);
        sl_gguf_array_begin_f32(w, key);
        for (uint32_t l = 0; l < c->n_layer; l++)
            sl_gguf_array_add_f32(w, 0.8f + 0.2f * (float)i);
        sl_gguf_array_end(w);
    }
}

/* What only qwen4exp has: hyper-connections, an indexer, n-grams, which begin anew behind one token
 * of some hundred. */
static void write_flash(struct sl_gguf_writer *w, const struct sl_synth_config *c,
                        uint32_t traits) {
    static const uint64_t multipliers[SL_SYNTH_NGRAM] = {0x1d3f5a7b9c1dull, 0x0b85ec53a96bull,
                                                         0x15f0c9e3774full};
    uint32_t heads = sl_synth_ngram_heads(c), layer = sl_synth_ngram_layer(c);
    char key[96];
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    sl_gguf_write_u32(w, KEY("hyper_connection.count"), SL_SYNTH_STREAMS);
    sl_gguf_write_u32(w, KEY("hyper_connection.low_rank"), c->n_lora_out);
    sl_gguf_write_u32(w, KEY("attention.indexer.head_count"), c->n_index_head);
    sl_gguf_write_u32(w, KEY("attention.indexer.key_length"), c->index_dim);
    sl_gguf_write_u32(w, KEY("attention.indexer.top_k"), c->n_index_top);
    sl_gguf_array_begin_i32(w, KEY("attention.compress_ratios"));
    for (uint32_t l = 0; l < c->n_layer; l++)
        sl_gguf_array_add_i32(w, sl_synth_attends(c, traits, l) ? (int32_t)c->index_block : 0);
    sl_gguf_array_end(w);
    if (layer == c->n_layer)
        return;
    sl_gguf_array_begin_i32(w, KEY("ple.layers"));
    sl_gguf_array_add_i32(w, (int32_t)layer);
    sl_gguf_array_end(w);
    sl_gguf_write_u32(w, KEY("ple.ngram_size"), SL_SYNTH_NGRAM);
    sl_gguf_write_u32(w, KEY("ple.heads_per_ngram"), c->n_ngram_head);
    sl_gguf_write_u32(w, KEY("ple.conv_kernel"), 4);
    sl_gguf_write_u32(w, KEY("ple.eos_token_id"), 7);
    sl_gguf_write_u32(w, KEY("embedding_length_per_layer_input"), c->n_embd / heads);
    sl_gguf_array_begin_u64(w, KEY("ple.layer_multipliers"));
    for (uint32_t i = 0; i < SL_SYNTH_NGRAM; i++)
        sl_gguf_array_add_u64(w, multipliers[i]);
    sl_gguf_array_end(w);
    sl_gguf_array_begin_u64(w, KEY("ple.head_offsets"));
    for (uint32_t h = 0; h < heads; h++)
        sl_gguf_array_add_u64(w, (uint64_t)h * c->n_ngram_rows);
    sl_gguf_array_end(w);
    sl_gguf_array_begin_u64(w, KEY("ple.head_vocab_sizes"));
    for (uint32_t h = 0; h < heads; h++) /* the last row of some is not used */
        sl_gguf_array_add_u64(w, c->n_ngram_rows > 1 ? c->n_ngram_rows - h % 2 : 1);
    sl_gguf_array_end(w);
#undef KEY
}

/* An indexer that chooses blocks. */
static void write_blocks(struct sl_gguf_writer *w, const struct sl_synth_config *c) {
    char key[96];
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    sl_gguf_write_u32(w, KEY("attention.indexer.head_count"), c->n_head_kv);
    sl_gguf_write_u32(w, KEY("attention.indexer.key_length"), c->index_dim);
    sl_gguf_write_u32(w, KEY("attention.indexer.top_k"), c->n_index_top);
    sl_gguf_write_u32(w, KEY("attention.indexer.block_size"), c->index_block);
    sl_gguf_write_u32(w, KEY("attention.indexer.local_blocks"), c->n_index_local);
#undef KEY
}

/* Shapes of latent attention, in the newer form or the older. */
static void write_latent(struct sl_gguf_writer *w, const struct sl_synth_config *c) {
    char key[96];
    uint32_t rot = sl_synth_latent_rot(c);
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    uint32_t traits = sl_synth_family_find(c->arch)->traits;
    if (traits & SL_SYNTH_KDA) {
        sl_gguf_array_begin_i32(w, KEY("attention.head_count_kv"));
        for (uint32_t l = 0; l < c->n_layer + c->n_nextn; l++)
            sl_gguf_array_add_i32(w, !sl_synth_has_kda(c, traits, l));
        sl_gguf_array_end(w);
        sl_gguf_write_u32(w, KEY("ssm.conv_kernel"), c->n_taps);
        sl_gguf_write_u32(w, KEY("kda.head_dim"), c->delta_dim);
        if (traits & SL_SYNTH_LING3)
            write_ling3(w, c);
        if (traits & SL_SYNTH_K3)
            write_k3(w, c);
    } else {
        sl_gguf_write_u32(w, KEY("attention.head_count_kv"), c->joined_kv ? c->n_head : 1);
    }
    sl_gguf_write_u32(w, KEY("rope.dimension_count"), rot);
    sl_gguf_write_u32(w, KEY("attention.kv_lora_rank"), c->n_latent);
    if (sl_synth_lora_q(c))
        sl_gguf_write_u32(w, KEY("attention.q_lora_rank"), sl_synth_lora_q(c));
    sl_gguf_write_u32(w, KEY("attention.key_length"),
                      c->joined_kv ? c->head_dim : c->n_latent + rot);
    sl_gguf_write_u32(w, KEY("attention.value_length"),
                      c->joined_kv              ? c->head_dim_v
                      : traits & SL_SYNTH_LING3 ? c->delta_dim
                                                : c->n_latent);
    if (!c->joined_kv) {
        sl_gguf_write_u32(w, KEY("attention.key_length_mla"), c->head_dim);
        sl_gguf_write_u32(w, KEY("attention.value_length_mla"), c->head_dim_v);
    }
    if (traits & SL_SYNTH_INDEX) {
        sl_gguf_write_u32(w, KEY("attention.indexer.head_count"), c->n_index_head);
        sl_gguf_write_u32(w, KEY("attention.indexer.key_length"), c->index_dim);
        sl_gguf_write_u32(w, KEY("attention.indexer.top_k"), c->n_index_top);
    }
    if (c->index_every) {
        sl_gguf_array_begin_i32(w, KEY("attention.indexer.types"));
        for (uint32_t l = 0; l < c->n_layer; l++)
            sl_gguf_array_add_i32(w, sl_synth_has_indexer(c, traits, l));
        sl_gguf_array_end(w);
    }
    if (traits & SL_SYNTH_NOTE)
        write_note(w, c);
#undef KEY
}

/* Numbers of families with parts of their own: such that leaving one out shows. */
static void write_parts(struct sl_gguf_writer *w, const struct sl_synth_config *c, uint32_t parts) {
    char key[96];
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    if (parts & SL_SYNTH_PARALLEL)
        sl_gguf_write_f32(w, KEY("logit_scale"), 0.625f);
    if (parts & SL_SYNTH_DBRX)
        sl_gguf_write_f32(w, KEY("attention.clamp_kqv"), 1.5f);
    if (parts & SL_SYNTH_MIMO)
        sl_gguf_write_f32(w, KEY("attention.value_scale"), 0.7f);
    if (parts & SL_SYNTH_GRANITE) {
        sl_gguf_write_f32(w, KEY("embedding_scale"), 1.5f);
        sl_gguf_write_f32(w, KEY("residual_scale"), 0.7f);
        sl_gguf_write_f32(w, KEY("attention.scale"), 0.1f);
        sl_gguf_write_f32(w, KEY("logit_scale"), 1.25f);
    }
    if (c->temper) {
        sl_gguf_write_f32(w, KEY("attention.temperature_scale"), 0.5f);
        sl_gguf_write_u32(w, KEY("attention.temperature_length"), c->temper);
    }
    if (parts & SL_SYNTH_TEMPER)
        sl_gguf_write_f32(w, KEY("attention.temperature_scale"), 0.5f);
    if (parts & SL_SYNTH_CONV)
        sl_gguf_write_u32(w, KEY("shortconv.l_cache"), c->n_taps);
    if (parts & SL_SYNTH_MAMBA) {
        sl_gguf_write_bool(w, KEY("rope.scaling.finetuned"), !c->no_rope);
        sl_gguf_write_u32(w, KEY("ssm.conv_kernel"), c->n_taps);
        sl_gguf_write_u32(w, KEY("ssm.state_size"), c->n_state);
        sl_gguf_write_u32(w, KEY("ssm.group_count"), c->n_delta_head_k);
        sl_gguf_write_u32(w, KEY("ssm.time_step_rank"), c->n_delta_head);
        sl_gguf_write_u32(w, KEY("ssm.inner_size"), c->n_delta_head * c->delta_dim);
    }
    if (parts & SL_SYNTH_MAMBA1) {
        sl_gguf_write_u32(w, KEY("ssm.conv_kernel"), c->n_taps);
        sl_gguf_write_u32(w, KEY("ssm.state_size"), c->n_state);
        sl_gguf_write_u32(w, KEY("ssm.time_step_rank"), c->delta_dim);
        sl_gguf_write_u32(w, KEY("ssm.inner_size"), 2 * c->n_embd);
    }
    if (parts & SL_SYNTH_MAPLE)
        sl_gguf_write_f32(w, KEY("swiglu_clamp_exp"), 0.7f);
    if (parts & SL_SYNTH_PHI) {
        uint32_t original = c->n_ctx > 4096 ? 128 : c->n_ctx; /* beyond: the long factors */
        sl_gguf_write_f32(w, KEY("rope.scaling.attn_factor"), 1.19f);
        sl_gguf_write_u32(w, KEY("rope.scaling.original_context_length"), original);
    }
    if (parts & SL_SYNTH_STEP) {
        sl_gguf_write_f32(w, KEY("swiglu_clamp_exp"), 0.6f);
        sl_gguf_write_f32(w, KEY("swiglu_clamp_shexp"), 0.8f);
    }
    if (parts & SL_SYNTH_GROK) {
        sl_gguf_write_f32(w, KEY("embedding_scale"), 1.5f);
        sl_gguf_write_f32(w, KEY("attention.output_scale"), 0.15f);
        sl_gguf_write_f32(w, KEY("attn_logit_softcapping"), 3);
        sl_gguf_write_f32(w, KEY("router_logit_softcapping"), 30);
        if (c->logit_softcap > 0)
            sl_gguf_write_f32(w, KEY("final_logit_softcapping"), c->logit_softcap);
    }
#undef KEY
}

static void write_hparams(struct sl_gguf_writer *w, const struct sl_synth_config *c) {
    char key[96];
#define KEY(suffix) (snprintf(key, sizeof key, "%s." suffix, c->arch), key)
    sl_gguf_write_str(w, "general.architecture", c->arch);
    sl_gguf_write_str(w, "general.name", NAME);
    sl_gguf_write_u32(w, KEY("block_count"), c->n_layer + c->n_nextn);
    sl_gguf_write_u32(w, KEY("context_length"), c->n_ctx);
    sl_gguf_write_u32(w, KEY("embedding_length"), c->n_embd);
    uint32_t traits = sl_synth_family_find(c->arch)->traits;
    uint32_t parts = sl_synth_parts(c->arch);
    bool moe = c->n_expert > 0;
    /* Mixtral and OLMoE files name an expert's width feed_forward_length. */
    bool own_key = traits & SL_SYNTH_EXPERT_FF;
    if (traits & SL_SYNTH_ONE_PART) {
        sl_gguf_array_begin_i32(w, KEY("feed_forward_length"));
        for (uint32_t l = 0; l < c->n_layer + c->n_nextn; l++) {
            int32_t ff = (int32_t)(moe ? c->n_ff_expert : c->n_ff);
            sl_gguf_array_add_i32(w, sl_synth_part(c, l) == 'E' ? ff : 0);
        }
        sl_gguf_array_end(w);
        if (c->n_expert_latent)
            sl_gguf_write_u32(w, KEY("moe_latent_size"), c->n_expert_latent);
    } else {
        sl_gguf_write_u32(w, KEY("feed_forward_length"),
                          moe && !own_key ? c->n_ff_expert : c->n_ff);
    }
    if (c->n_head_window) {
        bool note = traits & SL_SYNTH_NOTE;
        uint32_t n = c->n_layer + (note || parts & SL_SYNTH_STEP ? c->n_nextn : 0);
        sl_gguf_array_begin_i32(w, KEY("attention.head_count"));
        for (uint32_t l = 0; l < n; l++)
            sl_gguf_array_add_i32(
                w, (int32_t)(l < c->n_layer || !note ? sl_synth_heads(c, l) : c->n_head_window));
        sl_gguf_array_end(w);
    } else {
        sl_gguf_write_u32(w, KEY("attention.head_count"), c->n_head);
    }
    if (traits & SL_SYNTH_LATENT) {
        write_latent(w, c);
    } else if (c->n_head_kv_odd || c->n_head_kv_window || parts & SL_SYNTH_KEYLESS) {
        bool none = parts & SL_SYNTH_KEYLESS; /* of layers without attention */
        sl_gguf_array_begin_i32(w, KEY("attention.head_count_kv"));
        uint32_t n_kv = c->n_layer + (traits & SL_SYNTH_ONE_PART ? c->n_nextn : 0);
        for (uint32_t l = 0; l < n_kv; l++)
            sl_gguf_array_add_i32(
                w, none && !sl_synth_attends(c, traits, l) ? 0 : (int32_t)sl_synth_kv_heads(c, l));
        sl_gguf_array_end(w);
    } else {
        sl_gguf_write_u32(w, KEY("attention.head_count_kv"), sl_synth_kv_heads(c, 0));
    }
    if (!(traits & SL_SYNTH_LATENT)) {
        sl_gguf_write_u32(w, KEY("attention.key_length"), c->head_dim);
        sl_gguf_write_u32(w, KEY("attention.value_length"),
                          parts & SL_SYNTH_MIMO ? c->head_dim_v : c->head_dim);
        sl_gguf_write_u32(w, KEY("rope.dimension_count"),
                          traits & SL_SYNTH_V4 ? sl_synth_latent_rot(c) : sl_synth_rot(c));
    }
    if (parts & SL_SYNTH_LAYER_NORM || traits & SL_SYNTH_ONE_PART)
        sl_gguf_write_f32(w, KEY("attention.layer_norm_epsilon"), 1e-5f);
    else
        sl_gguf_write_f32(w, KEY("attention.layer_norm_rms_epsilon"), 1e-6f);
    write_parts(w, c, parts);
    if (traits & SL_SYNTH_BLOCKS)
        write_blocks(w, c);
    if (traits & SL_SYNTH_V4)
        write_v4(w, c);
    if (traits & SL_SYNTH_FLASH)
        write_flash(w, c, traits);
    sl_gguf_write_f32(w, KEY("rope.freq_base"), c->rope_base);
    if (c->rope_base_window > 0 || traits & SL_SYNTH_NOTE)
        sl_gguf_write_f32(w, KEY("rope.freq_base_swa"),
                          c->rope_base_window > 0 ? c->rope_base_window : c->rope_base);
    if (traits & SL_SYNTH_GEMMA4) {
        uint32_t dim = c->head_dim_window ? c->head_dim_window : c->head_dim;
        sl_gguf_write_u32(w, KEY("attention.key_length_swa"), dim);
        sl_gguf_write_u32(w, KEY("attention.value_length_swa"), dim);
        sl_gguf_write_u32(w, KEY("rope.dimension_count_swa"), dim);
        sl_gguf_write_u32(w, KEY("embedding_length_per_layer_input"), c->n_embd_layer);
        sl_gguf_write_u32(w, KEY("attention.shared_kv_layers"), c->n_shared_kv);
        if (c->logit_softcap > 0)
            sl_gguf_write_f32(w, KEY("final_logit_softcapping"), c->logit_softcap);
        sl_gguf_array_begin_bool(w, KEY("attention.sliding_window_pattern"));
        for (uint32_t l = 0; l < c->n_layer; l++)
            sl_gguf_array_add_bool(w, sl_synth_has_window(c, l));
        sl_gguf_array_end(w);
    }
    if (parts & SL_SYNTH_PATTERN &&
        (c->window_period || parts & (SL_SYNTH_MIMO | SL_SYNTH_STEP | SL_SYNTH_MAPLE))) {
        uint32_t n_draft = parts & SL_SYNTH_STEP ? c->n_nextn : 0;
        sl_gguf_array_begin_bool(w, KEY("attention.sliding_window_pattern"));
        for (uint32_t l = 0; l < c->n_layer + n_draft; l++)
            sl_gguf_array_add_bool(w, sl_synth_has_window(c, l));
        sl_gguf_array_end(w);
    }
    if (c->chunk)
        sl_gguf_write_u32(w, KEY("attention.sliding_window"), c->chunk);
    if (c->n_rot_window)
        sl_gguf_write_u32(w, KEY("rope.dimension_count_swa"), c->n_rot_window);
    if (traits & SL_SYNTH_WINDOW)
        sl_gguf_write_u32(w, KEY("attention.sliding_window"), c->window);
    if (c->n_nextn)
        sl_gguf_write_u32(w, KEY("nextn_predict_layers"), c->n_nextn);
    if (traits & SL_SYNTH_DELTA) {
        sl_gguf_write_u32(w, KEY("full_attention_interval"), c->attn_every);
        sl_gguf_write_u32(w, KEY("ssm.conv_kernel"), c->n_taps);
        sl_gguf_write_u32(w, KEY("ssm.state_size"), c->delta_dim);
        sl_gguf_write_u32(w, KEY("ssm.group_count"), c->n_delta_head_k);
        sl_gguf_write_u32(w, KEY("ssm.time_step_rank"), c->n_delta_head);
        sl_gguf_write_u32(w, KEY("ssm.inner_size"), c->n_delta_head * c->delta_dim);
    }
    if (traits & SL_SYNTH_SECTIONS || c->sections) {
        /* Time has what is over, height before width. */
        uint32_t n = sl_synth_rot(c) / 2;
        sl_gguf_array_begin_i32(w, KEY("rope.dimension_sections"));
        for (uint32_t i = 0; i < 4; i++)
            sl_gguf_array_add_i32(w, i < 3 ? (int32_t)((n + 2 - i) / 3) : 0);
        sl_gguf_array_end(w);
    }
    if (c->yarn_factor > 0) {
        sl_gguf_write_str(w, KEY("rope.scaling.type"), "yarn");
        sl_gguf_write_f32(w, KEY("rope.scaling.factor"), c->yarn_factor);
        if (c->yarn_log_mul > 0)
            sl_gguf_write_f32(w, KEY("rope.scaling.yarn_log_multiplier"), c->yarn_log_mul);
        sl_gguf_write_u32(w, KEY("rope.scaling.original_context_length"),
                          (uint32_t)((float)c->n_ctx / c->yarn_factor));
    }
    if (moe) {
        if (c->n_each) {
            sl_gguf_array_begin_i32(w, KEY("expert_count"));
            for (uint32_t l = 0; l < c->n_layer + c->n_nextn; l++)
                sl_gguf_array_add_i32(w, (int32_t)sl_synth_experts(c, l));
            sl_gguf_array_end(w);
        } else {
            sl_gguf_write_u32(w, KEY("expert_count"), c->n_expert);
        }
        if (c->n_expert_used_odd) {
            sl_gguf_array_begin_i32(w, KEY("expert_used_count"));
            for (uint32_t l = 0; l < c->n_layer + c->n_nextn; l++)
                sl_gguf_array_add_i32(w, (int32_t)sl_synth_used(c, l));
            sl_gguf_array_end(w);
        } else {
            sl_gguf_write_u32(w, KEY("expert_used_count"), c->n_expert_used);
        }
        if (c->n_group) {
            sl_gguf_write_u32(w, KEY("expert_group_count"), c->n_group);
            sl_gguf_write_u32(w, KEY("expert_group_used_count"), c->n_group_used);
        }
        if (traits & SL_SYNTH_ADJUGATE) {
            sl_gguf_write_u32(w, KEY("expert_chunk_feed_forward_length"), c->n_ff_adjugate);
            sl_gguf_write_u32(w, KEY("experts_per_group"), c->n_per_adjugate);
            sl_gguf_write_f32(w, KEY("expert_group_scale"), 0.05f);
        }
        if (own_key || parts & SL_SYNTH_BOTH_FF)
            sl_gguf_write_u32(w, KEY("expert_feed_forward_length"), c->n_ff_expert);
        if (traits & SL_SYNTH_LATENT) {
            sl_gguf_write_u32(w, KEY("expert_shared_count"), c->n_ff_shared / c->n_ff_expert);
            sl_gguf_write_u32(w, KEY("expert_gating_func"), sl_synth_sigmoid(c) ? 2 : 1);
            sl_gguf_write_bool(w, KEY("expert_weights_norm"), sl_synth_sigmoid(c));
        } else if (parts & SL_SYNTH_LLAMA4) {
            sl_gguf_write_u32(w, KEY("interleave_moe_layer_step"), c->moe_step ? c->moe_step : 1);
        } else if (parts & SL_SYNTH_COUNTED) {
            sl_gguf_write_u32(w, KEY("expert_shared_count"), c->n_ff_shared / c->n_ff_expert);
            if (parts & SL_SYNTH_SHARED_EACH)
                sl_gguf_write_u32(w, KEY("expert_shared_feed_forward_length"), c->n_ff_expert);
        } else if (traits & SL_SYNTH_SHARED && c->n_ff_shared) {
            sl_gguf_write_u32(w, KEY("expert_shared_feed_forward_length"), c->n_ff_shared);
        }
        if (parts & SL_SYNTH_SIGMOID) {
            sl_gguf_write_u32(w, KEY("expert_gating_func"), 2);
            sl_gguf_write_bool(w, KEY("expert_weights_norm"), true);
        } else if (traits & SL_SYNTH_V4) {
            sl_gguf_write_u32(w, KEY("expert_gating_func"), 4);
            sl_gguf_write_bool(w, KEY("expert_weights_norm"), true);
        } else if (parts & SL_SYNTH_SMALLTHINKER) {
            sl_gguf_write_u32(w, KEY("expert_gating_func"), 2);
        } else if (parts & SL_SYNTH_WEIGHTS_NORM) {
            sl_gguf_write_bool(w, KEY("expert_weights_norm"), true);
        }
        if (c->router_scale > 0 || traits & SL_SYNTH_V4)
            sl_gguf_write_f32(w, KEY("expert_weights_scale"),
                              c->router_scale > 0 ? c->router_scale : 1);
        if (traits & SL_SYNTH_DENSE_LEAD &&
            !(parts & (SL_SYNTH_MIMO | SL_SYNTH_STEP | SL_SYNTH_HY3))) {
            sl_gguf_write_u32(w, KEY("leading_dense_block_count"), c->n_layer_dense);
            if (!(traits & SL_SYNTH_LATENT) && !parts)
                sl_gguf_write_u32(w, KEY("interleave_moe_layer_step"), 1);
        }
    }
#undef KEY
    sl_synth_write_vocab(w, c->n_vocab);
}

static void file_name(const struct sl_synth_config *c, const char *path, uint32_t i, char *out,
                      size_t size) {
    if (c->n_split == 1)
        snprintf(out, size, "%s", path);
    else
        snprintf(out, size, "%s-%05u-of-%05u.gguf", path, i + 1, c->n_split);
}

/* Creates each file with its header, and turns tensor offsets into file offsets. */
/* Whether an earlier run wrote it: a model whose name says that it is synthetic. Every part has it
 * among its first keys. */
static bool is_synthetic(int fd, uint64_t size_bytes, const void *ctx) {
    static const char start[8] = "GGUF\3\0\0", key[] = "general.name";
    static const char value[] = "\10\0\0\0\11\0\0\0\0\0\0\0" NAME; /* a string of nine bytes */
    _Static_assert(sizeof NAME == 10, "as value says");
    char head[256], name[sizeof key + sizeof value - 2];
    (void)size_bytes;
    (void)ctx;
    ssize_t n = pread(fd, head, sizeof head, 0);
    memcpy(name, key, sizeof key - 1);
    memcpy(name + sizeof key - 1, value, sizeof value - 1);
    return n >= (ssize_t)sizeof start && memcmp(head, start, sizeof start) == 0 &&
           memmem(head, (size_t)n, name, sizeof name);
}

static enum sl_status open_part(struct job *j, uint32_t f, const char *name, struct sl_err *err) {
    enum sl_status status = sl_output_open(name, 0644, is_synthetic, NULL, &j->files[f], err);
    if (status == SL_OK && !j->files[f].regular)
        status = sl_fail(err, SL_ERR_IO, "%s: cannot be written: a model must be a file", name);
    return status;
}

static enum sl_status write_headers(struct job *j, const char *path, struct sl_err *err) {
    const struct sl_synth_config *c = j->config;
    enum sl_status status = SL_OK;
    for (uint32_t f = 0; f < c->n_split && !status; f++) {
        struct sl_gguf_writer w;
        sl_gguf_writer_init(&w);
        if (f == 0)
            write_hparams(&w, c);
        else
            sl_gguf_write_str(&w, "general.name", NAME);
        if (c->n_split > 1) {
            sl_gguf_write_u16(&w, "split.no", (uint16_t)f);
            sl_gguf_write_u16(&w, "split.count", (uint16_t)c->n_split);
            sl_gguf_write_i32(&w, "split.tensors.count", (int32_t)j->plan.n);
        }
        for (uint32_t i = 0; i < j->plan.n; i++) {
            struct sl_synth_tensor *t = &j->plan.tensors[i];
            t->file = (uint32_t)((uint64_t)i * c->n_split / j->plan.n);
            if (t->file == f)
                t->offset_bytes = sl_gguf_write_tensor(&w, t->name, t->dtype, t->n_dims, t->ne);
        }
        uint8_t *header = NULL;
        size_t n = 0;
        uint64_t data_bytes = w.data_bytes;
        status = sl_gguf_writer_finish(&w, &header, &n);
        sl_gguf_writer_release(&w);
        if (status)
            return sl_fail(err, status, "out of memory");
        char name[4096];
        file_name(c, path, f, name, sizeof name);
        status = open_part(j, f, name, err);
        if (!status && (!write_all(j->files[f].fd, header, n, 0) ||
                        ftruncate(j->files[f].fd, (off_t)(n + data_bytes))))
            status = sl_fail(err, SL_ERR_IO, "%s: cannot be written: %s", name, strerror(errno));
        free(header);
        for (uint32_t i = 0; i < j->plan.n; i++)
            if (j->plan.tensors[i].file == f)
                j->plan.tensors[i].offset_bytes += n;
    }
    return status;
}

static void run_workers(struct job *j) {
    pthread_t threads[MAX_THREADS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int n = cpus < 1 ? 1 : cpus > MAX_THREADS ? MAX_THREADS : (int)cpus, started = 0;
    while (started < n - 1 && pthread_create(&threads[started], NULL, worker, j) == 0)
        started++;
    worker(j);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* After a failure nothing is left: half a model is worse than none. */
static enum sl_status close_parts(struct job *j, const char *path, enum sl_status status,
                                  struct sl_err *err) {
    char name[4096];
    for (uint32_t i = 0; j->files && i < j->config->n_split; i++) {
        struct sl_output *f = &j->files[i];
        file_name(j->config, path, i, name, sizeof name);
        if (status && f->fd >= 0)
            sl_output_discard(f, name);
        if (f->fd < 0 || close(f->fd) == 0 || status)
            continue;
        status = sl_fail(err, SL_ERR_IO, "%s: cannot be written: %s", name, strerror(errno));
        unlink(name);
    }
    return status;
}

enum sl_status sl_synth_write(const struct sl_synth_config *config, const char *path,
                              bool (*report)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                              void *ctx, struct sl_err *err) {
    struct job j = {.config = config, .report = report, .ctx = ctx};
    enum sl_status status = sl_synth_plan(config, &j.plan, err);
    if (status) {
        free(j.plan.tensors);
        return status;
    }
    j.files = malloc(config->n_split * sizeof *j.files);
    for (uint32_t i = 0; j.files && i < config->n_split; i++)
        j.files[i].fd = -1;
    bool filled = !config->headers_only;
    if (!j.files || (filled && (!make_chunks(&j) || !make_cycle(&j))))
        status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
    if (!status)
        status = write_headers(&j, path, err);
    if (!status && filled) {
        run_workers(&j);
        status = (enum sl_status)atomic_load(&j.failed);
        if (status == SL_ERR_IO)
            sl_fail(err, status, "%s: cannot be written: %s", path, strerror(j.error_number));
        else if (status)
            sl_fail(err, status, "%s: %s", path, sl_status_text(status));
    }
    status = close_parts(&j, path, status, err);
    free(j.files);
    free(j.chunk_tensor);
    free(j.chunk_row);
    free(j.predecessor);
    free(j.plan.tensors);
    return status;
}
