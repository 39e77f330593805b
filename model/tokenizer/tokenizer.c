/* The tokenizer as its users see it: reading the vocabulary, encoding, and what a token is. */
#include "model/tokenizer/tokenizer_internal.h"

#include "common/log.h"
#include "common/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A token longer than this is no token: merging would have to compare texts of that length. */
#define MAX_TOKEN_BYTES 65535u
/* Positions in a text are kept in 32 bits, with room for U+2581 in place of each space. */
#define MAX_TEXT_BYTES ((size_t)256 << 20)

/* An array with the wanted element types and at least n elements. Absent: NULL, SL_OK. */
static enum sl_status find_array(const struct sl_gguf *g, const char *key, enum sl_gguf_type a,
                                 enum sl_gguf_type b, uint64_t n, const struct sl_gguf_kv **out,
                                 struct sl_err *err) {
    *out = NULL;
    const struct sl_gguf_kv *kv = sl_gguf_kv_find(g, key);
    if (!kv)
        return SL_OK;
    if (kv->type != SL_GGUF_ARRAY || (kv->elem_type != a && kv->elem_type != b))
        return sl_fail(err, SL_ERR_CORRUPT, "%s is not an array of the type it should have", key);
    if (kv->n_elems < n)
        return sl_fail(err, SL_ERR_CORRUPT, "%s has %llu elements for %llu tokens", key,
                       (unsigned long long)kv->n_elems, (unsigned long long)n);
    *out = kv;
    return SL_OK;
}

static enum sl_status load_tokens(struct sl_tokenizer *t, const struct sl_gguf *g,
                                  struct sl_err *err) {
    const struct sl_gguf_kv *tokens;
    SL_TRY(find_array(g, "tokenizer.ggml.tokens", SL_GGUF_STRING, SL_GGUF_STRING, 1, &tokens, err));
    if (!tokens)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "tokenizer.ggml.tokens is missing: the file has no "
                       "vocabulary");
    if (tokens->n_elems > INT32_MAX)
        return sl_fail(err, SL_ERR_CORRUPT, "tokenizer.ggml.tokens has %llu elements",
                       (unsigned long long)tokens->n_elems);
    t->n_vocab = (uint32_t)tokens->n_elems;
    t->attr = calloc(t->n_vocab, sizeof *t->attr);
    if (!t->attr || sl_strings_init(&t->strings, t->n_vocab) != SL_OK)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for %u tokens", t->n_vocab);
    struct sl_gguf_str_iter it = {.kv = tokens};
    struct sl_str text;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        if (!sl_gguf_str_next(&it, &text))
            return sl_fail(err, SL_ERR_CORRUPT, "tokenizer.ggml.tokens ends after %u of %u", i,
                           t->n_vocab);
        if (text.len > MAX_TOKEN_BYTES)
            return sl_fail(err, SL_ERR_CORRUPT, "token %u has %zu bytes, more than %u", i, text.len,
                           MAX_TOKEN_BYTES);
        char empty[32];
        if (text.len == 0) /* a hole in the numbering: a text that nobody writes */
            text = (struct sl_str){empty, (size_t)snprintf(empty, sizeof empty, "[EMPTY_%u]", i)};
        if (text.len > t->max_token_bytes)
            t->max_token_bytes = (uint32_t)text.len;
        uint32_t id;
        if (sl_strings_append(&t->strings, text.ptr, text.len, &id) != SL_OK)
            return sl_fail(err, SL_ERR_NOMEM, "out of memory for %u tokens", t->n_vocab);
    }
    const struct sl_gguf_kv *types;
    SL_TRY(find_array(g, "tokenizer.ggml.token_type", SL_GGUF_I32, SL_GGUF_U32, t->n_vocab, &types,
                      err));
    /* GGUF: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. */
    static const uint8_t attr_of_type[] = {0,
                                           SL_ATTR_NORMAL,
                                           SL_ATTR_UNKNOWN,
                                           SL_ATTR_CONTROL,
                                           SL_ATTR_USER_DEFINED,
                                           SL_ATTR_UNUSED,
                                           SL_ATTR_BYTE};
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        int64_t type = types ? sl_gguf_array_i64(types, i) : 1;
        t->attr[i] = type >= 0 && type < (int64_t)sizeof attr_of_type ? attr_of_type[type] : 0;
    }
    return SL_OK;
}

