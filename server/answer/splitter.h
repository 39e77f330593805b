/* Divides an answer's text into parts: reasoning, content, tool calls. Text goes in as the model
 * makes it; parts come out as soon as they are certain, and do not depend on how the text was cut.
 *
 * Text is never lost: what does not parse as a call comes back as content, including its markers.
 * For a call that is given out while it is written (see hold_calls) that holds only for the rest.
 * White space between parts belongs to none: it is dropped before and after reasoning and calls.
 *
 * One thread at a time. The text held back is bounded: see SL_SPLIT_HELD_BYTES. */
#ifndef SL_SERVER_SPLITTER_H
#define SL_SERVER_SPLITTER_H

#include "model/chat/answer_format.h"
#include "server/answer/answer_parts.h"

#include <jansson.h>

/* The bound in a stream on a parameter's value that is not a string, and on arguments whose
 * function is not known yet. Beyond it, the value is a string, or the text is no call. */
#define SL_SPLIT_HELD_BYTES (256u << 10)

/* Borrowed until the splitter is destroyed; choices of a request share one. */
struct sl_splitter_config {
    const struct sl_answer_format *format;
    const json_t *tools;  /* the request's array of tools; NULL: no calls are looked for */
    bool thinks;          /* the model writes reasoning */
    bool in_reasoning;    /* the answer begins inside the reasoning */
    bool hold_calls;      /* give out a call only when it is complete: for whole answers */
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
/* Ends the answer. cut: it ended at max_tokens, so an unfinished call is given out as far as it is;
 * otherwise an unfinished call does not parse. */
enum sl_status sl_splitter_finish(struct sl_splitter *s, bool cut) SL_MUST_CHECK;
/* Bytes held now. */
uint64_t sl_splitter_held_bytes(const struct sl_splitter *s);
/* The most that a splitter is expected to hold for an answer of n_tokens. */
uint64_t sl_splitter_memory_bytes(const struct sl_splitter_config *config, uint64_t n_tokens);
uint32_t sl_splitter_n_calls(const struct sl_splitter *s);

#endif
