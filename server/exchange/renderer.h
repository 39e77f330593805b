/* How an API writes answers: one table of functions for each API. gen.c and http.c name no API.
 *
 * All functions run on the connection's thread and append to the buffer they are given (its
 * `failed` is the only error). The order in a stream is begin; progress...; then for each choice
 * open, part..., finish, with choices interleaved in any way; then end. fail may come at any point,
 * and nothing after it. */
#ifndef SL_SERVER_RENDERER_H
#define SL_SERVER_RENDERER_H

#include "server/exchange/gen.h"

struct sl_renderer {
    const char *id_prefix; /* of the answer's id: "chatcmpl-" */
    bool keeps_parts;      /* streams keep their segments, since the API repeats them at the end */
    bool streams_ids;      /* streams have the ids of their tokens */
    bool repeats_prompt;   /* an answer holds its prompt's text */
    bool lines; /* streams are lines of JSON (application/x-ndjson), not server-sent events */

    /* The body of a whole answer; every choice is done. */
    void (*whole)(struct sl_buf *b, const struct sl_gen *g);

    /* NULL: writes nothing. */
    void (*begin)(struct sl_buf *b, struct sl_gen *g);
    void (*progress)(struct sl_buf *b, const struct sl_gen *g, /* with params.return_progress */
                     const struct sl_prompt_progress *p);
    void (*open)(struct sl_buf *b, struct sl_choice *c); /* its first part is about to come */
    void (*part)(struct sl_buf *b, struct sl_choice *c, const struct sl_part *part);
    void (*finish)(struct sl_buf *b, struct sl_choice *c); /* c->end is why */
    void (*end)(struct sl_buf *b, struct sl_gen *g);
    void (*fail)(struct sl_buf *b, struct sl_gen *g, const struct sl_http_error *e);
    void (*keepalive)(struct sl_buf *b,
                      struct sl_gen *g); /* besides the comment that all events' streams get */
};

#endif
