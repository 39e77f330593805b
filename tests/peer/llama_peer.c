/* Runs a model in llama.cpp, for comparison with Sluice. Development only: links the prebuilt
 * library of the npm package node-llama-cpp, whose headers are taken from the source bundle in that
 * package.
 *
 *   llama_peer logits MODEL IDS OUT.npy THREADS     log-probabilities of every position, f32
 *   llama_peer bench MODEL THREADS PROMPT GEN REPS PARALLEL[,...]   JSON lines, tokens per second
 *   llama_peer tokenize MODEL TEXTFILE SPECIAL      ids, one line
 *
 * From the environment: GGML_DIR, the directory of the ggml backends; LLAMA_GPU_LAYERS (default 0),
 * how many layers a GPU gets; LLAMA_FLASH, 0 for attention whose sums are not in half precision;
 * LLAMA_UBATCH (default 512), rows of a prompt that it computes at once; LLAMA_DEPTH (default 0),
 * tokens before those that bench generates; LLAMA_CPU_MOE (default 0), how many layers' experts,
 * from the first, the CPU has, as --n-cpu-moe of llama.cpp's programs. */
#include "ggml-backend.h"
#include "llama.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void die(const char *what) {
    fprintf(stderr, "llama_peer: %s\n", what);
    exit(1);
}

static double now_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static uint32_t env_number(const char *name, uint32_t otherwise) {
    const char *s = getenv(name);
    return s ? (uint32_t)strtoul(s, NULL, 10) : otherwise;
}

