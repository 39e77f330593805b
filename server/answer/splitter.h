/* Makes parts of an answer's text: reasoning, content, tool calls. Text goes in as the model makes
 * it, parts come out as early as they are certain, and the same ones however the text was cut.
 *
 * Text is never lost: what does not parse as a call comes back as content, markers and all. Of a
 * call that is given out while it is written (see hold_calls) only the rest can come back so.
 * White space between parts belongs to none: it is dropped before and behind reasoning and calls.
 *
 * One thread at a time. What is held back is bounded: see SL_SPLIT_HELD_BYTES. */
#ifndef SL_SERVER_SPLITTER_H
#define SL_SERVER_SPLITTER_H

#include "model/chat/answer_format.h"
#include "server/answer/answer_parts.h"

#include <jansson.h>

/* Of a stream: a value of a parameter that is no string, or arguments whose function is not known
 * yet; more than this, and it is a string, or no call. */
#define SL_SPLIT_HELD_BYTES (256u << 10)

/* Borrowed until the splitter is destroyed; choices of a request share one. */
struct sl_splitter_config {
    const struct sl_answer_format *format;
    const json_t *tools;  /* the request's array of tools; NULL: no calls are looked for */
    bool thinks;          /* the model writes reasoning */
    bool in_reasoning;    /* the answer begins inside of it */
    bool hold_calls;      /* a call is given out when all of it is there: for whole answers */
    struct sl_str header; /* sl_answer_open_header */
};

struct sl_splitter;
typedef void (*sl_part_sink)(void *ctx, const struct sl_part *part);

/* Errors: SL_ERR_NOMEM. */
enum sl_status sl_splitter_create(const struct sl_splitter_config *config, sl_part_sink sink,
                                  void *ctx, struct sl_splitter **out_splitter) SL_MUST_CHECK;
void sl_splitter_destroy(struct sl_splitter **s);

/* Calls the sink for each part. Errors: SL_ERR_NOMEM. */
enum sl_status sl_splitter_push(struct sl_splitter *s, const char *text, size_t len) SL_MUST_CHECK;
/* The answer's end. cut: at max_tokens, so that an unfinished call is given out as far as it is;
 * otherwise it does not parse. */
enum sl_status sl_splitter_finish(struct sl_splitter *s, bool cut) SL_MUST_CHECK;
/* What it holds now. */
uint64_t sl_splitter_held_bytes(const struct sl_splitter *s);
/* The most that one is expected to hold of an answer of so many tokens. */
uint64_t sl_splitter_memory_bytes(const struct sl_splitter_config *config, uint64_t n_tokens);
uint32_t sl_splitter_n_calls(const struct sl_splitter *s);

#endif
