/* How to talk to a chat model: its template, which tokens end an answer, and how a rendered
 * conversation becomes ids. What `serve` and `run` share. */
#ifndef SL_MODEL_CHAT_H
#define SL_MODEL_CHAT_H

#include "model/jinja/chat_template.h"
#include "model/tokenizer/tokenizer.h"

/* What a template expects of assistants' messages differs. Those without text and without calls
 * have an empty one in any form. */
struct sl_chat_form {
    bool arguments_as_text; /* calls' arguments: the JSON text they came in, not an object */
    bool empty_content;     /* absent text alongside calls: an empty string, not none */
};

/* Immutable after init; any thread may use it. */
struct sl_chat {
    const struct sl_tokenizer *tok; /* borrowed */
    struct sl_template *template;   /* NULL: it does not compile, template_err says why */
    struct sl_err template_err;
    bool fallback; /* the file has no template: ChatML, whose end-of-turn text must then also stop
                      an answer (sl_chat_fallback_stop), for such a model may lack the token */
    char *bos_text, *eos_text; /* "" when the file names none */
    uint32_t *eog;             /* ids that end an answer */
    uint32_t n_eog;
    bool prepend_bos; /* the file asks for BOS */
    /* Found by rendering small conversations (chat_probe.c). */
    struct sl_chat_form form;
    bool takes_system; /* messages of the system */
    bool takes_none;   /* `tools` that are none, which others iterate over and fail */
    char *shown;       /* what it writes of a conversation with a call of "probe", with the argument
                          probe_key; NULL: it takes none */
};

extern const char sl_chat_fallback_stop[]; /* "<|im_end|>" */

/* source NULL or len 0: the file has no template. One that does not compile is no error here.
 * watch: can end the renderings that are tried; NULL: nobody.
 * Errors: SL_ERR_NOMEM, and what watch says. */
enum sl_status sl_chat_init(struct sl_chat *c, const struct sl_tokenizer *tok, const char *source,
                            size_t len, const struct sl_template_watch *watch,
                            struct sl_err *err) SL_MUST_CHECK;
/* Also a zeroed one. */
void sl_chat_release(struct sl_chat *c);

/* What a conversation is rendered with. */
struct sl_chat_vars {
    json_t *all; /* an object, the template's variables */
    json_t *own; /* those of its strings that count as the template's (chat_template.h) */
};
/* The variables that every rendering has: a copy of messages, tools (borrowed; NULL: the template
 * sees none, as in the reference implementation, or no such name where it fails on none),
 * bos_token, eos_token, add_generation_prompt; and those of `more` (an object or NULL) that have
 * other names. The texts of BOS and EOS and the roles count as the template's, for templates write
 * '<|' + role + '|>'; of roles only the six that there are. All else is the client's. Until they
 * are rendered the members may be changed; what takes the place of an own string is not own.
 * False: out of memory, nothing to release. */
bool sl_chat_vars_init(const struct sl_chat *c, const json_t *messages, const json_t *tools,
                       const json_t *more, bool add_generation_prompt, struct sl_chat_vars *out);
void sl_chat_vars_release(struct sl_chat_vars *v);
/* Sets form and all behind it from how the template renders small conversations with a call:
 * in the first form that it takes and in which nothing of them is lost or written as Python writes
 * it. sl_chat_init calls it. Errors: SL_ERR_NOMEM, and what watch (or NULL) says. */
enum sl_status sl_chat_probe(struct sl_chat *c, const struct sl_template_watch *watch,
                             struct sl_err *err) SL_MUST_CHECK;
/* Rewrites messages into the template's form. False: out of memory. */
bool sl_chat_apply_form(const struct sl_chat_form *form, json_t *messages);
/* The ids of a rendered conversation into an empty array, control tokens only where the template
 * wrote them; BOS first if the file asks for it and the text lacks it. watch (tokenizer.h)
 * may be NULL. */
enum sl_status sl_chat_encode(const struct sl_chat *c, const struct sl_rendered *r,
                              const struct sl_encode_watch *watch,
                              struct sl_ids *out_ids) SL_MUST_CHECK;
/* The same of a whole prompt that somebody wrote by hand: control tokens anywhere. */
enum sl_status sl_chat_encode_prompt(const struct sl_chat *c, const char *text, size_t len,
                                     const struct sl_encode_watch *watch,
                                     struct sl_ids *out_ids) SL_MUST_CHECK;

#endif
