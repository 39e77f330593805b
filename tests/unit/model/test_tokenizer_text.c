/* The tokenizer on text: published vocabularies with their expected ids, where they are, and time
 * on texts chosen to be slow. */
#include "model/tokenizer/pretokenize.h"
#include "tests/support/vocab.h"

#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define BIG_BYTES  50000u /* for slower builds, in which this takes the time of a megabyte */
#define RULE_BYTES 10000u
#define MB_BYTES   BIG_BYTES
#else
#define MB_BYTES   1000000u
/* Enough to show what grows with the square: a nanosecond for each pair is 90 s, and 2.5. */
#define BIG_BYTES  300000u
#define RULE_BYTES 50000u /* of each rule */
#endif

static double cpu_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* others may be using the machine */
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* No text takes long: 5 s for a megabyte, and in proportion. Each of these is the worst for some
 * rule. */
static void check_fast(const struct sl_tokenizer *t, size_t n_bytes) {
    static const char *const units[] = {
        " ",
        "a",
        "A",
        "\t",
        "\n",
        "\xcc\x81",
        "\xe4\xb8\xad",
        "7",
        "!",
        "<|",
        "'s",
        "<|im_start",
        "aB",
        "e\xcc\x81",
        "\r\n \t",
        "\xff",
        "\x01",
        "\xe3\x80\x80",
        "\xf0\x9f\x98\x80",
        "ab",
    };
    enum { N_UNITS = sizeof units / sizeof *units };
    char *text = malloc(n_bytes + 64);
    srand(11);
    for (size_t k = 0; k < N_UNITS + 3; k++) {
        size_t unit = k < N_UNITS ? strlen(units[k]) : 1;
        for (size_t i = 0; i < n_bytes; i++)
            text[i] = k < N_UNITS ? units[k][i % unit] : k == N_UNITS ? (char)rand() : " 7"[k % 2];
        if (k > N_UNITS)
            memcpy(text + n_bytes - 3, "\xe4\xb8\xad", 3); /* the run ends in something else */
        struct sl_ids ids = {0};
        double start = cpu_s();
        assert_int_equal(sl_tokenizer_encode(t, text, n_bytes, SL_ENCODE_PARSE_SPECIAL, &ids),
                         SL_OK);
        double seconds = cpu_s() - start;
        if (seconds > 5.0 * (double)n_bytes / MB_BYTES)
            fail_msg("%s: text %zu took %.1f s", sl_tokenizer_kind(t), k, seconds);
        assert_true(ids.n > 0);
        sl_ids_release(&ids);
    }
    free(text);
}

static void test_fast_small(void **state) {
    (void)state;
    /* One name for each rule, and SentencePiece. */
    for (uint32_t r = 0; r <= sl_pretok_n_rules; r++) {
        struct vocab v;
        bool raw = r < sl_pretok_n_rules && sl_pretok_rules[r].traits.raw;
        if (r < sl_pretok_n_rules) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(sl_pretok_rules[r].names, " "),
                     sl_pretok_rules[r].names);
            if (raw)
                start_gemma4(&v, "gpt2", name);
            else
                start_bpe(&v, name);
            for (const char *c = raw ? "ab" : ""; *c; c++)
                add(&v, (const char[]){*c, 0}, NORMAL);
            merge(&v, "a a");
            merge(&v, "aa aa");
            if (!raw)
                merge(&v, "\xc4\xa0 \xc4\xa0");
            merge(&v, "a b");
            for (char run[32] = "  "; strlen(run) < 30; strcat(run, " "))
                add(&v, run, USER);
        } else {
            start_spm(&v);
            add_scored(&v, SPACE SPACE, -1);
            add_scored(&v, "aa", -2);
            add_scored(&v, "aaaa", -3);
        }
        add(&v, "<|im_start|>", CONTROL);
        if (!raw) /* which has one already */
            sl_gguf_write_u32(&v.w, "tokenizer.ggml.bos_token_id", 11);
        struct sl_tokenizer *t = finish(&v);
        check_fast(t, RULE_BYTES);
        sl_tokenizer_destroy(&t);
    }
}

#define VOCAB_FOLDER "../shared/testdata/vocab"

static struct sl_tokenizer *open_published(const char *name) {
    char path[256];
    snprintf(path, sizeof path, VOCAB_FOLDER "/ggml-vocab-%s.gguf", name);
    struct sl_gguf *g;
    struct sl_tokenizer *t = NULL;
    struct sl_err err = {""};
    if (sl_gguf_open(path, &g, &err) != SL_OK)
        return NULL;
    if (sl_tokenizer_create(g, &t, &err) != SL_OK)
        fail_msg("%s: %s", path, err.text);
    sl_gguf_close(&g);
    return t;
}

static char *read_text(const char *name, const char *suffix, size_t *out_len) {
    char path[256];
    snprintf(path, sizeof path, VOCAB_FOLDER "/ggml-vocab-%s.gguf.%s", name, suffix);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = malloc(1 << 20);
    *out_len = fread(text, 1, (1 << 20) - 1, f);
    text[*out_len] = 0;
    fclose(f);
    return text;
}

static void check_published(const char *name) {
    struct sl_tokenizer *t = open_published(name);
    if (!t) {
        print_message("%s is not there\n", VOCAB_FOLDER);
        skip();
    }
    static const char separator[] = "\n__ggml_vocab_test__\n";
    size_t in_len, out_len, n = 0;
    char *in = read_text(name, "inp", &in_len), *out = read_text(name, "out", &out_len);
    char *text = in, *line = out;
    while (text) {
        char *end = strstr(text, separator);
        size_t len = end ? (size_t)(end - text) : (size_t)(in + in_len - text);
        char *line_end = strchr(line, '\n');
        assert_true(line_end || !end); /* a line for each text */
        if (line_end)
            *line_end = 0;
        uint32_t want[512];
        size_t n_want = 0;
        for (char *s = line; (s += strspn(s, " "), *s);)
            want[n_want++] = (uint32_t)strtoul(s, &s, 10);
        check_n(t, text, len, 0, want, n_want);
        /* And back. */
        if (n_want) {
            char *back = malloc(len * 4 + 64);
            size_t back_len;
            decode(t, want, n_want, false, back, &back_len);
            assert_int_equal(back_len, len);
            assert_memory_equal(back, text, len);
            free(back);
        }
        n++;
        line = line_end ? line_end + 1 : NULL;
        text = end ? end + sizeof separator - 1 : NULL;
    }
    assert_true(n > 40);
    free(in);
    free(out);
    check_fast(t, BIG_BYTES);
    sl_tokenizer_destroy(&t);
}

static void test_gpt2(void **state) {
    (void)state;
    check_published("gpt-2");
}
static void test_llama_spm(void **state) {
    (void)state;
    check_published("llama-spm");
}
static void test_deepseek_llm(void **state) {
    (void)state;
    check_published("deepseek-llm");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast_small),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama_spm),
        cmocka_unit_test(test_deepseek_llm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
