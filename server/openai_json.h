/* The bodies and events of OpenAI's chat and text completions.
 * Source: OpenAI API reference: the chat completion object, the chat completion chunk object, the
 * completion object. `timings` is an extension. */
#ifndef SL_SERVER_OPENAI_JSON_H
#define SL_SERVER_OPENAI_JSON_H

#include "server/gen.h"

/* The whole answer; every choice is done. */
void sl_openai_whole(struct sl_buf *b, const struct sl_gen *g);

/* Events ("data: {...}\n\n") of a stream. open: a choice's first; text: what it said, with the
 * log-probabilities that became showable; finish: its reason; usage: the answer's last. */
void sl_openai_chunk_open(struct sl_buf *b, const struct sl_choice *c);
void sl_openai_chunk_text(struct sl_buf *b, const struct sl_choice *c, struct sl_str text);
void sl_openai_chunk_finish(struct sl_buf *b, const struct sl_choice *c);
void sl_openai_chunk_usage(struct sl_buf *b, const struct sl_gen *g);

#endif
