/* Byte-level BPE: the text is cut into words (model/tokenizer/pretokenize.h), a word starts as one
 * symbol per byte (or, of a raw vocabulary, per character), and the adjacent pair of the lowest
 * rank, leftmost first, is merged until none is left. */
#include "model/tokenizer/tokenizer_internal.h"
#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

#define NONE        UINT32_MAX
#define SHORT_WORD  24u         /* symbols; up to here looking at all pairs beats a heap */
#define MAX_SYMBOLS 0x7fffffffu /* of one word */

struct bpe {
    const struct sl_tokenizer *t;
    bool guard; /* no guarded tokens */
    struct sl_ids *out;
    struct sl_encode_pace *pace;
    /* room for one long word */
    uint32_t *symbol, *next, *prev, *rank;
    uint64_t *heap;
    size_t cap;
    /* when the words are cut from a stand-in for the text: where the stand-in and the text start */
    const char *stand_in, *bytes;
    char *word; /* a word in the byte alphabet, for a look-up */
};

static enum sl_status reserve(struct bpe *b, size_t n) {
    if (n <= b->cap)
        return SL_OK;
    if (n > MAX_SYMBOLS)
        return SL_ERR_NOMEM;
    free(b->symbol);
    free(b->heap);
    b->cap = 0;
    size_t cap = n < 4096 ? 4096 : n;
    b->symbol = malloc(cap * 4 * sizeof *b->symbol);
    /* Each merge takes one pair off and puts at most two on, so there are never more than 3n. */
    b->heap = malloc(cap * 3 * sizeof *b->heap);
    if (!b->symbol || !b->heap)
        return SL_ERR_NOMEM;
    b->next = b->symbol + cap;
    b->prev = b->next + cap;
    b->rank = b->prev + cap;
    b->cap = cap;
    return SL_OK;
}

/* The tokens of single bytes, as far as there are such. */
static enum sl_status emit_text(struct bpe *b, const char *text, size_t len) {
    enum sl_status status = SL_OK;
    for (size_t i = 0; i < len && status == SL_OK; i++) {
        uint32_t id = b->t->byte_text[(unsigned char)text[i]];
        if (id != SL_NO_TOKEN)
            status = sl_ids_push(b->out, id);
    }
    return status;
}

/* A guarded token that merges lead to: the bytes that they were merged from. */
static enum sl_status emit_bytes(struct bpe *b, uint32_t symbol) {
    struct sl_str text = sl_strings_get(&b->t->strings, symbol);
    const unsigned char *s = (const unsigned char *)text.ptr;
    enum sl_status status = SL_OK;
    if (b->t->raw)
        return emit_text(b, text.ptr, text.len);
    for (size_t i = 0; i < text.len && status == SL_OK;) {
        uint32_t n = sl_utf8_len(s + i, text.len - i);
        int byte = n ? sl_char_to_byte(sl_utf8_get(s + i, n)) : -1;
        uint32_t id = byte < 0 ? SL_NO_TOKEN : b->t->byte_symbol[byte];
        if (id < b->t->n_vocab && !sl_tokenizer_guarded(b->t, id))
            status = sl_ids_push(b->out, id);
        i += n ? n : 1;
    }
    return status;
}

static enum sl_status emit_symbol(struct bpe *b, uint32_t symbol) {
    if (b->guard && sl_tokenizer_guarded(b->t, symbol))
        return emit_bytes(b, symbol);
    if (symbol < b->t->n_vocab)
        return sl_ids_push(b->out, symbol);
    /* Known to the merges but not a token: its bytes, as far as there are tokens that spell them
     * literally. */
    struct sl_str text = sl_strings_get(&b->t->strings, symbol);
    return emit_text(b, text.ptr, text.len);
}

static uint32_t pair_rank(const struct bpe *b, uint32_t left, uint32_t right, uint32_t *merged) {
    const struct sl_pair *p = sl_pairs_find(&b->t->pairs, left, right);
    if (!p)
        return NONE;
    *merged = p->merged;
    return p->rank;
}