static enum sl_status load_merges(struct sl_tokenizer *t, const struct sl_gguf *g,
                                  struct sl_err *err) {
    const struct sl_gguf_kv *merges;
    SL_TRY(find_array(g, "tokenizer.ggml.merges", SL_GGUF_STRING, SL_GGUF_STRING, 0, &merges, err));
    if (!merges)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "tokenizer.ggml.merges is missing: a 'gpt2' vocabulary "
                       "cannot encode without it");
    if (merges->n_elems > INT32_MAX)
        return sl_fail(err, SL_ERR_CORRUPT, "tokenizer.ggml.merges has %llu elements",
                       (unsigned long long)merges->n_elems);
    if (sl_pairs_init(&t->pairs, (uint32_t)merges->n_elems) != SL_OK)
        goto no_memory;
    struct sl_gguf_str_iter it = {.kv = merges};
    struct sl_str m;
    char *joined = malloc(2 * (size_t)MAX_TOKEN_BYTES);
    if (!joined)
        goto no_memory;
    for (uint32_t rank = 0; sl_gguf_str_next(&it, &m); rank++) {
        /* "left right"; a space is never part of either in the byte alphabet, but the left part
         * may not be empty. */
        const char *space = m.len > 1 ? memchr(m.ptr + 1, ' ', m.len - 1) : NULL;
        if (!space)
            continue;
        size_t left_len = (size_t)(space - m.ptr), right_len = m.len - left_len - 1;
        if (left_len + right_len > MAX_TOKEN_BYTES || right_len == 0)
            continue; /* cannot become a token */
        memcpy(joined, m.ptr, left_len);
        memcpy(joined + left_len, space + 1, right_len);
        uint32_t left, right, merged;
        if (sl_strings_intern(&t->strings, joined, left_len, &left) != SL_OK ||
            sl_strings_intern(&t->strings, joined + left_len, right_len, &right) != SL_OK ||
            sl_strings_intern(&t->strings, joined, left_len + right_len, &merged) != SL_OK) {
            free(joined);
            goto no_memory;
        }
        sl_pairs_add(&t->pairs, left, right, rank, merged);
    }
    free(joined);
    for (uint32_t b = 0; b < 256; b++) {
        char c[4] = {(char)b}, name[8];
        uint32_t id = t->raw ? sl_strings_find(&t->strings, name,
                                               (size_t)snprintf(name, sizeof name, "<0x%02X>", b))
                             : sl_strings_find(&t->strings, c, 1);
        t->byte_text[b] = id < t->n_vocab ? id : SL_NO_TOKEN;
        uint32_t n = sl_utf8_put(sl_byte_to_char((uint8_t)b), c);
        if (sl_strings_intern(&t->strings, c, n, &t->byte_symbol[b]) != SL_OK)
            goto no_memory;
    }
    return SL_OK;
no_memory:
    return sl_fail(err, SL_ERR_NOMEM, "out of memory for the merges");
}

