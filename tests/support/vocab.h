/* Small vocabularies for tests of the tokenizer, and checks on what comes out. cmocka's headers
 * come first. */
#ifndef SL_TESTS_SUPPORT_VOCAB_H
#define SL_TESTS_SUPPORT_VOCAB_H

#include "model/gguf/gguf_write.h"
#include "model/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SPACE "\xe2\x96\x81" /* how SentencePiece writes a space */

/* A vocabulary being made. */
struct vocab {
    struct sl_gguf_writer w;
    char *tokens[1024];
    size_t len[1024];
    int32_t type[1024];
    float score[1024];
    uint32_t n;
    const char *merges[64];
    uint32_t n_merges;
};
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 };

static inline uint32_t add_n(struct vocab *v, const char *text, size_t len, int32_t type) {
    v->tokens[v->n] = memcpy(malloc(len + 1), text, len);
    v->len[v->n] = len;
    v->type[v->n] = type;
    return v->n++;
}

static inline uint32_t add(struct vocab *v, const char *text, int32_t type) {
    return add_n(v, text, strlen(text), type);
}

static inline void add_scored(struct vocab *v, const char *text, float score) {
    v->score[add(v, text, NORMAL)] = score;
}

/* What a byte is called in GPT-2's alphabet, written out independently of the program. */
static inline size_t alphabet(unsigned b, char *out) {
    unsigned cp = b;
    if (b <= 0x20)
        cp = 0x100 + b;
    else if (b >= 0x7f && b <= 0xa0)
        cp = 0x121 + (b - 0x7f);
    else if (b == 0xad)
        cp = 0x143;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3f));
    return 2;
}

/* Token b is byte b. */
static inline void start_bpe(struct vocab *v, const char *pre) {
    memset(v, 0, sizeof *v);
    sl_gguf_writer_init(&v->w);
    sl_gguf_write_str(&v->w, "tokenizer.ggml.model", "gpt2");
    if (pre)
        sl_gguf_write_str(&v->w, "tokenizer.ggml.pre", pre);
    for (unsigned b = 0; b < 256; b++) {
        char text[2];
        add_n(v, text, alphabet(b, text), NORMAL);
    }
}

/* Adds a merge "a b" and the token "ab"; returns its id. */
static inline uint32_t merge(struct vocab *v, const char *pair) {
    char joined[64];
    const char *space = strchr(pair, ' ');
    snprintf(joined, sizeof joined, "%.*s%s", (int)(space - pair), pair, space + 1);
    v->merges[v->n_merges++] = pair;
    return add(v, joined, NORMAL);
}

/* <unk> <s> </s>, then the 256 byte tokens: byte b is 3 + b. */
static inline void start_spm(struct vocab *v) {
    memset(v, 0, sizeof *v);
    sl_gguf_writer_init(&v->w);
    sl_gguf_write_str(&v->w, "tokenizer.ggml.model", "llama");
    add(v, "<unk>", UNKNOWN);
    add(v, "<s>", CONTROL);
    add(v, "</s>", CONTROL);
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        add(v, text, BYTE);
    }
}

/* The same with merges. */
static inline void start_gemma4(struct vocab *v, const char *model, const char *pre) {
    memset(v, 0, sizeof *v);
    sl_gguf_writer_init(&v->w);
    sl_gguf_write_str(&v->w, "tokenizer.ggml.model", model);
    if (pre)
        sl_gguf_write_str(&v->w, "tokenizer.ggml.pre", pre);
    add(v, "<unk>", UNKNOWN);
    add(v, "<bos>", CONTROL);
    add(v, "<eos>", CONTROL);
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        add(v, text, BYTE);
    }
    sl_gguf_write_u32(&v->w, "tokenizer.ggml.bos_token_id", 1);
    sl_gguf_write_u32(&v->w, "tokenizer.ggml.eos_token_id", 2);
}

/* The file, malloc'd. */
static inline void finish_file(struct vocab *v, uint8_t **out_bytes, size_t *out_n) {
    sl_gguf_array_begin_str(&v->w, "tokenizer.ggml.tokens");
    for (uint32_t i = 0; i < v->n; i++)
        sl_gguf_array_add_str(&v->w, v->tokens[i], v->len[i]);
    sl_gguf_array_end(&v->w);
    sl_gguf_array_begin_i32(&v->w, "tokenizer.ggml.token_type");
    for (uint32_t i = 0; i < v->n; i++)
        sl_gguf_array_add_i32(&v->w, v->type[i]);
    sl_gguf_array_end(&v->w);
    sl_gguf_array_begin_i32(&v->w, "tokenizer.ggml.scores"); /* whole numbers here */
    for (uint32_t i = 0; i < v->n; i++)
        sl_gguf_array_add_i32(&v->w, (int32_t)v->score[i]);
    sl_gguf_array_end(&v->w);
    if (v->n_merges) {
        sl_gguf_array_begin_str(&v->w, "tokenizer.ggml.merges");
        for (uint32_t i = 0; i < v->n_merges; i++)
            sl_gguf_array_add_str(&v->w, v->merges[i], strlen(v->merges[i]));
        sl_gguf_array_end(&v->w);
    }
    assert_int_equal(sl_gguf_writer_finish(&v->w, out_bytes, out_n), SL_OK);
    sl_gguf_writer_release(&v->w);
    for (uint32_t i = 0; i < v->n; i++)
        free(v->tokens[i]);
}

static inline enum sl_status try_finish(struct vocab *v, struct sl_tokenizer **out,
                                        struct sl_err *err) {
    uint8_t *bytes;
    size_t n;
    struct sl_gguf *g;
    finish_file(v, &bytes, &n);
    enum sl_status status = sl_gguf_open_memory(bytes, n, &g, err);
    if (status != SL_OK)
        fail_msg("%s", err->text);
    status = sl_tokenizer_create(g, out, err);
    sl_gguf_close(&g); /* the tokenizer keeps nothing of it */
    free(bytes);
    return status;
}

static inline struct sl_tokenizer *finish(struct vocab *v) {
    struct sl_tokenizer *t = NULL;
    struct sl_err err = {""};
    if (try_finish(v, &t, &err) != SL_OK)
        fail_msg("%s", err.text);
    return t;
}

static inline void check_n(const struct sl_tokenizer *t, const char *text, size_t len,
                           unsigned flags, const uint32_t *want, size_t n) {
    struct sl_ids ids = {0};
    assert_int_equal(sl_tokenizer_encode(t, text, len, flags, &ids), SL_OK);
    char got[512] = "";
    size_t at = 0;
    for (size_t i = 0; i < ids.n && at < sizeof got - 12; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, " %u", ids.ids[i]);
    if (ids.n != n || (n && memcmp(ids.ids, want, n * sizeof *want) != 0))
        fail_msg("'%.*s' gives%s", (int)len, text, got);
    sl_ids_release(&ids);
}
#define CHECK(t, text, flags, ...)                                                                 \
    check_n(t, text, sizeof(text) - 1, flags, (const uint32_t[]){__VA_ARGS__},                     \
            sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static inline void decode(const struct sl_tokenizer *t, const uint32_t *ids, size_t n, bool special,
                          char *out, size_t *out_len) {
    struct sl_detok d = {0};
    struct sl_str s;
    *out_len = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n)
            assert_int_equal(sl_detok_push(&d, t, ids[i], special, &s), SL_OK);
        else
            assert_int_equal(sl_detok_finish(&d, &s), SL_OK);
        memcpy(out + *out_len, s.ptr, s.len);
        *out_len += s.len;
    }
    out[*out_len] = 0;
    sl_detok_release(&d);
}

#endif
