/* A vocabulary as two tries of bytes in depth-first order, made once per model, through which a
 * grammar's state is walked to find the tokens that it allows.
 *
 * Tokens that consist of plain characters alone (see model/grammar/grammar_internal.h) are apart:
 * where a grammar takes any k plain characters, sets made here say at once which tokens those are.
 *
 * Immutable; any thread may use it. */
#ifndef SL_MODEL_VOCAB_TRIE_H
#define SL_MODEL_VOCAB_TRIE_H

#include "model/tokenizer/tokenizer.h"

#include <stdint.h>

#define SL_VOCAB_PLAIN_MAX 32u /* characters of a token in the plain trie at most */

struct sl_vocab_node {
    uint32_t skip;  /* the next node that is not below this one */
    uint32_t first; /* its tokens: tokens[first .. the next node's first) */
    uint16_t depth; /* bytes from the root, at least 1 */
    uint8_t byte;
};

struct sl_vocab_part {
    struct sl_vocab_node *nodes; /* [n_nodes + 1]; the last only closes `first` */
    uint32_t n_nodes;
    uint32_t *tokens;
    uint32_t n_tokens;
};

struct sl_vocab_trie {
    uint32_t n_vocab, n_words; /* words of 64 bits in a set of tokens */
    uint32_t max_depth;
    bool drops_first_space; /* an answer's first token loses its leading space */
    struct sl_vocab_part plain, rest;
    uint64_t
        *plain_upto; /* [SL_VOCAB_PLAIN_MAX][n_words] plain tokens of at most k + 1 characters */
    /* the text of every token that has one */
    char *bytes;
    uint32_t *offset; /* [n_vocab + 1] */
};

/* Control tokens have the bytes of sl_grammar_token for a text. Tokens without a text, those over
 * 1024 bytes and those with a byte that no UTF-8 has are in neither trie. The tokenizer is not
 * kept. Errors: SL_ERR_NOMEM. */
enum sl_status sl_vocab_trie_create(const struct sl_tokenizer *tok,
                                    struct sl_vocab_trie **out_trie) SL_MUST_CHECK;
void sl_vocab_trie_destroy(struct sl_vocab_trie **trie);

/* What one may hold at most, before it is made: as if no two tokens had a first byte in common. */
uint64_t sl_vocab_trie_most_bytes(const struct sl_tokenizer *tok);

static inline struct sl_str sl_vocab_text(const struct sl_vocab_trie *t, uint32_t id) {
    return (struct sl_str){t->bytes + t->offset[id], t->offset[id + 1] - t->offset[id]};
}

#endif
