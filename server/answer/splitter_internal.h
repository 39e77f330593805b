/* Internals of the splitter, shared only by server/answer/splitter*.c.
 *
 * A step looks at the text not taken yet, and either takes some of it or asks for more. What it
 * decides depends only on the text, never on where it was cut: it waits for a marker that may still
 * come, and every bound counts from the start of what it bounds. */
#ifndef SL_SERVER_SPLITTER_INTERNAL_H
#define SL_SERVER_SPLITTER_INTERNAL_H

#include "server/answer/json_scan.h"
#include "server/answer/literal_scan.h"
#include "server/answer/splitter.h"

#define SL_SPLIT_NAME_BYTES   256u /* the name of a function or parameter, with what is around it */
#define SL_SPLIT_HEADER_BYTES 512u /* harmony: from <|start|> to <|message|> */
#define SL_SPLIT_SPACE_BYTES  4096u /* white space to wait through; more of it is text */

enum sl_split_state {
    SL_SPLIT_START,
    SL_SPLIT_REASONING,
    SL_SPLIT_CONTENT,
    SL_SPLIT_NEXT, /* after a call or the section's opening: a call, the section's end, content */
    /* splitter_json.c */
    SL_SPLIT_JSON_OPEN,
    SL_SPLIT_JSON_ITEM,
    SL_SPLIT_JSON_KEY,
    SL_SPLIT_JSON_COLON,
    SL_SPLIT_JSON_VALUE,
    SL_SPLIT_JSON_ARGUMENTS,
    SL_SPLIT_JSON_EARLY, /* arguments before the name */
    SL_SPLIT_JSON_SKIP,
    SL_SPLIT_JSON_BEHIND,
    SL_SPLIT_JSON_MORE,
    SL_SPLIT_JSON_CLOSE,
    /* splitter_named.c */
    SL_SPLIT_NAME,
    SL_SPLIT_NAME_END,
    SL_SPLIT_NAME_ARGUMENTS,
    SL_SPLIT_NAME_CLOSE,
    /* splitter_tagged.c */
    SL_SPLIT_TAG_NAME,
    SL_SPLIT_TAG_BODY,
    SL_SPLIT_TAG_KEY,
    SL_SPLIT_TAG_STRING,
    SL_SPLIT_TAG_VALUE,
    SL_SPLIT_TAG_CLOSE,
    /* splitter_literal.c */
    SL_SPLIT_LITERAL_OPEN,
    SL_SPLIT_LITERAL_NAME,
    SL_SPLIT_LITERAL_ARGUMENTS,
    SL_SPLIT_LITERAL_MORE,
    SL_SPLIT_LITERAL_CLOSE,
    /* splitter_harmony.c */
    SL_SPLIT_MESSAGE,
    SL_SPLIT_HEADER,
    SL_SPLIT_BODY,
    SL_SPLIT_MESSAGE_ARGUMENTS,
};

/* A step returns false to ask for more text. At the end of the answer none may come. */
struct sl_splitter {
    const struct sl_splitter_config *config;
    const struct sl_answer_format *f;
    sl_part_sink sink;
    void *ctx;
    enum sl_split_state state;
    struct sl_buf held; /* taken up to pos; of the rest the first `n` bytes are whole characters */
    size_t pos, n;
    bool ended, failed;
    bool strip; /* white space at the front of content or reasoning is dropped */
    uint32_t n_calls;
    bool said[2]; /* harmony: there was content, reasoning */

    /* the call being read */
    bool in_call, called; /* called: its name is certain */
    bool keep_raw;        /* keep what is taken in raw, to give it back if this is no call */
    struct sl_buf raw, arguments, fragment, early;
    size_t prompt_bytes; /* of raw: a header that is in the prompt */
    char name[SL_SPLIT_NAME_BYTES + 1];
    char key[SL_SPLIT_NAME_BYTES + 1];
    size_t key_len;
    struct sl_json_scan scan;
    struct sl_literal_scan literal;
    bool in_array, first;
    bool bare, bare_list; /* the call has no marker; nor has the list that it is in */
    bool has_early, is_early_done;
    uint32_t n_params;
    uint32_t types;     /* TAGGED: of the parameter */
    uint32_t tag_depth; /* TAGGED, nested: tags open within the value, in what was scanned */
    char value_close[SL_SPLIT_NAME_BYTES + 64]; /* TAGGED: of the parameter */
    size_t scanned;                             /* TAGGED: bytes of a value known to hold no end */
    bool value_started;                         /* TAGGED */
    enum sl_part_kind body;                     /* harmony */
};

