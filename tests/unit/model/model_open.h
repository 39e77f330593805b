/* Opening models whose files tests/support/gguf_builder.h builds: as it must succeed, or fail. */
#ifndef TESTS_UNIT_MODEL_MODEL_OPEN_H
#define TESTS_UNIT_MODEL_MODEL_OPEN_H

#include "model/arch/model.h"
#include "tests/support/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* The container is sound in any case. */
static inline enum sl_status open_built(struct gb *b, struct sl_model **out_m, uint8_t **out_file,
                                        struct sl_err *err) {
    size_t n;
    struct sl_gguf *g = NULL;
    *out_file = gb_finish(b, &n);
    *out_m = NULL;
    if (sl_gguf_open_memory(*out_file, n, &g, err) != SL_OK)
        fail_msg("the container: %s", err->text);
    return sl_model_from_gguf(g, out_m, err);
}

static inline struct sl_model *model_ok(struct gb b, uint8_t **out_file) {
    struct sl_err err = {""};
    struct sl_model *m;
    if (open_built(&b, &m, out_file, &err) != SL_OK)
        fail_msg("%s", err.text);
    return m;
}

/* Opening must fail, with a text that holds each of the words. */
static inline void model_refused(struct gb b, const char *word1, const char *word2) {
    struct sl_err err = {""};
    struct sl_model *m;
    uint8_t *file;
    enum sl_status status = open_built(&b, &m, &file, &err);
    if (status == SL_OK || !strstr(err.text, word1) || !strstr(err.text, word2))
        fail_msg("want '%s' and '%s', got %d: %s", word1, word2, status, err.text);
    assert_null(m);
    free(file);
}

#endif
