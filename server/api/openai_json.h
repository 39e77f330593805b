/* Members of OpenAI's bodies that several APIs write. */
#ifndef SL_SERVER_OPENAI_JSON_H
#define SL_SERVER_OPENAI_JSON_H

#include "server/api/renderers.h"

/* [{"token":...,"logprob":...,"bytes":[...],"top_logprobs":[...]},...] of entries [first, end) of a
 * choice's log-probabilities. */
void sl_openai_logprobs(struct sl_buf *b, const struct sl_choice *c, uint32_t first, uint32_t end);
/* ,"timings":{...} for choices [first, first + n): an extension. */
void sl_openai_timings(struct sl_buf *b, const struct sl_gen *g, uint32_t first, uint32_t n);
/* ,"prompt_progress":{...} as llama.cpp has it, and with timings_per_token ,"timings":{...} of the
 * prompt so far. */
void sl_openai_progress(struct sl_buf *b, const struct sl_gen *g,
                        const struct sl_prompt_progress *p);

#endif
