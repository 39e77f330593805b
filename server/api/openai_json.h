/* Members of OpenAI's bodies that several APIs write. */
#ifndef SL_SERVER_OPENAI_JSON_H
#define SL_SERVER_OPENAI_JSON_H

#include "server/api/renderers.h"

/* ,"timings":{...} for choices [first, first + n): an extension. */
void sl_openai_timings(struct sl_buf *b, const struct sl_gen *g, uint32_t first, uint32_t n);

#endif