/* symbol [n], at most SHORT_WORD: is written to. */
static enum sl_status encode_short(struct bpe *b, uint32_t *symbol, uint32_t n) {
    uint32_t rank[SHORT_WORD], merged[SHORT_WORD];
    for (uint32_t i = 0; i + 1 < n; i++)
        rank[i] = pair_rank(b, symbol[i], symbol[i + 1], &merged[i]);
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++) {
            if (rank[i] < rank[best])
                best = i;
        }
        if (rank[best] == NONE)
            break;
        symbol[best] = merged[best];
        n--;
        for (uint32_t i = best + 1; i < n; i++) {
            symbol[i] = symbol[i + 1];
            rank[i - 1] = rank[i];
            merged[i - 1] = merged[i];
        }
        if (best > 0)
            rank[best - 1] = pair_rank(b, symbol[best - 1], symbol[best], &merged[best - 1]);
        if (best + 1 < n)
            rank[best] = pair_rank(b, symbol[best], symbol[best + 1], &merged[best]);
    }
    for (uint32_t i = 0; i < n; i++) {
        SL_TRY(emit_symbol(b, symbol[i]));
    }
    return SL_OK;
}

/* A heap entry is rank << 32 | left: a rank belongs to one pair, so an entry is current as long as
 * the pair that starts at left has that rank. */
/* b->symbol [n], at least one. */
static enum sl_status encode_long(struct bpe *b, uint32_t n) {
    uint32_t ignored;
    size_t n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        b->next[i] = i + 1 < n ? i + 1 : NONE;
        b->prev[i] = i ? i - 1 : NONE;
        b->rank[i] = NONE;
    }
    for (uint32_t i = 0; i + 1 < n; i++) {
        SL_TRY(sl_encode_go_on(b->pace));
        b->rank[i] = pair_rank(b, b->symbol[i], b->symbol[i + 1], &ignored);
        if (b->rank[i] != NONE)
            b->heap[n_heap++] = (uint64_t)b->rank[i] << 32 | i;
    }
    sl_heap_build(b->heap, n_heap);
    while (n_heap) {
        SL_TRY(sl_encode_go_on(b->pace));
        uint64_t top = sl_heap_pop(b->heap, &n_heap);
        uint32_t left = (uint32_t)top;
        if (b->rank[left] != (uint32_t)(top >> 32))
            continue;
        uint32_t right = b->next[left];
        pair_rank(b, b->symbol[left], b->symbol[right], &b->symbol[left]);
        b->rank[right] = NONE;
        uint32_t after = b->next[left] = b->next[right];
        b->rank[left] = NONE;
        if (after != NONE) {
            b->prev[after] = left;
            b->rank[left] = pair_rank(b, b->symbol[left], b->symbol[after], &ignored);
            if (b->rank[left] != NONE)
                sl_heap_push(b->heap, &n_heap, (uint64_t)b->rank[left] << 32 | left);
        }
        uint32_t before = b->prev[left];
        if (before != NONE) {
            b->rank[before] = pair_rank(b, b->symbol[before], b->symbol[left], &ignored);
            if (b->rank[before] != NONE)
                sl_heap_push(b->heap, &n_heap, (uint64_t)b->rank[before] << 32 | before);
        }
    }
    for (uint32_t i = 0; i != NONE; i = b->next[i]) {
        SL_TRY(emit_symbol(b, b->symbol[i]));
    }
    return SL_OK;
}

/* A word of characters: one that no merge or token knows joins nothing, so the word ends there. */
static enum sl_status encode_raw(struct bpe *b, const char *s, size_t len) {
    enum sl_status status = reserve(b, len);
    uint32_t n = 0;
    for (size_t i = 0; i <= len && status == SL_OK;) {
        uint32_t size = i < len ? sl_utf8_len((const unsigned char *)s + i, len - i) : 0;
        if (i < len && !size) /* only lone surrogates are left */
            size = len - i < 3 ? 1 : 3;
        uint32_t id = size ? sl_strings_find(&b->t->strings, s + i, size) : NONE;
        if (id != NONE) {
            b->symbol[n++] = id;
            status = sl_encode_go_on(b->pace);
            i += size;
            continue;
        }
        if (n)
            status = n <= SHORT_WORD ? encode_short(b, b->symbol, n) : encode_long(b, n);
        if (status == SL_OK)
            status = emit_text(b, s + i, size);
        n = 0;
        i += size ? size : 1;
    }
    return status;
}

/* The token that is this word, or SL_NO_TOKEN. */
static uint32_t find_word(struct bpe *b, const unsigned char *s, size_t len) {
    if (len > b->t->max_token_bytes)
        return SL_NO_TOKEN;
    if (b->t->raw) {
        uint32_t token = sl_strings_find(&b->t->strings, (const char *)s, len);
        return token < b->t->n_vocab ? token : SL_NO_TOKEN;
    }
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        struct sl_str c = sl_strings_get(&b->t->strings, b->t->byte_symbol[s[i]]);
        memcpy(b->word + n, c.ptr, c.len);
        n += c.len;
    }
    uint32_t id = sl_strings_find(&b->t->strings, b->word, n);
    return id < b->t->n_vocab ? id : SL_NO_TOKEN;
}

