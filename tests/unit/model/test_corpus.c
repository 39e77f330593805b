/* The fuzzer's small models: each opens, and with another value of one key is refused by that key's
 * name. tests/fuzz/corpus_gguf.py writes them; MODEL~KEY is MODEL with such a value. */
#include "model/arch/model.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define FOLDER    "tests/fuzz/corpus/gguf"
#define MAX_BYTES (1u << 20)

/* SL_OK, or why it does not open. */
static enum sl_status open_with(const char *name, struct sl_hparams *out_hp, struct sl_err *err) {
    char path[512];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is not there", path);
    char *data = malloc(MAX_BYTES);
    assert_non_null(data);
    size_t n = fread(data, 1, MAX_BYTES, f);
    fclose(f);
    struct sl_gguf *g = NULL;
    struct sl_model *m = NULL;
    enum sl_status status = sl_gguf_open_memory(data, n, &g, err);
    if (status == SL_OK)
        status = sl_model_from_gguf(g, &m, err);
    if (status == SL_OK) {
        *out_hp = m->hp;
        sl_model_close(&m);
    }
    free(data);
    return status;
}

static enum sl_status open_file(const char *name, struct sl_err *err) {
    struct sl_hparams hp;
    return open_with(name, &hp, err);
}

/* Files named for an architecture: each has one. */
static void families_open(void **state) {
    (void)state;
    const char *arch;
    uint32_t n = 0;
    for (uint32_t i = 0; (arch = sl_model_arch_at(i)); i++) {
        char path[256];
        struct sl_err err = {""};
        snprintf(path, sizeof path, FOLDER "/%s", arch);
        if (access(path, R_OK) != 0)
            fail_msg("%s has no file: tests/fuzz/corpus_gguf.py should write one", arch);
        if (open_file(arch, &err) != SL_OK)
            fail_msg("%s: %s", arch, err.text);
        n++;
    }
    assert_true(n >= 52);
}

static void lies_are_refused_by_name(void **state) {
    (void)state;
    DIR *d = opendir(FOLDER);
    assert_non_null(d);
    uint32_t n = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        const char *key = strchr(e->d_name, '~');
        if (!key)
            continue;
        char model[256], quoted[300];
        struct sl_err err = {""};
        snprintf(model, sizeof model, "%.*s", (int)(key - e->d_name), e->d_name);
        if (open_file(model, &err) != SL_OK)
            fail_msg("%s: %s", model, err.text);
        enum sl_status status = open_file(e->d_name, &err);
        snprintf(quoted, sizeof quoted, ".%s'", key + 1);
        if ((status != SL_ERR_CORRUPT && status != SL_ERR_UNSUPPORTED) ||
            !strstr(err.text, ": key '") || !strstr(err.text, quoted))
            fail_msg("%s: %d, %s", e->d_name, status, err.text);
        n++;
    }
    closedir(d);
    assert_true(n >= 150);
}

/* An array of too few numbers, and one that says another number than the tensors have. */
static void numbers_of_experts_are_checked(void **state) {
    (void)state;
    struct sl_err err = {""};
    assert_int_equal(open_file("qwen3moe-each-short", &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "key 'qwen3moe.expert_count'"));
    assert_non_null(strstr(err.text, "3 values for 4 layers"));
    assert_int_equal(open_file("qwen3moe-each-lie", &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "tensor 'blk.1.ffn_gate_inp.weight'"));
    assert_non_null(strstr(err.text, "is [8, 2, 1, 1], the hyperparameters ask for [8, 3, 1]"));
}

/* Files whose last layer drafts tokens, where numbers of layers are for each and it is among them.
 */
static void draft_layers_are_left(void **state) {
    (void)state;
    static const char *const files[] = {"mimo2-nextn", "step35-nextn", "cohere2moe-nextn"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct sl_hparams hp;
        struct sl_err err = {""};
        if (open_with(files[i], &hp, &err) != SL_OK)
            fail_msg("%s: %s", files[i], err.text);
        assert_int_equal(hp.n_layer, 3);
        assert_int_equal(hp.n_layer_nextn, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_open),
        cmocka_unit_test(lies_are_refused_by_name),
        cmocka_unit_test(numbers_of_experts_are_checked),
        cmocka_unit_test(draft_layers_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
