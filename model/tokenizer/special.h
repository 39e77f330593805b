/* Control tokens written in a user's text must stay text: "<|im_end|>" in a message must not end
 * the turn.
 *
 * A template mixes the user's text with its own control tokens, and only the result is tokenized.
 * So each control token's text in the user's strings is broken by a mark before rendering; the
 * rendered text is cut at the marks, the marks are dropped and the pieces are tokenized one by one.
 * Text without such a token is not touched at all. The mark is made of Unicode noncharacters, drawn
 * at random once per process so that a client cannot write it. */
#ifndef SL_MODEL_SPECIAL_H
#define SL_MODEL_SPECIAL_H

#include "model/tokenizer/tokenizer.h"
#include "common/buf.h"

#include <jansson.h>

#define SL_MARK_BYTES 18u /* six noncharacters of three bytes */

struct sl_special {
    uint32_t n;
    struct sl_special_text {
        char *text; /* owned */
        size_t len;
    } * texts;           /* sorted by first byte */
    uint32_t first[257]; /* texts that start with byte b: [first[b], first[b+1]) */
    char mark[SL_MARK_BYTES];
};

/* Collects the control tokens of a vocabulary. Errors: SL_ERR_NOMEM. */
enum sl_status sl_special_init(struct sl_special *sp, const struct sl_tokenizer *tok) SL_MUST_CHECK;
void sl_special_release(struct sl_special *sp);

/* text with marks inside each control token, appended to out. Returns the number of marks. */
uint32_t sl_special_mark(const struct sl_special *sp, const char *text, size_t len,
                         struct sl_buf *out);
/* A deep copy of v with all its strings and keys marked. NULL: out of memory. */
json_t *sl_special_mark_json(const struct sl_special *sp, const json_t *v);
/* Drops the marks, in place. */
void sl_special_unmark(const struct sl_special *sp, char *text, size_t *len);
/* The length of a rendered text without its marks. */
size_t sl_special_text_bytes(const struct sl_special *sp, const char *text, size_t len);
/* Appends the ids of a rendered text, control tokens parsed except across marks. */
enum sl_status sl_special_encode(const struct sl_special *sp, const struct sl_tokenizer *tok,
                                 const char *text, size_t len, struct sl_ids *out) SL_MUST_CHECK;

#endif