static void quiet(enum ggml_log_level level, const char *text, void *ctx) {
    (void)ctx;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static void *read_file(const char *path, size_t *out_n) {
    FILE *f = fopen(path, "rb");
    if (!f)
        die(path);
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *p = malloc((size_t)n + 1);
    if (!p || fread(p, 1, (size_t)n, f) != (size_t)n)
        die(path);
    p[n] = 0;
    fclose(f);
    *out_n = (size_t)n;
    return p;
}

static struct llama_context *open_context(struct llama_model *model, int threads, uint32_t n_ctx,
                                          uint32_t n_batch, uint32_t n_seq) {
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = n_ctx;
    cp.n_batch = n_batch;
    cp.n_ubatch = env_number("LLAMA_UBATCH", 512);
    cp.n_seq_max = n_seq;
    cp.n_threads = threads;
    cp.n_threads_batch = threads;
    if (!env_number("LLAMA_FLASH", 1))
        cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *ctx = llama_init_from_model(model, cp);
    if (!ctx)
        die("cannot make a context");
    return ctx;
}

static void add(struct llama_batch *b, int32_t token, int32_t pos, int32_t seq, bool logits) {
    b->token[b->n_tokens] = token;
    b->pos[b->n_tokens] = pos;
    b->n_seq_id[b->n_tokens] = 1;
    b->seq_id[b->n_tokens][0] = seq;
    b->logits[b->n_tokens] = logits;
    b->n_tokens++;
}

static int logits(struct llama_model *model, char **argv) {
    size_t bytes;
    int32_t *ids = read_file(argv[0], &bytes);
    int n = (int)(bytes / 4);
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_context *ctx = open_context(model, atoi(argv[2]), (uint32_t)n + 8, 512, 1);
    FILE *f = fopen(argv[1], "wb");
    if (!f)
        die(argv[1]);
    char header[128];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int len = snprintf(header + 10, 117,
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", n, n_vocab);
    header[10 + len] = ' ';
    header[127] = '\n';
    fwrite(header, 1, 128, f);
    float *row = malloc((size_t)n_vocab * sizeof *row);
    struct llama_batch b = llama_batch_init(512, 0, 1);
    for (int i = 0; i < n; i += 512) {
        b.n_tokens = 0;
        for (int j = i; j < n && j < i + 512; j++)
            add(&b, ids[j], j, 0, true);
        if (llama_decode(ctx, b))
            die("llama_decode failed");
        for (int j = 0; j < b.n_tokens; j++) {
            const float *l = llama_get_logits_ith(ctx, j);
            double max = -INFINITY, sum = 0;
            for (int t = 0; t < n_vocab; t++)
                max = l[t] > max ? l[t] : max;
            for (int t = 0; t < n_vocab; t++)
                sum += exp(l[t] - max);
            for (int t = 0; t < n_vocab; t++)
                row[t] = (float)(l[t] - max - log(sum));
            fwrite(row, sizeof *row, (size_t)n_vocab, f);
        }
    }
    return fclose(f);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int bench(struct llama_model *model, char **argv) {
    int threads = atoi(argv[0]), n_prompt = atoi(argv[1]), n_gen = atoi(argv[2]);
    int reps = atoi(argv[3]);
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    double *t = malloc((size_t)reps * sizeof *t);
    struct llama_batch b = llama_batch_init(n_prompt > 512 ? n_prompt : 512, 0, 1);
    for (char *p = strtok(argv[4], ","); p; p = strtok(NULL, ",")) {
        int par = atoi(p);
        int depth = (int)env_number("LLAMA_DEPTH", 0);
        int n_each = n_prompt > n_gen + depth ? n_prompt : n_gen + depth;
        struct llama_context *ctx = open_context(
            model, threads, (uint32_t)(n_each + 32) * (uint32_t)par, 2048, (uint32_t)par);
        /* r = -1 warms up. */
        for (int r = -1; n_prompt > 0 && par == 1 && r < reps; r++) {
            llama_memory_clear(llama_get_memory(ctx), true);
            b.n_tokens = 0;
            srand(1);
            int n = r < 0 ? 16 : n_prompt;
            for (int i = 0; i < n; i++)
                add(&b, rand() % n_vocab, i, 0, i == n - 1);
            double start = now_s();
            if (llama_decode(ctx, b))
                die("llama_decode failed");
            llama_synchronize(ctx);
            if (r >= 0)
                t[r] = n_prompt / (now_s() - start);
        }
        if (n_prompt > 0 && par == 1) {
            qsort(t, (size_t)reps, sizeof *t, compare);
            printf("{\"engine\":\"llama.cpp\",\"test\":\"pp%d\",\"tps\":%.3f}\n", n_prompt,
                   t[reps / 2]);
            fflush(stdout);
        }
        for (int r = -1; n_gen > 0 && r < reps; r++) {
            llama_memory_clear(llama_get_memory(ctx), true);
            int n = r < 0 ? 2 : n_gen;
            srand(2);
            for (int s = 0; s < par; s++)
                for (int at = 0; at < depth; at += b.n_tokens) {
                    b.n_tokens = 0;
                    for (int i = at; i < depth && i < at + 512; i++)
                        add(&b, rand() % n_vocab, i, s, false);
                    if (llama_decode(ctx, b))
                        die("llama_decode failed");
                }
            llama_synchronize(ctx);
            double start = now_s();
            for (int i = 0; i < n; i++) {
                b.n_tokens = 0;
                for (int s = 0; s < par; s++)
                    add(&b, rand() % n_vocab, depth + i, s, true);
                if (llama_decode(ctx, b))
                    die("llama_decode failed");
                llama_synchronize(ctx);
            }
            if (r >= 0)
                t[r] = (double)n * par / (now_s() - start);
        }
        if (n_gen > 0) {
            qsort(t, (size_t)reps, sizeof *t, compare);
            printf("{\"engine\":\"llama.cpp\",\"test\":\"tg%d@%d\",\"tps\":%.3f}\n", n_gen, par,
                   t[reps / 2]);
            fflush(stdout);
        }
        llama_free(ctx);
    }
    return 0;
}

/* Tensors of the first n layers' experts stay in the CPU's memory: ended by an empty entry. */
static struct llama_model_tensor_buft_override *experts_on_cpu(uint32_t n) {
    struct llama_model_tensor_buft_override *of = calloc(n + 1, sizeof *of);
    for (uint32_t i = 0; of && i < n; i++) {
        char *pattern = malloc(64);
        if (!pattern)
            die("out of memory");
        snprintf(pattern, 64, "blk\\.%u\\.ffn_(up|down|gate|gate_up)_(ch|)exps", i);
        of[i].pattern = pattern;
        of[i].buft = ggml_backend_cpu_buffer_type();
    }
    return of;
}

static int tokenize(struct llama_model *model, char **argv) {
    size_t n;
    char *text = read_file(argv[0], &n);
    int32_t max = (int32_t)n + 16;
    llama_token *ids = malloc((size_t)max * sizeof *ids);
    int32_t got = llama_tokenize(llama_model_get_vocab(model), text, (int32_t)n, ids, max, false,
                                 atoi(argv[1]) != 0);
    if (got < 0)
        die("llama_tokenize failed");
    for (int32_t i = 0; i < got; i++)
        printf(i ? " %d" : "%d", ids[i]);
    putchar('\n');
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 5)
        die("usage: see the head of this file");
    llama_log_set(quiet, NULL);
    ggml_backend_load_all_from_path(getenv("GGML_DIR"));
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = (int32_t)env_number("LLAMA_GPU_LAYERS", 0);
    mp.vocab_only = strcmp(argv[1], "tokenize") == 0;
    uint32_t n_cpu_moe = env_number("LLAMA_CPU_MOE", 0);
    if (n_cpu_moe)
        mp.tensor_buft_overrides = experts_on_cpu(n_cpu_moe);
    const char *repack = getenv("LLAMA_REPACK");
    if (repack && strcmp(repack, "0") == 0)
        mp.use_extra_bufts = false;
    struct llama_model *model = llama_model_load_from_file(argv[2], mp);
    if (!model)
        die("cannot load the model");
    if (strcmp(argv[1], "logits") == 0 && argc == 6)
        return logits(model, argv + 3);
    if (strcmp(argv[1], "bench") == 0 && argc == 8)
        return bench(model, argv + 3);
    if (strcmp(argv[1], "tokenize") == 0 && argc == 5)
        return tokenize(model, argv + 3);
    die("usage: see the head of this file");
    return 1;
}
