/* The messages of a chat request. */
#ifndef SL_SERVER_MESSAGES_H
#define SL_SERVER_MESSAGES_H

#include "model/chat/chat.h"
#include "server/request/fields.h"

/* A checked copy of body's `messages`: known roles, content as one string (null for an assistant
 * without), without the header line that agents change. The caller's; NULL: e is set. */
json_t *sl_messages_read(const json_t *body, struct sl_http_error *e);

/* For templates that refuse what agents send: several user messages in a row, system messages in
 * the middle of a conversation, or any system message. */
enum sl_messages_shape {
    SL_SHAPE_AS_SENT,
    SL_SHAPE_ONE_SYSTEM, /* later system messages become user messages; user messages in a row are
                            joined */
    SL_SHAPE_NO_SYSTEM,  /* all system messages do */
    SL_SHAPE_COUNT
};
/* A copy in one of the later shapes; shares what did not change. NULL: out of memory. */
json_t *sl_messages_reshape(const json_t *messages, enum sl_messages_shape shape);

/* Renders messages by the caller's `render`: as they are and, where the template refuses that
 * (SL_ERR_INVALID), in the later shapes. A shape that the template is known to refuse, or that is
 * the same as the last, is left out. At most three renderings, whose steps together keep to
 * `limits`. The error of a refusal is that of the first rendering. Errors: those of render,
 * SL_ERR_NOMEM. */
struct sl_messages_renderer {
    enum sl_status (*render)(void *ctx, const json_t *messages,
                             const struct sl_template_limits *limits, struct sl_rendered *out,
                             struct sl_err *err);
    void *ctx;
};
enum sl_status sl_messages_render(const struct sl_chat *chat, const json_t *messages,
                                  const struct sl_template_limits *limits,
                                  const struct sl_messages_renderer *r, struct sl_rendered *out,
                                  struct sl_err *out_err) SL_MUST_CHECK;

#endif
