/* How a chat model writes reasoning and tool calls: the families of formats, which of them a model
 * speaks, and where in it an answer begins.
 *
 * The family is found in the chat template, which shows the model's own earlier calls in the form
 * in which it writes new ones: by the template's text, and by what it writes of a call that it is
 * given; where that leaves two versions of a family open, the vocabulary decides. Source of each
 * family: see the table in answer_formats.c. */
#ifndef SL_MODEL_ANSWER_FORMAT_H
#define SL_MODEL_ANSWER_FORMAT_H

#include "model/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_call_syntax {
    /* call_open {"name": ..., "arguments": {...}} call_close, or an array of such objects. */
    SL_CALL_JSON,
    /* The same where an object has one member: {"name": {arguments}}. */
    SL_CALL_JSON_KEYED,
    /* call_open name separator {arguments} call_close */
    SL_CALL_NAMED,
    /* call_open, parameters one by one with their text in between tags, call_close */
    SL_CALL_TAGGED,
    /* call_open name separator key key_close value, ... function_close call_close: values as Python
     * writes literals, or as in JSON, between quotes of the family's own */
    SL_CALL_LITERAL,
    /* OpenAI's channels: a message whose recipient is a function */
    SL_CALL_HARMONY,
};

/* Markers are texts, some of them or of what is in them control tokens. NULL: the family has no
 * such marker. */
struct sl_answer_format {
    const char *name;
    enum sl_call_syntax syntax;
    const char *think_open, *think_close;
    const char *content_open, *content_close; /* around the text for the user */
    const char *answer_close;                 /* at the answer's end, in front of its last token */
    const char *section_open, *section_close; /* around all calls */
    const char *call_open, *call_close;
    const char *separator;      /* NAMED: between name and arguments; LITERAL: opens them */
    const char *name_before;    /* NAMED, LITERAL: in front of the name, no part of it */
    const char *id_close;       /* NAMED: behind an id of the model's own in front of the name */
    const char *fence;          /* NAMED: between the name and the arguments, and... */
    const char *fence_close;    /* ...behind them: a Markdown code block */
    const char *name_open;      /* TAGGED; NULL: the name follows call_open */
    const char *name_close;     /* TAGGED: "#" where digits are; NULL: a line break */
    const char *function_close; /* TAGGED; LITERAL: closes the arguments, one byte */
    const char *key_open;       /* TAGGED */
    const char *key_close;      /* TAGGED: up to the value, "%" where white space may be, or the
                                   type; LITERAL: between key and value, one byte */
    const char *value_close;    /* TAGGED */
    const char *value_space;    /* TAGGED: one of it is put before and behind values */
    const char *types;          /* TAGGED: what the key may say of the value's type, "|" between;
                                   the first is the string's. NULL: it says nothing */
    const char *quote;          /* LITERAL: around strings; NULL: Python's */
    const char *bare;           /* JSON, LITERAL: the bytes with which an answer without call_open
                                   begins a call: "{" an object, "[" an array or a list */
    bool array;                 /* JSON, LITERAL: calls are written as one array */
    bool lines;                 /* JSON: objects, one a line, between call_open and call_close */
    bool tight;                 /* TAGGED: no line breaks within a call */
    bool tight_calls;           /* TAGGED: nor between calls */
    bool nested;                /* TAGGED: a value's closing tag has the key's name in it, and
                                   objects and arrays are tags within the value */
    bool optional_open;         /* TAGGED: call_open may be missing, name_open begins a call */
    bool think_calls;           /* call_open ends reasoning too */
    bool one_call;              /* a second call in the same answer cannot be written */
    bool short_ids;             /* ids of calls must be nine letters or digits */
    const char *reasoning_key;  /* as its template wants it in messages, besides the API's name */
    const char *name_key;       /* JSON: as the model writes it; NULL: "name" */
    const char *id_key;         /* JSON: a number as text that may stand before the name */
    const char *arguments_key;  /* JSON: as the model writes it; both are read */
    const char *prompt_hint;    /* generic: the server tells the model itself about tools */
};

/* The format of a model. template_text may be empty (length 0). shown: what the template writes of
 * a small conversation with a call (sl_chat's), NULL when it writes none. Never NULL. */
const struct sl_answer_format *sl_answer_format_find(const struct sl_tokenizer *tok,
                                                     const char *template_text, size_t len,
                                                     const char *shown);
/* By name, for tests; NULL: there is none. */
const struct sl_answer_format *sl_answer_format_named(const char *name);
/* The n-th of the table; NULL: behind the last. */
const struct sl_answer_format *sl_answer_format_at(uint32_t n);

/* Does the model write reasoning between the format's markers? */
bool sl_answer_format_thinks(const struct sl_answer_format *f, const struct sl_tokenizer *tok,
                             const char *template_text, size_t len, const char *shown);

/* The control tokens among a format's markers, whose text an answer's reader needs and which
 * detokenising hides. Appends to an empty array. Errors: SL_ERR_NOMEM. */
enum sl_status sl_answer_format_markers(const struct sl_answer_format *f,
                                        const struct sl_tokenizer *tok,
                                        struct sl_ids *out_ids) SL_MUST_CHECK;

/* Where an answer begins, by the prompt's end. */
enum sl_answer_place {
    SL_ANSWER_FRESH,            /* the prompt says nothing of reasoning */
    SL_ANSWER_IN_REASONING,     /* it opens it */
    SL_ANSWER_BEHIND_REASONING, /* it closes it: there shall be none */
};
enum sl_answer_place sl_answer_place(const struct sl_answer_format *f, const char *prompt,
                                     size_t len);
/* Harmony: what the prompt has of the header of the message that the answer goes on with. */
struct sl_str sl_answer_open_header(const struct sl_answer_format *f, const char *prompt,
                                    size_t len);

#endif
