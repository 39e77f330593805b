/* The tokenize command from its arguments to its files and exit codes. */
#include "cli/options/commands.h"
#include "tests/support/vocab.h"

#include <unistd.h>

static char folder[] = "/tmp/sluice-test-XXXXXX";
static char model[64], text[64], out[64];

static void write_file(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static int set_up(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(model, sizeof model, "%s/vocab.gguf", folder);
    snprintf(text, sizeof text, "%s/text", folder);
    snprintf(out, sizeof out, "%s/ids", folder);
    struct vocab v;
    start_bpe(&v, "qwen2");
    merge(&v, "a b");
    uint32_t eos = add(&v, "<|im_end|>", CONTROL);
    sl_gguf_write_u32(&v.w, "tokenizer.ggml.bos_token_id", eos);
    sl_gguf_write_bool(&v.w, "tokenizer.ggml.add_bos_token", true);
    uint8_t *bytes;
    size_t n;
    finish_file(&v, &bytes, &n);
    write_file(model, bytes, n);
    free(bytes);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(model);
    unlink(text);
    unlink(out);
    return rmdir(folder);
}

/* Runs with standard error out of the way and returns the exit code. */
static int run(int argc, char **argv) {
    fflush(stderr);
    int saved = dup(2);
    assert_non_null(freopen("/dev/null", "w", stderr));
    int rc = sl_cmd_tokenize(argc, argv);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    return rc;
}
#define RUN(...)                                                                                   \
    run((int)(sizeof((char *[]){"tokenize", __VA_ARGS__}) / sizeof(char *)),                       \
        (char *[]){"tokenize", __VA_ARGS__, NULL})

static void check_out(const uint32_t *want, size_t n) {
    uint32_t ids[64];
    FILE *f = fopen(out, "rb");
    assert_non_null(f);
    size_t got = fread(ids, sizeof *ids, 64, f);
    fclose(f);
    assert_int_equal(got, n);
    assert_memory_equal(ids, want, n * sizeof *want);
}

static void test_ids_out(void **state) {
    (void)state;
    enum { AB = 256, EOS = 257 };
    write_file(text, "ab\0<|im_end|>\xff", 14);
    assert_int_equal(RUN("-m", model, "--file", text, "--ids-out", out, "--special"), 0);
    check_out((uint32_t[]){EOS, AB, 0, EOS, 0xef, 0xbf, 0xbd}, 7);
    assert_int_equal(RUN("-m", model, "--text", "ab", "--ids-out", out, "--no-bos"), 0);
    check_out((uint32_t[]){AB}, 1);
    assert_int_equal(RUN("-m", model, "--text", "<|im", "--ids-out", out, "--no-bos"), 0);
    check_out((uint32_t[]){'<', '|', 'i', 'm'}, 4);
    assert_int_equal(RUN("-m", model, "--text", "", "--ids-out", out), 0);
    check_out((uint32_t[]){EOS}, 1);
}

static void test_errors(void **state) {
    (void)state;
    assert_int_equal(RUN("--text", "a"), 2);
    assert_int_equal(RUN("-m", model, "--text", "a", "--file", text), 2);
    assert_int_equal(RUN("-m", model, "--txt", "a"), 2);
    assert_int_equal(RUN("-m", "/nonexistent.gguf", "--text", "a"), 1);
    assert_int_equal(RUN("-m", model, "--file", "/nonexistent"), 1);
    assert_int_equal(RUN("-m", model, "--file", "/"), 1);
    assert_int_equal(RUN("-m", model, "--text", "a", "--ids-out", "/nonexistent/ids"), 1);
    assert_int_equal(RUN("--splits", "nonexistent", "--text", "a"), 2);
    write_file(text, "not a model", 11);
    assert_int_equal(RUN("-m", text, "--text", "a"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_out),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