static enum sl_status encode_word(void *user, const char *word, size_t len) {
    struct bpe *b = user;
    const unsigned char *s = (const unsigned char *)(b->bytes + (word - b->stand_in));
    SL_TRY(sl_encode_go_on(b->pace));
    bool newlines = *s == '\n' && sl_pretok_traits(b->t->pretok)->newlines;
    if (b->word || newlines) {
        uint32_t id = find_word(b, s, len);
        if (id != SL_NO_TOKEN && !(b->guard && sl_tokenizer_guarded(b->t, id)))
            return sl_ids_push(b->out, id);
    }
    if (b->t->raw)
        return encode_raw(b, (const char *)s, len);
    uint32_t few[SHORT_WORD], *symbol = few;
    if (len > SHORT_WORD) {
        SL_TRY(reserve(b, len));
        symbol = b->symbol;
    }
    for (size_t i = 0; i < len; i++)
        symbol[i] = b->t->byte_symbol[s[i]];
    return len <= SHORT_WORD ? encode_short(b, few, (uint32_t)len) : encode_long(b, (uint32_t)len);
}

/* malloc'd, with U+2581 in place of each space; NULL: no memory. */
static char *with_spaces_marked(const char *text, size_t len, size_t *out_len) {
    size_t n_spaces = 0, n = 0;
    for (size_t i = 0; i < len; i++)
        n_spaces += text[i] == ' ';
    char *out = malloc(len + 2 * n_spaces + 1);
    for (size_t i = 0; out && i < len; i++) {
        if (text[i] != ' ') {
            out[n++] = text[i];
            continue;
        }
        memcpy(out + n, "\xe2\x96\x81", 3);
        n += 3;
    }
    *out_len = n;
    return out;
}

/* Rewrites bytes that are not UTF-8 as llama.cpp does: a byte that begins no character becomes
 * U+FFFD; overlong forms are read as what they mean; lone surrogates stay. out gets the bytes to
 * encode, stand_in the same with something of equal length and category in the surrogates' place,
 * for the regex engine takes none. Both have room for 3 * len. */
static size_t repair(const char *text, size_t len, char *out, char *stand_in) {
    const unsigned char *s = (const unsigned char *)text;
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t want = s[i] < 0x80 ? 1 : s[i] < 0xc0 ? 0 : s[i] < 0xe0 ? 2 : s[i] < 0xf0 ? 3 : 4;
        if (s[i] >= 0xf8 || want > len - i)
            want = 0;
        for (uint32_t k = 1; k < want; k++) {
            if ((s[i + k] & 0xc0) != 0x80)
                want = 0;
        }
        uint32_t cp = want ? sl_utf8_get(s + i, want) : 0xfffd;
        if (cp > 0x10ffff) {
            cp = 0xfffd;
            want = 0;
        }
        i += want ? want : 1;
        bool surrogate = cp >= 0xd800 && cp <= 0xdfff;
        sl_utf8_put(surrogate ? 0xe000 : cp, stand_in + n);
        n += sl_utf8_put(cp, out + n);
    }
    return n;
}

enum sl_status sl_bpe_encode(const struct sl_tokenizer *t, const char *text, size_t len, bool guard,
                             struct sl_encode_pace *pace, struct sl_ids *out) {
    struct bpe b = {
        .t = t, .guard = guard, .out = out, .pace = pace, .stand_in = text, .bytes = text};
    char *repaired = NULL, *marked = NULL;
    enum sl_status status = SL_ERR_NOMEM;
    if (t->raw) {
        if (!(marked = with_spaces_marked(text, len, &len)))
            goto out;
        text = b.stand_in = b.bytes = marked;
    }
    if (sl_utf8_valid_prefix(text, len) != len) {
        if (len > SIZE_MAX / 6 || !(repaired = malloc(len * 6)))
            goto out;
        b.bytes = repaired;
        b.stand_in = repaired + len * 3;
        len = repair(text, len, repaired, repaired + len * 3);
    }
    /* Two bytes per character of the alphabet. */
    if (sl_pretok_traits(t->pretok)->ignore_merges &&
        !(b.word = malloc((size_t)t->max_token_bytes * 2 + 1)))
        goto out;
    status = sl_pretok_split(t->pretok, b.stand_in, len, encode_word, &b);
out:
    free(b.word);
    free(b.symbol);
    free(b.heap);
    free(repaired);
    free(marked);
    return status;
}
