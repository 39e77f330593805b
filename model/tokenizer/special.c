#include "model/tokenizer/special.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int by_first_byte(const void *a, const void *b) {
    const struct sl_special_text *x = a, *y = b;
    int cx = (unsigned char)x->text[0], cy = (unsigned char)y->text[0];
    return cx - cy;
}

enum sl_status sl_special_init(struct sl_special *sp, const struct sl_tokenizer *tok) {
    *sp = (struct sl_special){0};
    unsigned char random[SL_MARK_BYTES / 3] = {0};
    if (getrandom(random, sizeof random, 0) < 0)
        memset(random, 7, sizeof random);
    for (uint32_t i = 0; i < SL_MARK_BYTES / 3; i++) {
        /* U+FDD0..U+FDEF: EF B7 90 .. EF B7 AF */
        sp->mark[3 * i] = (char)0xef;
        sp->mark[3 * i + 1] = (char)0xb7;
        sp->mark[3 * i + 2] = (char)(0x90 + random[i] % 32);
    }
    uint32_t n_vocab = sl_tokenizer_n_vocab(tok), n = 0;
    for (uint32_t id = 0; id < n_vocab; id++)
        n += sl_tokenizer_is_control(tok, id);
    sp->texts = calloc(n ? n : 1, sizeof *sp->texts);
    if (!sp->texts)
        return SL_ERR_NOMEM;
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (!sl_tokenizer_is_control(tok, id))
            continue;
        struct sl_str piece = sl_tokenizer_piece(tok, id, true);
        if (piece.len < 2) /* nothing to cut between */
            continue;
        char *text = malloc(piece.len);
        if (!text) {
            sl_special_release(sp);
            return SL_ERR_NOMEM;
        }
        memcpy(text, piece.ptr, piece.len);
        sp->texts[sp->n++] = (struct sl_special_text){text, piece.len};
    }
    qsort(sp->texts, sp->n, sizeof *sp->texts, by_first_byte);
    for (uint32_t b = 0, i = 0; b < 257; b++) {
        while (i < sp->n && (unsigned char)sp->texts[i].text[0] < b)
            i++;
        sp->first[b] = i;
    }
    return SL_OK;
}

void sl_special_release(struct sl_special *sp) {
    for (uint32_t i = 0; i < sp->n; i++)
        free(sp->texts[i].text);
    free(sp->texts);
    *sp = (struct sl_special){0};
}

static bool starts_special(const struct sl_special *sp, const char *text, size_t len) {
    unsigned char c = (unsigned char)text[0];
    for (uint32_t i = sp->first[c]; i < sp->first[c + 1]; i++)
        if (sp->texts[i].len <= len && memcmp(sp->texts[i].text, text, sp->texts[i].len) == 0)
            return true;
    return false;
}

uint32_t sl_special_mark(const struct sl_special *sp, const char *text, size_t len,
                         struct sl_buf *out) {
    uint32_t n = 0;
    size_t start = 0;
    for (size_t i = 0; i < len; i++) {
        if (!starts_special(sp, text + i, len - i))
            continue;
        /* After the first character: every token that starts here is broken, and the text stays
         * valid UTF-8. One that starts inside of it is found in its turn. */
        uint32_t c = sl_utf8_len((const unsigned char *)text + i, len - i);
        size_t cut = i + (c ? c : 1);
        sl_buf_put(out, text + start, cut - start);
        sl_buf_put(out, sp->mark, SL_MARK_BYTES);
        start = cut;
        n++;
    }
    sl_buf_put(out, text + start, len - start);
    return n;
}

json_t *sl_special_mark_json(const struct sl_special *sp, const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_STRING: {
        struct sl_buf b = {0};
        sl_special_mark(sp, json_string_value(v), json_string_length(v), &b);
        json_t *s = b.failed ? NULL : json_stringn_nocheck(b.ptr ? b.ptr : "", b.len);
        sl_buf_release(&b);
        return s;
    }
    case JSON_ARRAY: {
        json_t *copy = json_array();
        for (size_t i = 0; copy && i < json_array_size(v); i++) {
            if (json_array_append_new(copy, sl_special_mark_json(sp, json_array_get(v, i)))) {
                json_decref(copy);
                copy = NULL;
            }
        }
        return copy;
    }
    case JSON_OBJECT: {
        json_t *copy = json_object();
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)v, key, value) {
            if (!copy)
                break;
            /* Keys too: templates print tool schemas and arguments whole. */
            struct sl_buf k = {0};
            sl_special_mark(sp, key, strlen(key) + 1, &k);
            if (k.failed ||
                json_object_set_new_nocheck(copy, k.ptr, sl_special_mark_json(sp, value))) {
                json_decref(copy);
                copy = NULL;
            }
            sl_buf_release(&k);
        }
        return copy;
    }
    default:
        return json_copy((json_t *)v);
    }
}

void sl_special_unmark(const struct sl_special *sp, char *text, size_t *len) {
    size_t from = 0, to = 0;
    while (from < *len) {
        char *m = memmem(text + from, *len - from, sp->mark, SL_MARK_BYTES);
        size_t n = m ? (size_t)(m - (text + from)) : *len - from;
        memmove(text + to, text + from, n);
        to += n;
        from += n + (m ? SL_MARK_BYTES : 0);
    }
    *len = to;
}

size_t sl_special_text_bytes(const struct sl_special *sp, const char *text, size_t len) {
    size_t n = len;
    const char *end = text + len, *m;
    while ((m = memmem(text, (size_t)(end - text), sp->mark, SL_MARK_BYTES))) {
        n -= SL_MARK_BYTES;
        text = m + SL_MARK_BYTES;
    }
    return n;
}

enum sl_status sl_special_encode(const struct sl_special *sp, const struct sl_tokenizer *tok,
                                 const char *text, size_t len, struct sl_ids *out) {
    size_t from = 0;
    while (from < len) {
        const char *m = memmem(text + from, len - from, sp->mark, SL_MARK_BYTES);
        size_t n = m ? (size_t)(m - (text + from)) : len - from;
        enum sl_status st = sl_tokenizer_encode(tok, text + from, n, SL_ENCODE_PARSE_SPECIAL, out);
        if (st != SL_OK)
            return st;
        from += n + (m ? SL_MARK_BYTES : 0);
    }
    return SL_OK;
}
