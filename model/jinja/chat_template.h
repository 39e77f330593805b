/* Chat templates: a bounded interpreter of the Jinja2 that Hugging Face runs (sandboxed,
 * trim_blocks and lstrip_blocks on, loop controls, generation blocks; raise_exception,
 * strftime_now, tojson, namespace, macros). The lists and dictionaries that a template makes it may
 * change, with append, pop, update and their like; what it is given it may not.
 *
 * A template comes from a stranger's file: it has no access to anything but its arguments, and
 * steps, recursion, allocation, output and time are bounded. Steps are a measure of work, the same
 * on every machine: every node that is evaluated and every built-in charges for what it does, by
 * the length of what it reads, compares, copies or writes (jinja_value.h). Time is the bound behind
 * them, for what a machine may be too slow for.
 * Source: Jinja2 template designer documentation; transformers' chat_template_utils. */
#ifndef SL_MODEL_CHAT_TEMPLATE_H
#define SL_MODEL_CHAT_TEMPLATE_H

#include "common/range.h"
#include "common/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct sl_template;

/* Asked at the start of a rendering and every few thousand steps whether to go on. Anything but
 * SL_OK ends the rendering with that status and the text that it wrote. Must not block. */
struct sl_template_watch {
    enum sl_status (*poll)(void *ctx, struct sl_err *err); /* NULL: nobody is asked */
    void *ctx;
};

struct sl_template_limits {
    uint64_t max_steps; /* work: about one for each statement and expression, and more for
                           built-ins, by the length of what they work on */
    uint32_t max_depth; /* macro calls, nested expressions and nested values */
    size_t max_output_bytes;
    size_t max_memory_bytes; /* all values alive in one rendering */
    uint64_t max_time_ns;    /* by the clock, for each rendering; 0 = no limit */
    uint64_t *steps;         /* NULL, or a count that several renderings share: each adds its steps,
                                and max_steps is for all of them */
    int64_t now_s;           /* strftime_now's clock (UTC seconds); 0 = the real one */
    struct sl_template_watch watch;
};
/* Sane defaults for prompts of some megabytes. */
extern const struct sl_template_limits sl_template_default_limits;

/* Parses the template (any bytes, need not end in NUL). A syntax error names line and column. The
 * work is bounded too: one that takes seconds to compile is refused. */
enum sl_status sl_template_compile(const char *source, size_t len,
                                   struct sl_template **out_template,
                                   struct sl_err *err) SL_MUST_CHECK;
void sl_template_destroy(struct sl_template **t);

/* A prompt mixes the template's text, in which "<|im_end|>" is a control token, with text of
 * clients, in which it must stay text. Nothing tells them apart once they are mixed, and no mark
 * put into the client's strings beforehand lasts: templates parse, compare, cut, join and map text.
 * So the rendering itself keeps track, for each byte of each string, of whether the template wrote
 * it. Own text is what stands in the template and the strings that the caller names; what is made
 * of own bytes alone is own. All else is not: the variables, keys included, whatever they were
 * parsed or unescaped from, and what the interpreter makes up, such as numbers. The default is the
 * safe one: an operation that loses track makes text in which no control token is seen. Strings
 * themselves do not change, so lengths, comparisons and slices are as in Python.
 *
 * A token counts only if all of its bytes are own (sl_tokenizer_encode_own): client text can
 * neither hold one nor complete one that the template, or another string, began. How often the
 * template writes one may still depend on what the client sent, as with the number of messages. */
struct sl_rendered {
    char *text; /* malloc'd, NUL-terminated */
    size_t len;
    struct sl_range *own; /* malloc'd; ascending, not touching; NULL = none */
    size_t n_own;
};
void sl_rendered_release(struct sl_rendered *r); /* also a zeroed one */

/* Renders with the members of the JSON object `vars` as variables (messages, tools,
 * add_generation_prompt, bos_token, enable_thinking, ...). limits NULL = the defaults.
 * A compiled template is immutable: any thread may render it.
 * out: malloc'd, NUL-terminated, length in out_len.
 * Errors: SL_ERR_INVALID, where the template refuses what it was given: raise_exception's message,
 * or what cannot be evaluated. SL_ERR_LIMIT, naming the limit. SL_ERR_NOMEM. What limits->watch
 * says. */
enum sl_status sl_template_render(const struct sl_template *t, const json_t *vars,
                                  const struct sl_template_limits *limits, char **out,
                                  size_t *out_len, struct sl_err *err) SL_MUST_CHECK;
/* The same, and which bytes are the template's own. own: an array of strings that count as the
 * template's where vars holds these very values (not equal ones), or NULL. A few: each string of
 * vars is compared with all. */
enum sl_status sl_template_render_own(const struct sl_template *t, const json_t *vars,
                                      const json_t *own, const struct sl_template_limits *limits,
                                      struct sl_rendered *out, struct sl_err *err) SL_MUST_CHECK;

#endif
