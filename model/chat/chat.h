/* How to talk to a chat model: its template, which tokens end an answer, and how a rendered
 * conversation becomes ids. What `serve` and `run` share. */
#ifndef SL_MODEL_CHAT_H
#define SL_MODEL_CHAT_H

#include "model/jinja/chat_template.h"
#include "model/tokenizer/special.h"

/* What a template expects of assistants' messages differs. Those without text and without calls
 * have an empty one in any form. */
struct sl_chat_form {
    bool arguments_as_text; /* calls' arguments: the JSON text they came in, not an object */
    bool empty_content;     /* absent text beside calls: an empty string, not none */
};

/* Immutable after init; any thread may use it. */
struct sl_chat {
    const struct sl_tokenizer *tok; /* borrowed */
    struct sl_template *template;   /* NULL: it does not compile, template_err says why */
    struct sl_err template_err;
    bool fallback; /* the file has no template: ChatML, whose end-of-turn text must then also stop
                      an answer (sl_chat_fallback_stop), for such a model may lack the token */
    struct sl_special special;
    char *bos_text, *eos_text; /* "" when the file names none */
    uint32_t *eog;             /* ids that end an answer */
    uint32_t n_eog;
    bool prepend_bos; /* the file asks for BOS */
    /* Found by rendering small conversations (chat_probe.c). */
    struct sl_chat_form form;
    bool takes_system; /* messages of the system */
};

extern const char sl_chat_fallback_stop[]; /* "<|im_end|>" */

/* source NULL or len 0: the file has no template. One that does not compile is no error here.
 * Errors: SL_ERR_NOMEM. */
enum sl_status sl_chat_init(struct sl_chat *c, const struct sl_tokenizer *tok, const char *source,
                            size_t len, struct sl_err *err) SL_MUST_CHECK;
/* Also a zeroed one. */
void sl_chat_release(struct sl_chat *c);

/* The variables that every rendering has: messages and tools (NULL = none) with the control tokens
 * in their strings marked as text (special.h), bos_token, eos_token, add_generation_prompt. New
 * reference; NULL: out of memory. */
json_t *sl_chat_vars(const struct sl_chat *c, const json_t *messages, const json_t *tools,
                     bool add_generation_prompt);
/* Sets form and takes_system from how the template renders small conversations with a call: in the
 * first form that it takes and in which nothing of them is lost or written as Python writes it.
 * sl_chat_init calls it. Errors: SL_ERR_NOMEM. */
enum sl_status sl_chat_probe(struct sl_chat *c) SL_MUST_CHECK;
/* Rewrites messages into the template's form. False: out of memory. */
bool sl_chat_apply_form(const struct sl_chat_form *form, json_t *messages);
/* The ids of a rendered text into an empty array, BOS first if the file asks for it and the text
 * lacks it. */
enum sl_status sl_chat_encode(const struct sl_chat *c, const char *text, size_t len,
                              struct sl_ids *out_ids) SL_MUST_CHECK;

#endif
