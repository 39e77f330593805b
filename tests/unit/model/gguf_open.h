/* Opening files of tests/support/gguf_builder.h: as it must succeed, or fail. */
#ifndef TESTS_UNIT_MODEL_GGUF_OPEN_H
#define TESTS_UNIT_MODEL_GGUF_OPEN_H

#include "model/gguf/gguf.h"
#include "model/gguf/gguf_internal.h"
#include "tests/support/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static inline struct sl_gguf *open_ok(struct gb *b, uint8_t **out_file) {
    size_t n;
    struct sl_gguf *g = NULL;
    struct sl_err err = {""};
    *out_file = gb_finish(b, &n);
    if (sl_gguf_open_memory(*out_file, n, &g, &err) != SL_OK)
        fail_msg("%s", err.text);
    return g;
}

/* Opening must fail with this status and a text that holds each of the words. */
static inline void expect_refused(struct gb *b, enum sl_status want, const char *word1,
                                  const char *word2) {
    size_t n;
    struct sl_gguf *g = NULL;
    struct sl_err err = {""};
    uint8_t *file = gb_finish(b, &n);
    enum sl_status status = sl_gguf_open_memory(file, n, &g, &err);
    if (status != want || !strstr(err.text, word1) || !strstr(err.text, word2))
        fail_msg("status %d, want %d with '%s' and '%s': %s", status, want, word1, word2, err.text);
    assert_null(g);
    free(file);
}

#endif
