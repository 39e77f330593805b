/* The messages of a chat request. */
#ifndef SL_SERVER_MESSAGES_H
#define SL_SERVER_MESSAGES_H

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

#endif