static enum sl_status load_bpe(struct sl_tokenizer *t, const struct sl_gguf *g, bool gemma4,
                               struct sl_err *err) {
    struct sl_str pre = {"default", 7};
    enum sl_status status = sl_gguf_get_str(g, "tokenizer.ggml.pre", &pre, err);
    if (gemma4 && (status == SL_OK || status == SL_AGAIN)) {
        pre = (struct sl_str){"gemma4", 6}; /* the model's name says it all */
    } else if (status == SL_AGAIN || (status == SL_OK && pre.len == 0)) {
        sl_warn(
            "the model names no pre-split (tokenizer.ggml.pre); taking 'default', which may cut "
            "words in other places than its training did");
        pre = (struct sl_str){"default", 7};
    } else if (status != SL_OK)
        return status;
    SL_TRY(sl_pretok_create(pre.ptr, pre.len, &t->pretok, err));
    snprintf(t->kind, sizeof t->kind, "%s/%.*s", gemma4 ? "gemma4" : "gpt2", (int)pre.len, pre.ptr);
    t->add_bos = sl_pretok_traits(t->pretok)->add_bos;
    t->raw = sl_pretok_traits(t->pretok)->raw;
    bool no_bos = (pre.len == 4 && memcmp(pre.ptr, "glm4", 4) == 0) ||
                  (pre.len == 11 && memcmp(pre.ptr, "chatglm-bpe", 11) == 0);
    /* GPT-2 conversions of old rely on these. */
    t->bos = no_bos || gemma4 ? SL_NO_TOKEN : 11;
    t->eos = gemma4 ? SL_NO_TOKEN : 11;
    t->unk = SL_NO_TOKEN;
    return load_merges(t, g, err);
}

static enum sl_status load_spm(struct sl_tokenizer *t, const struct sl_gguf *g,
                               struct sl_err *err) {
    snprintf(t->kind, sizeof t->kind, "llama");
    t->model = SL_TOK_SPM;
    t->add_bos = true;
    t->add_space_prefix = true;
    t->bos = 1;
    t->eos = 2;
    t->unk = 0;
    enum sl_status status =
        sl_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, err);
    if (status != SL_OK && status != SL_AGAIN)
        return status;
    const struct sl_gguf_kv *scores;
    SL_TRY(
        find_array(g, "tokenizer.ggml.scores", SL_GGUF_F32, SL_GGUF_I32, t->n_vocab, &scores, err));
    t->scores = calloc(t->n_vocab, sizeof *t->scores);
    if (!t->scores)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for %u tokens", t->n_vocab);
    for (uint32_t i = 0; scores && i < t->n_vocab; i++)
        t->scores[i] = (float)sl_gguf_array_f64(scores, i);
    return SL_OK;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The raw bytes of a token's text; room for text.len bytes. */
static size_t decode_piece(const struct sl_tokenizer *t, const int *byte_of_char, uint32_t id,
                           char *out) {
    struct sl_str text = sl_strings_get(&t->strings, id);
    uint8_t attr = t->attr[id];
    size_t n = 0;
    if (attr & (SL_ATTR_CONTROL | SL_ATTR_UNKNOWN | SL_ATTR_USER_DEFINED)) {
        memcpy(out, text.ptr, text.len);
        return text.len;
    }
    if (attr & SL_ATTR_BYTE) { /* "<0x0A>" */
        int hi = text.len == 6 ? hex_digit(text.ptr[3]) : -1;
        int lo = text.len == 6 ? hex_digit(text.ptr[4]) : -1;
        if (hi < 0 || lo < 0)
            return 0;
        out[0] = (char)(hi << 4 | lo);
        return 1;
    }
    if (!(attr & SL_ATTR_NORMAL))
        return 0; /* unused, or of an unknown type */
    for (size_t i = 0; i < text.len;) {
        const unsigned char *s = (const unsigned char *)text.ptr + i;
        uint32_t len = sl_utf8_len(s, text.len - i);
        uint32_t cp = len ? sl_utf8_get(s, len) : s[0];
        bool alphabet = t->model == SL_TOK_BPE && !t->raw;
        if (!alphabet && cp == 0x2581 && len)
            out[n++] = ' ';
        else if (alphabet && len && cp < 0x180 && byte_of_char[cp] >= 0)
            out[n++] = (char)byte_of_char[cp];
        else { /* outside the alphabet: as it stands */
            memcpy(out + n, s, len ? len : 1);
            n += len ? len : 1;
        }
        i += len ? len : 1;
    }
    return n;
}

