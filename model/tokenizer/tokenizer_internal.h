/* Inside of the tokenizer: shared by model/tokenizer*.c alone. */
#ifndef SL_MODEL_TOKENIZER_INTERNAL_H
#define SL_MODEL_TOKENIZER_INTERNAL_H

#include "model/tokenizer/pretokenize.h"
#include "model/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Strings with dense ids, found by content in O(1). Ids below n_vocab are the tokens; the strings
 * that only merges know come after. A text that appears twice keeps both ids and is found as the
 * first. */
struct sl_strings {
    char *bytes;
    size_t n_bytes, cap_bytes;
    struct sl_string {
        size_t offset;
        uint32_t len;
        uint32_t hash;
    } * items;
    uint32_t n, cap;
    uint32_t *slots; /* id + 1, 0 = free */
    uint32_t n_slots;
    uint64_t seed;
};
enum sl_status sl_strings_init(struct sl_strings *s, uint32_t n_expected) SL_MUST_CHECK;
void sl_strings_release(struct sl_strings *s);
/* Appends a string under the next id, whether it is known or not. */
enum sl_status sl_strings_append(struct sl_strings *s, const char *text, size_t len,
                                 uint32_t *out_id) SL_MUST_CHECK;
uint32_t sl_strings_find(const struct sl_strings *s, const char *text, size_t len);
/* Finds or appends. */
enum sl_status sl_strings_intern(struct sl_strings *s, const char *text, size_t len,
                                 uint32_t *out_id) SL_MUST_CHECK;
static inline struct sl_str sl_strings_get(const struct sl_strings *s, uint32_t id) {
    return (struct sl_str){s->bytes + s->items[id].offset, s->items[id].len};
}

/* (left, right) -> rank, open addressing. */
struct sl_pairs {
    struct sl_pair {
        uint64_t key; /* left << 32 | right; UINT64_MAX = free */
        uint32_t rank, merged;
    } * slots;
    uint32_t n_slots;
    uint64_t seed;
};
enum sl_status sl_pairs_init(struct sl_pairs *p, uint32_t n_expected) SL_MUST_CHECK;
void sl_pairs_release(struct sl_pairs *p);
/* The first rank of a pair stays. At most n_expected pairs. */
void sl_pairs_add(struct sl_pairs *p, uint32_t left, uint32_t right, uint32_t rank,
                  uint32_t merged);
const struct sl_pair *sl_pairs_find(const struct sl_pairs *p, uint32_t left, uint32_t right);

/* Finds special tokens in a text: Aho-Corasick over their texts. */
struct sl_matcher {
    struct sl_matcher_state {
        uint32_t fail;   /* longest proper suffix that is a state */
        uint32_t output; /* nearest state on the fail path, itself included, that ends a token */
        uint32_t token;  /* that ends here, or SL_NO_TOKEN */
        uint32_t depth;
    } * states;
    uint32_t n_states;
    struct sl_matcher_edge {
        uint64_t key; /* state << 8 | byte; UINT64_MAX = free */
        uint32_t next;
    } * edges;
    uint32_t n_edge_slots;
    uint32_t root_next[256]; /* 0 = none */
    uint32_t max_len;
};
enum sl_status sl_matcher_init(struct sl_matcher *m, const struct sl_strings *tokens,
                               const uint32_t *ids, uint32_t n_ids) SL_MUST_CHECK;
void sl_matcher_release(struct sl_matcher *m);

/* A stretch of the text, or one token. */
struct sl_fragment {
    size_t offset, len;
    uint32_t token; /* SL_NO_TOKEN: text */
};
/* Which tokens may be found where: those with SL_ATTR_GUARDED only within a span of own. */
struct sl_guard {
    const uint8_t *attr;
    const struct sl_range *own; /* ascending, not touching */
    size_t n_own;
};
struct sl_encode_pace;
/* Cuts text into fragments. Longer tokens win over shorter ones wherever they stand, then the
 * leftmost wins (llama.cpp's order). strip_right[id], when given: white space after it goes.
 * guard NULL: any token, anywhere. Goes over the text once for each length of the tokens in it;
 * pace may end that with its watch's status. out: malloc'd, the caller frees; NULL with n 0 for an
 * empty text and after an error. */