static inline const char *sl_split_text(const struct sl_splitter *s) {
    return s->held.ptr + s->pos;
}

static inline bool sl_split_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ---- splitter.c ---- */
void sl_split_emit(struct sl_splitter *s, enum sl_part_kind kind, const char *text, size_t len);
/* Bytes at the end of text that begin a character: parts are never cut within one. */
size_t sl_split_unfinished(const char *text, size_t n);
/* Takes the first n bytes of the text. */
void sl_split_take(struct sl_splitter *s, size_t n);
/* Skips white space from byte `from` on: the index of the first other byte, or of the white space
 * past SL_SPLIT_SPACE_BYTES, which is then invalid there. */
size_t sl_split_space(const struct sl_splitter *s, size_t from);

enum sl_split_match { SL_SPLIT_NO, SL_SPLIT_MAYBE, SL_SPLIT_YES };
/* Is a marker (NULL: never) at byte `at`? At the answer's end there is no MAYBE. */
enum sl_split_match sl_split_at(const struct sl_splitter *s, size_t at, const char *marker);
/* Ends a call: takes the text up to the marker at byte `at`, if that is there (models forget to
 * close what they opened, which is tolerated), and goes on to what comes next. False: more text is
 * needed. */
bool sl_split_close(struct sl_splitter *s, size_t at, const char *marker);
/* Finds the first of markers [n] from byte `from` on that starts below byte `most`, of several
 * there the longest. YES: *out_at and *out_which; MAYBE: one may begin at *out_at; NO: none below
 * most, *out_at is where to end. */
enum sl_split_match sl_split_find(const struct sl_splitter *s, size_t from, size_t most,
                                  const char *const *markers, uint32_t n, size_t *out_at,
                                  uint32_t *out_which);

/* ---- splitter_calls.c ---- */
/* A call begins with the next byte; what was given out stays. */
void sl_split_call_begin(struct sl_splitter *s);
/* The same within a list of calls. */
void sl_split_call_next(struct sl_splitter *s);
/* Takes characters of a name. False: not a function's name, or not one that the state allows. */
bool sl_split_call_name(struct sl_splitter *s, const char *name, size_t len);
/* The call is certain: gives out its name. */
void sl_split_call_certain(struct sl_splitter *s);
void sl_split_call_arguments(struct sl_splitter *s, const char *text, size_t len);
/* Scans arguments, then goes to state `next`; a byte that is invalid there makes the call fail. */
bool sl_split_call_scan(struct sl_splitter *s, enum sl_split_state next);
void sl_split_call_done(struct sl_splitter *s);
/* This is no call: what was kept comes back as content. Always true, for `return`. */
bool sl_split_call_fail(struct sl_splitter *s);
/* The state in which a call's text after call_open is read. */
enum sl_split_state sl_split_call_state(const struct sl_splitter *s);
/* The tool's `function` object by its name; NULL: none. */
const json_t *sl_split_tool(const json_t *tools, const char *name);

/* Without call_open: does a call begin at byte `at`, with one of the format's bare bytes? YES: the
 * call has begun and its state is set. */
enum sl_split_match sl_split_bare(struct sl_splitter *s, size_t at);

/* ---- a step each, in a file each ---- */
bool sl_split_json(struct sl_splitter *s);
bool sl_split_named(struct sl_splitter *s);
bool sl_split_tagged(struct sl_splitter *s);
/* The answer was cut in the middle of a value. */
void sl_split_tagged_cut(struct sl_splitter *s);
bool sl_split_literal(struct sl_splitter *s);
bool sl_split_harmony(struct sl_splitter *s);

/* ---- splitter_values.c ---- */
/* Appends the JSON of a parameter's text between tags: a value of one of types (json_types.h), else
 * a string. quoted: a text in quotation marks is JSON too. */
void sl_split_put_value(struct sl_buf *out, uint32_t types, bool quoted, const char *text,
                        size_t len);
/* The same of a text that may hold tags of its own; schema is its schema, root the one that its
 * references start at. What has no form is a string. */
void sl_split_put_tree(struct sl_buf *out, const struct sl_answer_format *f, const json_t *root,
                       const json_t *schema, const char *text, size_t len);
/* Appends a text as the inside of a JSON string. */
void sl_split_put_inside(struct sl_buf *out, const char *text, size_t len);

#endif
