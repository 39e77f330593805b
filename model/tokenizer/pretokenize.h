/* Pre-splitting for byte-level BPE: the regexes that cut a text into words before merging, chosen
 * by the name in tokenizer.ggml.pre.
 *
 * A pre-split is a sequence of steps. The first cuts the text, each next one cuts every piece of
 * the one before; what a pattern matches becomes a piece, and so does each stretch that it leaves
 * out. Anchors and look-aheads see the piece, not the text. This is the Sequence of Split
 * (behaviour "Isolated") of the Hugging Face tokenizers.
 *
 * Where the models' own tokenizer files and llama.cpp disagree (llama.cpp approximates some
 * patterns), the model's own pattern is taken: that is what the model was trained with. The table
 * says where that is not so. Source: the tokenizer.json of the models; the list of names: llama.cpp
 * src/llama-vocab.cpp. */
#ifndef SL_MODEL_PRETOKENIZE_H
#define SL_MODEL_PRETOKENIZE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_pretok;

/* What else the name decides. */
struct sl_pretok_traits {
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
    bool add_bos;       /* when the file does not say */
    bool always_bos;    /* whatever the file says */
    bool raw;           /* SentencePiece's alphabet: characters as they are, with U+2581 for a space
                           and tokens "<0xXX>" for what has no token; the words are cut from that */
    bool newlines;      /* a word of newlines that is a token is that token */
};

/* Compiles the steps of a name (any bytes). SL_ERR_UNSUPPORTED names an unknown one.
 * Immutable afterwards; any thread may split with it. */
enum sl_status sl_pretok_create(const char *name, size_t len, struct sl_pretok **out_pretok,
                                struct sl_err *err) SL_MUST_CHECK;
void sl_pretok_destroy(struct sl_pretok **p);
const struct sl_pretok_traits *sl_pretok_traits(const struct sl_pretok *p);

/* The i-th known name (not NUL-terminated), NULL past the end. */
const char *sl_pretok_name_at(uint32_t i, size_t *out_len);

/* Called for each word in order; words are never empty and together make up the text. Anything but
 * SL_OK ends the splitting and is returned. */
typedef enum sl_status sl_pretok_emit(void *user, const char *word, size_t len);

/* text: well-formed UTF-8 (the caller checks: see sl_utf8_valid_prefix). Takes time linear in len
 * for every known name. Errors: SL_ERR_NOMEM, SL_ERR_INVALID if the regex engine gives up (a
 * safety net; no known text does that), and what emit returns. */
enum sl_status sl_pretok_split(const struct sl_pretok *p, const char *text, size_t len,
                               sl_pretok_emit *emit, void *user) SL_MUST_CHECK;

/* inside: the table, model/tokenizer/pretokenize_table.c */
#define SL_PRETOK_MAX_STEPS 6u
enum sl_pretok_step_kind {
    SL_PRETOK_END = 0,
    SL_PRETOK_MATCHES, /* isolate what matches */
    SL_PRETOK_GROUPS3, /* and cut each match into threes of characters, counted from its end */
    SL_PRETOK_MARKS3,  /* cut the piece at the threes of each match, but not around the match */
};
struct sl_pretok_step {
    enum sl_pretok_step_kind kind;
    const char *pattern;
};
struct sl_pretok_rule {
    const char *names; /* separated by spaces */
    struct sl_pretok_traits traits;
    struct sl_pretok_step steps[SL_PRETOK_MAX_STEPS];
};
extern const struct sl_pretok_rule sl_pretok_rules[];
extern const uint32_t sl_pretok_n_rules;

#endif
