/* sluice score: perplexity and log-probabilities of a text. */
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "cli/options/engine_options.h"
#include "cli/options/open_engine.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/output.h"
#include "engine/sample/sampler.h"
#include "model/tokenizer/tokenizer.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_INPUT_BYTES (256u << 20)

struct options {
    const char *model, *ids, *text, *logprobs, *cpu_isa;
    uint32_t threads, ctx, batch;
    bool json, no_bos;
};

struct scoring {
    const struct options *o;
    const uint32_t *ids; /* of the whole text */
    uint32_t n_ids, n_vocab;
    uint32_t first, n_chunk; /* the chunk being scored */
    FILE *npy;
    struct sl_output out; /* what npy writes to */
    float *row;           /* [n_vocab] */
    double nll;           /* sum of -log p over the scored tokens */
    double nll2;          /* of their squares */
    uint32_t scored;      /* tokens that had a predecessor in their chunk */
    bool write_failed;
    uint64_t shown_ns;
};

static bool fail(const char *option, const char *path, const char *what) {
    fprintf(stderr, "sluice score: %s %s: %s: %s\n", option, path, what, strerror(errno));
    return false;
}

static bool read_file(const char *option, const char *path, char **out, size_t *out_n) {
    FILE *f = fopen(path, "rb");
    struct stat info;
    if (!f)
        return fail(option, path, "cannot be opened");
    if (fstat(fileno(f), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MAX_INPUT_BYTES) {
        fprintf(stderr, "sluice score: %s %s: must be a regular file of at most %u MiB\n", option,
                path, MAX_INPUT_BYTES >> 20);
        fclose(f);
        return false;
    }
    *out_n = (size_t)info.st_size;
    *out = malloc(*out_n + 1);
    bool ok = *out && fread(*out, 1, *out_n, f) == *out_n;
    fclose(f);
    if (!ok) {
        free(*out);
        return fail(option, path, "cannot be read");
    }
    return true;
}

/* Little-endian int32. */
static bool read_ids(const char *path, struct sl_ids *out) {
    char *bytes;
    size_t n;
    if (!read_file("--ids", path, &bytes, &n))
        return false;
    out->n = out->cap = n / 4;
    out->ids = malloc(n + 4);
    if (n % 4 || !out->ids) {
        fprintf(stderr,
                "sluice score: --ids %s: has %zu bytes: must be int32 values, 4 bytes each\n", path,
                n);
        free(bytes);
        return false;
    }
    for (size_t i = 0; i < out->n; i++) {
        const unsigned char *b = (const unsigned char *)bytes + 4 * i;
        out->ids[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    }
    free(bytes);
    return true;
}

static bool encode_text(const struct options *o, const struct sl_model *model, struct sl_ids *out) {
    char *text = NULL;
    size_t n;
    struct sl_tokenizer *tok = NULL;
    struct sl_err err;
    if (!read_file("--text", o->text, &text, &n))
        return false;
    enum sl_status status = sl_tokenizer_create(model->gguf, &tok, &err);
    if (status == SL_OK) {
        status = sl_tokenizer_encode(tok, text, n, o->no_bos ? 0 : SL_ENCODE_ADD_SPECIAL, out);
        if (status != SL_OK)
            sl_fail(&err, status, "encoding %s: %s", o->text, sl_status_text(status));
    }
    sl_tokenizer_destroy(&tok);
    free(text);
    if (status != SL_OK)
        fprintf(stderr, "sluice score: %s\n", err.text);
    return status == SL_OK;
}

/* NumPy's format, version 1.0, with a header of HEAD_BYTES where others write 128: the data starts
 * at a page boundary, and our own files can be recognised by it. Source: numpy.lib.format. */
#define HEAD_BYTES 4096u
#define NPY_SHAPE  "{'descr': '<f4', 'fortran_order': False, 'shape': ("
static const char npy_magic[10] = {(char)0x93,
                                   'N',
                                   'U',
                                   'M',
                                   'P',
                                   'Y',
                                   1,
                                   0,
                                   (char)((HEAD_BYTES - 10) & 255),
                                   (char)((HEAD_BYTES - 10) >> 8)};

static bool write_npy_header(FILE *f, uint32_t rows, uint32_t cols) {
    char head[HEAD_BYTES];
    memset(head, ' ', sizeof head);
    memcpy(head, npy_magic, sizeof npy_magic);
    int n = snprintf(head + sizeof npy_magic, 128, NPY_SHAPE "%" PRIu32 ", %" PRIu32 "), }", rows,
                     cols);
    head[sizeof npy_magic + (size_t)n] = ' '; /* no NUL */
    head[sizeof head - 1] = '\n';
    return fwrite(head, sizeof head, 1, f) == 1;
}

static bool is_logprobs(int fd, uint64_t size_bytes, const void *ctx) {
    (void)size_bytes;
    (void)ctx;
    return sl_file_has(fd, 0, npy_magic, sizeof npy_magic) &&
           sl_file_has(fd, sizeof npy_magic, NPY_SHAPE, sizeof NPY_SHAPE - 1);
}

static bool on_logits(void *ctx, uint32_t pos, const float *logits) {
    struct scoring *s = ctx;
    double lse = sl_log_sum_exp(logits, NULL, s->n_vocab);
    if (pos + 1 < s->n_chunk) {
        double nll = lse - (double)logits[s->ids[s->first + pos + 1]];
        s->nll += nll;
        s->nll2 += nll * nll;
        s->scored++;
    }
    if (s->npy) {
        for (uint32_t i = 0; i < s->n_vocab; i++)
            s->row[i] = (float)((double)logits[i] - lse);
        if (fwrite(s->row, sizeof(float), s->n_vocab, s->npy) != s->n_vocab) {
            s->write_failed = true;
            return false;
        }
    }
    uint64_t now = sl_now_ns();
    if (now - s->shown_ns > 100000000u) {
        s->shown_ns = now;
        sl_show_progress("scored %u of %u tokens, perplexity %.4f", s->first + pos + 1, s->n_ids,
                         s->scored ? exp(s->nll / s->scored) : 0.0);
    }
    return true;
}

static bool score_chunks(struct scoring *s, struct sl_engine *engine, uint32_t ctx) {
    for (s->first = 0; s->first < s->n_ids; s->first += s->n_chunk) {
        struct sl_err err = {{0}};
        s->n_chunk = s->n_ids - s->first < ctx ? s->n_ids - s->first : ctx;
        enum sl_status status =
            sl_engine_score(engine, s->ids + s->first, s->n_chunk, on_logits, s, &err);
        if (status != SL_OK) {
            sl_show_progress("%s", "");
            if (s->write_failed)
                return fail("--logprobs", s->o->logprobs, "cannot be written");
            fprintf(stderr, "sluice score: %s\n", err.text);
            return false;
        }
    }
    sl_show_progress("%s", "");
    return true;
}

static int print_result(const struct scoring *s, const struct options *o, uint32_t ctx,
                        double seconds) {
    double mean = s->scored ? s->nll / s->scored : 0;
    double var = s->scored > 1 ? (s->nll2 / s->scored - mean * mean) / (s->scored - 1) : 0;
    double ppl = exp(mean), error = ppl * sqrt(var > 0 ? var : 0);
    if (o->json) {
        json_t *j =
            json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "n_tokens", (json_int_t)s->n_ids,
                      "n_scored", (json_int_t)s->scored, "ctx", (json_int_t)ctx, "mean_nll", mean,
                      "perplexity", ppl, "perplexity_error", error, "seconds", seconds);
        int rc = !j || json_dumpf(j, stdout, JSON_INDENT(2)) != 0;
        json_decref(j);
        putchar('\n');
        return rc;
    }
    printf("%u tokens, %u scored, in %.2f s (%.1f tokens/s)\n", s->n_ids, s->scored, seconds,
           s->n_ids / seconds);
    if (s->scored)
        printf("perplexity %.4f +/- %.4f   mean -log p %.6f\n", ppl, error, mean);
    if (o->logprobs)
        printf("log-probabilities: %s, float32 [%u, %u]\n", o->logprobs, s->n_ids, s->n_vocab);
    return fflush(stdout) != 0;
}

static bool open_npy(struct scoring *s) {
    const char *path = s->o->logprobs;
    struct sl_err err;
    if (sl_output_open(path, 0666, is_logprobs, NULL, &s->out, &err) != SL_OK) {
        fprintf(stderr, "sluice score: --logprobs %s\n", err.text);
        return false;
    }
    int fd = dup(s->out.fd); /* the stream's own; out's stays open to undo what was written */
    s->row = malloc(s->n_vocab * sizeof *s->row);
    s->npy = fd >= 0 && s->row ? fdopen(fd, "wb") : NULL;
    if (!s->npy && fd >= 0)
        close(fd);
    return (s->npy && write_npy_header(s->npy, s->n_ids, s->n_vocab)) ||
           fail("--logprobs", path, "cannot be written");
}

/* False after a failed write. Half a matrix is worse than none. */
static bool close_npy(struct scoring *s, bool whole) {
    bool ok = !s->npy || fclose(s->npy) == 0;
    if (!ok && whole)
        fail("--logprobs", s->o->logprobs, "cannot be written");
    if (!ok || !whole)
        sl_output_discard(&s->out, s->o->logprobs);
    if (s->out.fd >= 0)
        close(s->out.fd);
    return ok;
}

static int score(const struct options *o, struct sl_opened *opened, const struct sl_ids *ids,
                 const struct sl_engine_options *memory, const struct sl_engine_config *config) {
    struct scoring s = {.o = o,
                        .ids = ids->ids,
                        .n_ids = (uint32_t)ids->n,
                        .n_vocab = opened->model->hp.n_vocab,
                        .out = {.fd = -1}};
    if (!sl_start_engine("score", memory, config, NULL, opened))
        return 1;
    uint64_t start = sl_now_ns();
    bool ok =
        (!o->logprobs || open_npy(&s)) && score_chunks(&s, opened->engine, config->ctx_tokens);
    double seconds = (double)(sl_now_ns() - start) * 1e-9;
    if (!close_npy(&s, ok))
        ok = false;
    free(s.row);
    return ok ? print_result(&s, o, config->ctx_tokens, seconds) : 1;
}

int sl_cmd_score(int argc, char **argv) {
    struct options o = {0};
    struct sl_engine_options memory = SL_ENGINE_OPTIONS_DEFAULT;
    bool verbose = false;
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "FILE", &o.model,
         "the GGUF file (also as the only argument)", false},
        {SL_ARG_HEADING, 0, "Text (one of the two)", NULL, NULL, NULL, false},
        {SL_ARG_INPUT, 0, "--ids", "FILE", &o.ids, "token ids, little-endian int32", false},
        {SL_ARG_INPUT, 0, "--text", "FILE", &o.text, "text, any bytes", false},
        {SL_ARG_FLAG, 0, "--no-bos", NULL, &o.no_bos,
         "leave out the BOS that the model asks for in front of a text", false},
        {SL_ARG_HEADING, 0, "Output", NULL, NULL, NULL, false},
        {SL_ARG_OUTPUT, 0, "--logprobs", "OUT.npy", &o.logprobs,
         "write the log-probabilities after every position, float32 [positions, vocabulary]",
         false},
        {SL_ARG_FLAG, 0, "--json", NULL, &o.json, "print a JSON object", false},
        {SL_ARG_HEADING, 0, "Engine", NULL, NULL, NULL, false},
        {SL_ARG_U32, 't', "--threads", "N", &o.threads, "threads; 0 = all CPUs (default 0)", false},
        {SL_ARG_U32, 'c', "--ctx", "N", &o.ctx,
         "score in pieces of N tokens, each without the text before it (default: the text's length "
         "or the model's context, whichever is less)",
         false},
        {SL_ARG_U32, 'b', "--batch", "N", &o.batch, "tokens computed at once (default 512)", false},
        {SL_ARG_STRING, 0, "--cpu-isa", "SET", &o.cpu_isa,
         "c, avx2, avx512 or vnni; all give the same numbers (default: the best)", false},
        {SL_ARG_FLAG, 'v', "--verbose", NULL, &verbose, "log what is loaded", false},
        SL_ENGINE_OPTIONS(&memory),
    };
    static const struct sl_arg_limit limits[] = {
        SL_ENGINE_LIMITS,
    };
    const struct sl_command command = {
        .name = "score",
        .about = "Computes perplexity and log-probabilities of a text.",
        .usage = "sluice score -m MODEL (--ids FILE | --text FILE) [options]",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .help_of = sl_engine_options_help,
        .limits = limits,
        .n_limits = SL_COUNTOF(limits),
        .model = &o.model,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (!o.ids == !o.text)
        return sl_usage_error("score", "give one of --ids and --text");
    struct sl_engine_config config = {.n_threads = o.threads,
                                      .parallel = 1,
                                      .queue_max = 1,
                                      .batch_tokens = o.batch,
                                      .cpu_isa = o.cpu_isa};
    if (!sl_engine_options_apply("score", &memory, &config))
        return 2;
    sl_log_set_level(verbose ? SL_LOG_DEBUG : SL_LOG_WARN);
    struct sl_opened opened;
    struct sl_ids ids = {0};
    if (!sl_open_model("score", o.model, &opened))
        return 1;
    rc = 1;
    if (!(o.ids ? read_ids(o.ids, &ids) : encode_text(&o, opened.model, &ids)))
        goto out;
    if (!ids.n || ids.n > UINT32_MAX / 2) {
        fprintf(stderr, "sluice score: %zu tokens: nothing to score, or too much\n", ids.n);
        goto out;
    }
    uint32_t trained = opened.model->hp.n_ctx_train ? opened.model->hp.n_ctx_train : 8192;
    uint32_t limit = o.ctx ? o.ctx : trained;
    config.ctx_tokens = ids.n < limit ? (uint32_t)ids.n : limit;
    if (config.ctx_tokens < 2)
        config.ctx_tokens = 2;
    rc = score(&o, &opened, &ids, &memory, &config);
out:
    sl_ids_release(&ids);
    sl_close_engine(&opened);
    return rc;
}
