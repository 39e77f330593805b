/* The messages of a chat's body. */
#ifndef SL_SERVER_MESSAGES_H
#define SL_SERVER_MESSAGES_H

#include "server/request/fields.h"

/* A checked copy of body's `messages`: known roles, content as one string (null for an assistant
 * without), an agent's changing header line gone. The caller's; NULL: e is set. */
json_t *sl_messages_read(const json_t *body, struct sl_http_error *e);

/* Templates that refuse what agents send: several messages of the user in a row, orders in the
 * middle of a conversation, orders at all. */
enum sl_messages_shape {
    SL_SHAPE_AS_SENT,
    SL_SHAPE_ONE_SYSTEM, /* system messages behind the first are the user's, whose messages in a row
                            are one */
    SL_SHAPE_NO_SYSTEM,  /* all of them */
    SL_SHAPE_COUNT
};
/* A copy in one of the later shapes, which shares what did not change. NULL: out of memory. */
json_t *sl_messages_reshape(const json_t *messages, enum sl_messages_shape shape);

#endif