static enum sl_status load_pieces(struct sl_tokenizer *t, struct sl_err *err) {
    int byte_of_char[0x180];
    for (uint32_t c = 0; c < 0x180; c++)
        byte_of_char[c] = sl_char_to_byte(c);
    size_t room = 0, n = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++)
        room += sl_strings_get(&t->strings, i).len;
    t->pieces = malloc(room + 1);
    t->piece = malloc(((size_t)t->n_vocab + 1) * sizeof *t->piece);
    if (!t->pieces || !t->piece)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for %u tokens", t->n_vocab);
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        t->piece[i] = n;
        n += decode_piece(t, byte_of_char, i, t->pieces + n);
    }
    t->piece[t->n_vocab] = n;
    for (uint32_t b = 0; b < 256; b++) {
        char name[8], c = (char)b;
        snprintf(name, sizeof name, "<0x%02X>", b);
        uint32_t id = sl_tokenizer_find(t, name, 6);
        if (id == SL_NO_TOKEN)
            id = sl_tokenizer_find(t, &c, 1);
        t->byte_token[b] = id == SL_NO_TOKEN ? t->unk : id;
    }
    return SL_OK;
}

enum sl_status sl_tokenizer_create(const struct sl_gguf *g, struct sl_tokenizer **out_tok,
                                   struct sl_err *err) {
    struct sl_str model = {0};
    enum sl_status status = sl_gguf_get_str(g, "tokenizer.ggml.model", &model, err);
    if (status == SL_AGAIN)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "tokenizer.ggml.model is missing: the file has no "
                       "tokenizer");
    if (status != SL_OK)
        return status;
    bool bpe = model.len == 4 && memcmp(model.ptr, "gpt2", 4) == 0;
    bool spm = model.len == 5 && memcmp(model.ptr, "llama", 5) == 0;
    bool gemma4 = model.len == 6 && memcmp(model.ptr, "gemma4", 6) == 0;
    if (!bpe && !spm && !gemma4)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "tokenizer.ggml.model: unknown tokenizer '%.*s'; known are 'gpt2' "
                       "(byte-level BPE), 'llama' (SentencePiece) and 'gemma4'",
                       model.len > 64 ? 64 : (int)model.len, model.ptr);
    struct sl_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for the tokenizer");
    if ((status = load_tokens(t, g, err)) != SL_OK ||
        (status = spm ? load_spm(t, g, err) : load_bpe(t, g, gemma4, err)) != SL_OK ||
        (status = sl_tokenizer_load_special(t, g, err)) != SL_OK ||
        (status = load_pieces(t, err)) != SL_OK) {
        sl_tokenizer_destroy(&t);
        return status;
    }
    *out_tok = t;
    return SL_OK;
}

void sl_tokenizer_destroy(struct sl_tokenizer **tok) {
    struct sl_tokenizer *t = *tok;
    if (!t)
        return;
    sl_strings_release(&t->strings);
    sl_pairs_release(&t->pairs);
    sl_matcher_release(&t->special);
    sl_matcher_release(&t->user);
    sl_pretok_destroy(&t->pretok);
    free(t->attr);
    free(t->scores);
    free(t->pieces);
    free(t->piece);
    free(t->strip_right);
    free(t);
    *tok = NULL;
}

