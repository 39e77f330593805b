/* Any text, and ids in any order, through tokenizers of all kinds; and vocabularies from strangers.
 *
 * The first byte chooses: below 0x80 the rest is a text for a built-in vocabulary, whose pre-split
 * and flags are in the first two bytes; from 0x80 on the rest describes a vocabulary (kind, types,
 * tokens, merges) and a text for it.
 *
 * Checked: encoding succeeds, ids are in range, text in UTF-8 comes back the same, and what
 * detokenisation streams is well-formed UTF-8 whatever the ids. */
#include "common/utf8.h"
#include "model/gguf/gguf_write.h"
#include "model/tokenizer/pretokenize.h"
#include "model/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
    if (!ok)
        abort();
}

/* A GGUF of the tokens, types and merges given; NULL when the tokenizer is refused. */
struct maker {
    struct sl_gguf_writer w;
    char tokens[512][24];
    size_t len[512];
    int32_t type[512];
    uint32_t n;
};

static void add(struct maker *m, const char *text, size_t len, int32_t type) {
    if (m->n == 512 || len > sizeof m->tokens[0])
        return;
    memcpy(m->tokens[m->n], text, len);
    m->len[m->n] = len;
    m->type[m->n++] = type;
}

static size_t alphabet(unsigned b, char *out) {
    unsigned cp = b;
    if (b <= 0x20)
        cp = 0x100 + b;
    else if (b >= 0x7f && b <= 0xa0)
        cp = 0x121 + (b - 0x7f);
    else if (b == 0xad)
        cp = 0x143;
    return sl_utf8_put(cp, out);
}

static void add_bytes(struct maker *m, bool spm) {
    if (spm) {
        add(m, "<unk>", 5, 2);
        add(m, "<s>", 3, 3);
        add(m, "</s>", 4, 3);
    }
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        size_t n = spm ? (size_t)snprintf(text, sizeof text, "<0x%02X>", b) : alphabet(b, text);
        add(m, text, n, spm ? 6 : 1);
    }
}

static struct sl_tokenizer *finish(struct maker *m, bool must_open) {
    sl_gguf_array_begin_str(&m->w, "tokenizer.ggml.tokens");
    for (uint32_t i = 0; i < m->n; i++)
        sl_gguf_array_add_str(&m->w, m->tokens[i], m->len[i]);
    sl_gguf_array_end(&m->w);
    sl_gguf_array_begin_i32(&m->w, "tokenizer.ggml.token_type");
    for (uint32_t i = 0; i < m->n; i++)
        sl_gguf_array_add_i32(&m->w, m->type[i]);
    sl_gguf_array_end(&m->w);
    sl_gguf_array_begin_i32(&m->w, "tokenizer.ggml.scores");
    for (uint32_t i = 0; i < m->n; i++)
        sl_gguf_array_add_i32(&m->w, -(int32_t)(i * 7919 % 97));
    sl_gguf_array_end(&m->w);
    uint8_t *bytes;
    size_t n;
    struct sl_gguf *g;
    struct sl_err err = {""};
    struct sl_tokenizer *t = NULL;
    check(sl_gguf_writer_finish(&m->w, &bytes, &n) == SL_OK);
    check(sl_gguf_open_memory(bytes, n, &g, &err) == SL_OK);
    if (sl_tokenizer_create(g, &t, &err) != SL_OK)
        check(!must_open && err.text[0]);
    sl_gguf_close(&g);
    free(bytes);
    sl_gguf_writer_release(&m->w);
    return t;
}

static const char *const merges[] = {
    "a a", "aa aa", "\xc4\xa0 \xc4\xa0", "\xc4\xa0 a", "e r", "t h", "th er", "\xc3 \xc2", "1 2",
};

/* The same where a space is U+2581 and characters are tokens. */
static const char *const raw_merges[] = {
    "a a", "aa aa", "\xe2\x96\x81 \xe2\x96\x81", "\xe2\x96\x81 a", "e r", "t h", "th er", "1 2",
};

static void add_merges(struct maker *m, const char *const *list, size_t n) {
    sl_gguf_array_begin_str(&m->w, "tokenizer.ggml.merges");
    for (size_t i = 0; i < n; i++) {
        char joined[16];
        size_t left = strcspn(list[i], " ");
        int len = snprintf(joined, sizeof joined, "%.*s%s", (int)left, list[i], list[i] + left + 1);
        add(m, joined, (size_t)len, 1);
        sl_gguf_array_add_str(&m->w, list[i], strlen(list[i]));
    }
    sl_gguf_array_end(&m->w);
}

static struct sl_tokenizer *built_in(unsigned which) {
    static struct sl_tokenizer *made[64];
    which %= sl_pretok_n_rules + 1;
    if (made[which])
        return made[which];
    static struct maker m;
    m = (struct maker){.n = 0};
    sl_gguf_writer_init(&m.w);
    bool spm = which == sl_pretok_n_rules, raw = !spm && sl_pretok_rules[which].traits.raw;
    sl_gguf_write_str(&m.w, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    add_bytes(&m, spm || raw);
    if (!spm) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(sl_pretok_rules[which].names, " "),
                 sl_pretok_rules[which].names);
        sl_gguf_write_str(&m.w, "tokenizer.ggml.pre", name);
        for (const char *c = raw ? "aerth12" : ""; *c; c++)
            add(&m, c, 1, 1);
        if (raw) {
            add(&m, "\xe2\x96\x81", 3, 1);
            add_merges(&m, raw_merges, sizeof raw_merges / sizeof *raw_merges);
        } else {
            add_merges(&m, merges, sizeof merges / sizeof *merges);
        }
    } else {
        static const char *const words[] = {"\xe2\x96\x81",
                                            "\xe2\x96\x81\xe2\x96\x81",
                                            "aa",
                                            "aaaa",
                                            "\xe2\x96\x81\x61",
                                            "th",
                                            "the",
                                            "\xe4\xb8\xad"};
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            add(&m, words[i], strlen(words[i]), 1);
    }
    add(&m, "<|im_start|>", 12, 3);
    add(&m, "<|im_end|>", 10, 3);
    add(&m, "<|im", 4, 4);
    add(&m, "   ", 3, 4);
    sl_gguf_write_u32(&m.w, "tokenizer.ggml.bos_token_id", 1);
    return made[which] = finish(&m, true);
}