enum sl_status sl_matcher_cut(const struct sl_matcher *m, const bool *strip_right,
                              const struct sl_guard *guard, const char *text, size_t len,
                              struct sl_encode_pace *pace, struct sl_fragment **out,
                              size_t *out_n) SL_MUST_CHECK;

enum {
    SL_ATTR_NORMAL = 1,
    SL_ATTR_UNKNOWN = 2,
    SL_ATTR_CONTROL = 4,
    SL_ATTR_USER_DEFINED = 8,
    SL_ATTR_BYTE = 16,
    SL_ATTR_UNUSED = 32,
    SL_ATTR_EOG = 64,
    SL_ATTR_GUARDED = 128, /* sl_tokenizer_is_guarded */
};

enum sl_tok_model { SL_TOK_BPE, SL_TOK_SPM };

struct sl_tokenizer {
    enum sl_tok_model model;
    char kind[80];
    uint32_t n_vocab;
    struct sl_strings strings;
    uint8_t *attr; /* [n_vocab] SL_ATTR_* */
    float *scores; /* [n_vocab], SPM */
    char *pieces;  /* raw bytes of all tokens, one after another */
    size_t *piece; /* [n_vocab + 1] offsets into pieces */
    uint32_t max_token_bytes;

    uint32_t bos, eos, unk;     /* or SL_NO_TOKEN */
    uint32_t fim[SL_FIM_COUNT]; /* likewise */
    bool add_bos, add_eos, add_space_prefix;

    struct sl_matcher special, user; /* all special tokens; those that are always parsed */
    bool *strip_right;               /* [n_vocab] or NULL */

    /* BPE */
    struct sl_pretok *pretok;
    struct sl_pairs pairs;
    uint32_t byte_symbol[256]; /* string id of the character that stands for a byte */
    uint32_t byte_text[256]; /* token whose text is this one byte (raw: "<0xXX>"), or SL_NO_TOKEN */
    bool raw;                /* sl_pretok_traits.raw */
    /* SPM */
    uint32_t byte_token[256]; /* "<0xXX>", else the byte itself, else unk, or SL_NO_TOKEN */
};

enum sl_status sl_ids_push(struct sl_ids *ids, uint32_t id) SL_MUST_CHECK;

/* A watch (tokenizer.h) and how much is done until it is asked again. */
struct sl_encode_pace {
    const struct sl_encode_watch *watch; /* may be NULL */
    uint32_t left;
};
#define SL_ENCODE_PACE 4096u /* bytes, words or merges: some milliseconds at most */
static inline enum sl_status sl_encode_go_on(struct sl_encode_pace *p) {
    if (!p->watch || p->left--)
        return SL_OK;
    p->left = SL_ENCODE_PACE;
    return p->watch->poll(p->watch->ctx);
}

/* One stretch of plain text. guard: no merge makes a guarded token of it. (Without, a file whose
 * merges or scores lead to one gets it, as in llama.cpp.) */
enum sl_status sl_bpe_encode(const struct sl_tokenizer *t, const char *text, size_t len, bool guard,
                             struct sl_encode_pace *pace, struct sl_ids *out) SL_MUST_CHECK;
/* space: put the space prefix before it. */
enum sl_status sl_spm_encode(const struct sl_tokenizer *t, const char *text, size_t len, bool space,
                             bool guard, struct sl_encode_pace *pace,
                             struct sl_ids *out) SL_MUST_CHECK;
static inline bool sl_tokenizer_guarded(const struct sl_tokenizer *t, uint32_t id) {
    return id < t->n_vocab && (t->attr[id] & SL_ATTR_GUARDED);
}

/* Special ids, attributes, end-of-generation set. Reads the file, fills t. */
enum sl_status sl_tokenizer_load_special(struct sl_tokenizer *t, const struct sl_gguf *g,
                                         struct sl_err *err) SL_MUST_CHECK;

/* The character (below U+0180) by which byte-level BPE writes a byte, and back (-1: none). */
uint32_t sl_byte_to_char(uint8_t byte);
int sl_char_to_byte(uint32_t cp);

/* A binary min-heap of 64-bit keys; the storage is the caller's. */
void sl_heap_build(uint64_t *heap, size_t n);
void sl_heap_push(uint64_t *heap, size_t *n, uint64_t key);
uint64_t sl_heap_pop(uint64_t *heap, size_t *n);

#endif
