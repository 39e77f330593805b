/* Builds the body of a chat completion from another API's request.
 *
 * Calls are made in the order of the conversation. What an assistant thinks, says and calls in a
 * row becomes one message, as templates expect it. Allocation failure is sticky and reported at the
 * end. Text passed as json_t is borrowed. */
#ifndef SL_SERVER_TRANSLATE_H
#define SL_SERVER_TRANSLATE_H

#include "common/buf.h"
#include "server/request/fields.h"

/* Zero-initialise; one thread at a time. */
struct sl_translation {
    json_t *chat;     /* the body being built */
    json_t *messages; /* in it; borrowed */
    json_t *tools;    /* in it; NULL until there is one; borrowed */
    json_t *said;     /* content parts of the assistant's turn; NULL = none */
    json_t *calls;    /* of that turn */
    struct sl_buf thought;
    json_t *names; /* of calls, by their ids */
    bool failed;
};

void sl_translation_begin(struct sl_translation *t);
/* The finished body, the caller's. NULL: out of memory, e is set. */
json_t *sl_translation_end(struct sl_translation *t, struct sl_http_error *e);
/* Call it after end too. */
void sl_translation_release(struct sl_translation *t);

/* Sets a member of the body; takes over value. */
void sl_translate_set(struct sl_translation *t, const char *key, json_t *value);
/* Copies body[from], unless it is absent or null, to chat[to]. */
void sl_translate_copy(struct sl_translation *t, const json_t *body, const char *from,
                       const char *to);
/* Copies the fields of other servers that every API here takes, or refuses by name (controls.h). */
void sl_translate_controls(struct sl_translation *t, const json_t *body);
/* Fields of other APIs that this one would have to ignore, and what to do instead; ends with a NULL
 * name. False with an error where the body has one that is not null or false (of n and best_of, 1
 * is no such). */
struct sl_foreign_field {
    const char *name, *instead;
};
bool sl_translate_refuse(const json_t *body, const struct sl_foreign_field *fields,
                         struct sl_http_error *e);
/* Sets chat.chat_template_kwargs.enable_thinking, and the other name that templates have for it;
 * what was set there before stays. */
void sl_translate_thinking(struct sl_translation *t, bool on);

/* A whole message of a role other than assistant; takes over content (a string or an array of text
 * parts). */
void sl_translate_message(struct sl_translation *t, const char *role, json_t *content);
/* Parts of the assistant's message. arguments: the JSON text of an object. */
void sl_translate_think(struct sl_translation *t, const json_t *text);
void sl_translate_say(struct sl_translation *t, const json_t *text);
void sl_translate_call(struct sl_translation *t, const json_t *id, const json_t *name,
                       json_t *arguments);
/* The result of a call; takes over content. */
void sl_translate_result(struct sl_translation *t, const json_t *id, json_t *content);
/* Begins a new turn, even if the assistant goes on. */
void sl_translate_end_turn(struct sl_translation *t);

/* A function that may be called. NULL: not given. */
void sl_translate_tool(struct sl_translation *t, const json_t *name, const json_t *description,
                       const json_t *parameters, const json_t *strict);
/* tool_choice for one function, or for several (each as sl_translated_function gives it); mode is
 * "auto" or "required". */
void sl_translate_choose(struct sl_translation *t, const json_t *name);
void sl_translate_allow(struct sl_translation *t, const json_t *mode, const json_t *functions);
/* {"type":"function","function":{"name":...}}; NULL: out of memory. */
json_t *sl_translated_function(const json_t *name);
/* response_format for a schema; name and strict as above. */
void sl_translate_schema(struct sl_translation *t, const json_t *name, const json_t *schema,
                         const json_t *strict);

/* The name of a field for an error, "input[3].content", truncated if it is too long. */
struct sl_where {
    char text[sizeof((struct sl_http_error *)0)->param];
};
struct sl_where sl_where_index(const char *array, size_t i);
struct sl_where sl_where_member(const char *object, const char *member);

/* object[member] must be a string; object_name is the object's name in errors. */
bool sl_want_string(const json_t *object, const char *member, const char *object_name,
                    const json_t **out, struct sl_http_error *e);
/* Whether v is present and not null. */
bool sl_json_given(const json_t *v);
/* Whether v is this string. */
bool sl_json_is(const json_t *v, const char *text);
/* Whether v is one of these strings; the list ends with NULL. */
bool sl_json_one_of(const json_t *v, const char *const *texts);

/* {"type":"text","text":...}; NULL: out of memory. */
json_t *sl_text_part(const json_t *text);

#endif