static void decode(const struct sl_tokenizer *t, const uint32_t *ids, size_t n, bool special,
                   char **out, size_t *out_len) {
    struct sl_detok d = {0};
    struct sl_str s;
    size_t cap = 0, len = 0;
    char *text = NULL;
    for (size_t i = 0; i <= n; i++) {
        check((i < n ? sl_detok_push(&d, t, ids[i], special, &s) : sl_detok_finish(&d, &s)) ==
              SL_OK);
        check(sl_utf8_valid_prefix(s.ptr, s.len) == s.len);
        if (len + s.len > cap) {
            cap = 2 * (len + s.len) + 64;
            text = realloc(text, cap);
            check(text != NULL);
        }
        if (s.len)
            memcpy(text + len, s.ptr, s.len);
        len += s.len;
    }
    sl_detok_release(&d);
    *out = text;
    *out_len = len;
}

static void run(const struct sl_tokenizer *t, const char *text, size_t len, unsigned flags,
                bool comes_back) {
    struct sl_ids ids = {0};
    check(sl_tokenizer_encode(t, text, len, flags, &ids) == SL_OK);
    for (size_t i = 0; i < ids.n; i++)
        check(ids.ids[i] < sl_tokenizer_n_vocab(t));
    char *back;
    size_t back_len;
    decode(t, ids.ids, ids.n, true, &back, &back_len);
    if (comes_back && sl_utf8_valid_prefix(text, len) == len)
        check(back_len == len && (len == 0 || memcmp(back, text, len) == 0));
    free(back);
    /* The same bytes as ids. */
    ids.n = 0;
    for (size_t i = 0; i + 1 < len; i += 2)
        check(sl_tokenizer_encode(t, "a", 1, 0, &ids) == SL_OK);
    for (size_t i = 0; i < ids.n && 2 * i + 1 < len; i++)
        ids.ids[i] = (unsigned char)text[2 * i] | (uint32_t)(unsigned char)text[2 * i + 1] % 4 << 8;
    decode(t, ids.ids, ids.n, flags & 1, &back, &back_len);
    free(back);
    sl_ids_release(&ids);
}

/* A vocabulary as the input has it: records of (type, length, text) up to a length of 0xff, then
 * merges the same way, then the text. */
static void run_stranger(const uint8_t *data, size_t size) {
    static struct maker m;
    m = (struct maker){.n = 0};
    sl_gguf_writer_init(&m.w);
    bool spm = data[0] & 1;
    size_t len, at = 1;
    const char *pre = sl_pretok_name_at((data[0] & 0x7f) / 2, &len);
    char name[64];
    snprintf(name, sizeof name, "%.*s", pre ? (int)len : 7, pre ? pre : "default");
    sl_gguf_write_str(&m.w, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    sl_gguf_write_str(&m.w, "tokenizer.ggml.pre", name);
    if (data[0] & 2)
        add_bytes(&m, spm);
    for (; at + 1 < size && data[at + 1] < 25; at += 2 + len) {
        len = data[at + 1];
        if (len > size - at - 2)
            len = size - at - 2;
        add(&m, (const char *)data + at + 2, len, data[at] % 8);
    }
    at += 2;
    sl_gguf_array_begin_str(&m.w, "tokenizer.ggml.merges");
    for (; at < size && data[at] < 50; at += 1 + len) {
        len = data[at] < size - at - 1 ? data[at] : size - at - 1;
        sl_gguf_array_add_str(&m.w, (const char *)data + at + 1, len);
    }
    sl_gguf_array_end(&m.w);
    at++;
    struct sl_tokenizer *t = finish(&m, false);
    if (!t)
        return;
    for (uint32_t id = 0; id < sl_tokenizer_n_vocab(t); id++)
        sl_tokenizer_is_eog(t, id);
    if (at < size) {
        for (unsigned flags = 0; flags < 4; flags++)
            run(t, (const char *)data + at, size - at, flags, false);
    }
    sl_tokenizer_destroy(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    if (data[0] >= 0x80) {
        run_stranger(data, size);
        return 0;
    }
    const struct sl_tokenizer *t = built_in(data[0]);
    unsigned flags = data[1] & SL_ENCODE_PARSE_SPECIAL;
    /* From an array of exactly this length, so that reading past it is caught. */
    char *text = malloc(size - 1);
    check(text != NULL);
    memcpy(text, data + 2, size - 2);
    /* SentencePiece puts a space after each special token, and in its alphabet U+2581 is one. */
    uint32_t which = data[0] % (sl_pretok_n_rules + 1);
    bool raw = which < sl_pretok_n_rules && sl_pretok_rules[which].traits.raw;
    run(t, text, size - 2, flags,
        sl_tokenizer_kind(t)[0] == 'g' && !(raw && memmem(text, size - 2, "\xe2\x96\x81", 3)));
    free(text);
    return 0;
}
