/* continue_final_message: the answer goes on from the assistant's message at the end of the
 * conversation, as if the model had written that itself. */
#ifndef SL_SERVER_FINAL_MESSAGE_H
#define SL_SERVER_FINAL_MESSAGE_H

#include "server/exchange/gen.h"

struct sl_rendered;

/* Whether the body asks for it. */
bool sl_final_message_asked(const json_t *body);
/* Other servers' clients mark the message itself: "prefix": true (DeepSeek, Mistral) or "partial":
 * true (Kimi) in an assistant's message at the end. Sets the field for that. False: e is set. */
bool sl_final_message_read_mark(json_t *body, struct sl_http_error *e);
/* Checks what it is given with. False: e names the field. */
bool sl_final_message_check(const struct sl_served *v, const json_t *body, struct sl_http_error *e);
/* Cuts what the template wrote behind the text of the last of `messages` (sl_messages_read), so
 * that the turn is open again. False with 400: that is no assistant's text, or the template does
 * not write it as it is, with nothing but its own text behind it. */
bool sl_final_message_open(const json_t *messages, struct sl_rendered *inout_rendered,
                           struct sl_http_error *e);

#endif