static enum sl_status encode(const struct sl_tokenizer *t, const char *text, size_t len,
                             unsigned flags, const struct sl_guard *guard,
                             const struct sl_encode_watch *watch, struct sl_ids *out_ids) {
    struct sl_encode_pace pace = {watch, 0};
    if (len > MAX_TEXT_BYTES)
        return SL_ERR_INVALID;
    bool add_special = flags & SL_ENCODE_ADD_SPECIAL;
    size_t n_before = out_ids->n, n_fragments;
    struct sl_fragment *fragments;
    SL_TRY(sl_matcher_cut(flags & SL_ENCODE_PARSE_SPECIAL ? &t->special : &t->user, t->strip_right,
                          guard, text, len, &pace, &fragments, &n_fragments));
    enum sl_status status = SL_OK;
    if (add_special && t->add_bos)
        status = sl_ids_push(out_ids, t->bos);
    bool after_special = true; /* SentencePiece puts its space at the start and after each one */
    for (size_t i = 0; i < n_fragments && status == SL_OK; i++) {
        const struct sl_fragment *f = &fragments[i];
        if (f->token != SL_NO_TOKEN)
            status = sl_ids_push(out_ids, f->token);
        else if (t->model == SL_TOK_BPE)
            status = sl_bpe_encode(t, text + f->offset, f->len, guard != NULL, &pace, out_ids);
        else
            status =
                sl_spm_encode(t, text + f->offset, f->len, after_special && t->add_space_prefix,
                              guard != NULL, &pace, out_ids);
        after_special = f->token != SL_NO_TOKEN;
    }
    if (status == SL_OK && add_special && t->add_eos)
        status = sl_ids_push(out_ids, t->eos);
    free(fragments);
    if (status != SL_OK)
        out_ids->n = n_before;
    return status;
}

enum sl_status sl_tokenizer_encode(const struct sl_tokenizer *t, const char *text, size_t len,
                                   unsigned flags, struct sl_ids *out_ids) {
    return encode(t, text, len, flags, NULL, NULL, out_ids);
}

enum sl_status sl_tokenizer_encode_watched(const struct sl_tokenizer *t, const char *text,
                                           size_t len, unsigned flags,
                                           const struct sl_encode_watch *watch,
                                           struct sl_ids *out_ids) {
    return encode(t, text, len, flags, NULL, watch, out_ids);
}

enum sl_status sl_tokenizer_encode_own(const struct sl_tokenizer *t, const char *text, size_t len,
                                       const struct sl_range *own, size_t n_own,
                                       const struct sl_encode_watch *watch,
                                       struct sl_ids *out_ids) {
    struct sl_guard guard = {t->attr, own, n_own};
    return encode(t, text, len, SL_ENCODE_PARSE_SPECIAL, &guard, watch, out_ids);
}

struct sl_str sl_tokenizer_piece(const struct sl_tokenizer *t, uint32_t id, bool special) {
    if (id >= t->n_vocab || (!special && (t->attr[id] & (SL_ATTR_CONTROL | SL_ATTR_UNKNOWN))))
        return (struct sl_str){"", 0};
    return (struct sl_str){t->pieces + t->piece[id], t->piece[id + 1] - t->piece[id]};
}

uint32_t sl_tokenizer_n_vocab(const struct sl_tokenizer *t) {
    return t->n_vocab;
}
uint32_t sl_tokenizer_bos(const struct sl_tokenizer *t) {
    return t->bos;
}
uint32_t sl_tokenizer_eos(const struct sl_tokenizer *t) {
    return t->eos;
}
uint32_t sl_tokenizer_fim(const struct sl_tokenizer *t, enum sl_fim mark) {
    return t->fim[mark];
}
const char *sl_tokenizer_kind(const struct sl_tokenizer *t) {
    return t->kind;
}

bool sl_tokenizer_is_eog(const struct sl_tokenizer *t, uint32_t id) {
    return id < t->n_vocab && (t->attr[id] & SL_ATTR_EOG);
}

bool sl_tokenizer_is_control(const struct sl_tokenizer *t, uint32_t id) {
    return id < t->n_vocab && (t->attr[id] & SL_ATTR_CONTROL);
}

bool sl_tokenizer_is_guarded(const struct sl_tokenizer *t, uint32_t id) {
    return sl_tokenizer_guarded(t, id);
}

uint32_t sl_tokenizer_find(const struct sl_tokenizer *t, const char *text, size_t len) {
    uint32_t id = sl_strings_find(&t->strings, text, len);
    return id < t->n_vocab ? id : SL_NO_TOKEN;
}
