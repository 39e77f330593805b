/* Text to token ids and back: byte-level BPE (tokenizer.ggml.model "gpt2") with the pre-split
 * regexes named by tokenizer.ggml.pre, and SentencePiece BPE with byte fallback ("llama").
 *
 * A tokenizer is immutable after creation; any thread may encode and decode with it. */
#ifndef SL_MODEL_TOKENIZER_H
#define SL_MODEL_TOKENIZER_H

#include "common/range.h"
#include "model/gguf/gguf.h"

struct sl_tokenizer;

/* Copies what it needs: the gguf may be closed afterwards. Unknown model or pre-split name:
 * SL_ERR_UNSUPPORTED naming it. */
enum sl_status sl_tokenizer_create(const struct sl_gguf *g, struct sl_tokenizer **out_tok,
                                   struct sl_err *err) SL_MUST_CHECK;
void sl_tokenizer_destroy(struct sl_tokenizer **tok);

/* A growing array of ids; zero-initialise, release with sl_ids_release. */
struct sl_ids {
    uint32_t *ids;
    size_t n, cap;
};
void sl_ids_release(struct sl_ids *ids);

enum {
    SL_ENCODE_ADD_SPECIAL = 1,   /* BOS/EOS as the file asks for */
    SL_ENCODE_PARSE_SPECIAL = 2, /* control tokens written in the text become their ids */
};
/* Appends the ids of text, any bytes; on an error nothing is appended. Bytes that are not UTF-8 are
 * encoded like llama.cpp does: BPE puts U+FFFD in their place, SentencePiece has byte tokens.
 * Errors: SL_ERR_NOMEM; SL_ERR_INVALID for a text over 256 MiB. */
enum sl_status sl_tokenizer_encode(const struct sl_tokenizer *tok, const char *text, size_t len,
                                   unsigned flags, struct sl_ids *out_ids) SL_MUST_CHECK;

/* The same for a text whose encoding may take seconds: watch is asked before it begins and then
 * every few thousand pieces whether to go on. Anything but SL_OK ends the encoding with that
 * status. NULL: nobody is asked. */
struct sl_encode_watch {
    enum sl_status (*poll)(void *ctx);
    void *ctx;
};
enum sl_status sl_tokenizer_encode_watched(const struct sl_tokenizer *tok, const char *text,
                                           size_t len, unsigned flags,
                                           const struct sl_encode_watch *watch,
                                           struct sl_ids *out_ids) SL_MUST_CHECK;

/* Raw bytes of one token as they appear in text; control tokens give nothing unless special is set.
 * Out of range: empty. */
struct sl_str sl_tokenizer_piece(const struct sl_tokenizer *tok, uint32_t id, bool special);

/* Streaming detokenisation: never emits half a UTF-8 character.
 * Zero-initialise; push each id and print what comes out; finish flushes an incomplete tail as
 * U+FFFD. out points into the struct until the next call. special: also print control tokens. */
struct sl_detok {
    char pending[4];
    uint32_t n_pending;
    bool started; /* SentencePiece: the first token's leading space is dropped */
    char *buf;    /* grown as needed, freed by sl_detok_release */
    size_t cap;
};
enum sl_status sl_detok_push(struct sl_detok *d, const struct sl_tokenizer *tok, uint32_t id,
                             bool special, struct sl_str *out) SL_MUST_CHECK;
enum sl_status sl_detok_finish(struct sl_detok *d, struct sl_str *out) SL_MUST_CHECK;
void sl_detok_release(struct sl_detok *d);

uint32_t sl_tokenizer_n_vocab(const struct sl_tokenizer *tok);
/* SL_NO_TOKEN when the file names none. */
#define SL_NO_TOKEN UINT32_MAX
uint32_t sl_tokenizer_bos(const struct sl_tokenizer *tok);
uint32_t sl_tokenizer_eos(const struct sl_tokenizer *tok);
/* The marks of a prompt that asks for the text between two others: the first two stand in front of
 * what comes before and after the gap, the third in front of the answer. */
enum sl_fim {
    SL_FIM_PREFIX,
    SL_FIM_SUFFIX,
    SL_FIM_MIDDLE,
    SL_FIM_REPO, /* before a project's name */
    SL_FIM_FILE, /* before a file's name */
    SL_FIM_COUNT
};
#define SL_FIM_NEEDED 3u /* the first of them, without which a model cannot fill a gap */
uint32_t sl_tokenizer_fim(const struct sl_tokenizer *tok, enum sl_fim mark);
/* End of generation: EOS, EOT, EOM and the well-known end-of-turn control tokens. */
bool sl_tokenizer_is_eog(const struct sl_tokenizer *tok, uint32_t id);
bool sl_tokenizer_is_control(const struct sl_tokenizer *tok, uint32_t id);
/* The same for a text of which only a part may hold control tokens: guarded ones are parsed where
 * they lie within a span of own (ascending, not touching), and no other text becomes one, by merges
 * either. Tokens that a file defines as part of its text ("user-defined") are parsed anywhere. */
enum sl_status sl_tokenizer_encode_own(const struct sl_tokenizer *tok, const char *text, size_t len,
                                       const struct sl_range *own, size_t n_own,
                                       const struct sl_encode_watch *watch,
                                       struct sl_ids *out_ids) SL_MUST_CHECK;

/* One that text of a client must not become: control tokens, the unknown token, and the markup of
 * Harmony, which is shown as text but rules the conversation. Not those of a single byte. */
bool sl_tokenizer_is_guarded(const struct sl_tokenizer *tok, uint32_t id);
/* The id of a token with exactly this text, or SL_NO_TOKEN. */
uint32_t sl_tokenizer_find(const struct sl_tokenizer *tok, const char *text, size_t len);
/* "gpt2/qwen2", "llama" */
const char *sl_tokenizer_kind(const struct sl_tokenizer *tok);

#endif
