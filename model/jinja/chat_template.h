/* Chat templates: a bounded interpreter of the Jinja2 that Hugging Face runs (sandboxed,
 * trim_blocks and lstrip_blocks on, loop controls, generation blocks; raise_exception,
 * strftime_now, tojson, namespace, macros). The lists and dictionaries that a template makes it may
 * change, with append, pop, update and their like; what it is given it may not.
 *
 * A template comes from a stranger's file: it has no access to anything but its arguments, and
 * steps, recursion, allocation and output are bounded.
 * Source: Jinja2 template designer documentation; transformers' chat_template_utils. */
#ifndef SL_MODEL_CHAT_TEMPLATE_H
#define SL_MODEL_CHAT_TEMPLATE_H

#include "common/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct sl_template;

struct sl_template_limits {
    uint64_t max_steps; /* statements and expressions evaluated */
    uint32_t max_depth; /* macro calls and nested expressions */
    size_t max_output_bytes;
    size_t max_memory_bytes; /* all values alive in one rendering */
    uint64_t *steps;         /* NULL, or a count that several renderings share: each adds its steps,
                                and max_steps is for all of them */
    int64_t now_s;           /* strftime_now's clock (UTC seconds); 0 = the real one */
};
/* Sane defaults for prompts of some megabytes. */
extern const struct sl_template_limits sl_template_default_limits;

/* Parses the template (any bytes, need not end in NUL). A syntax error names line and column. */
enum sl_status sl_template_compile(const char *source, size_t len,
                                   struct sl_template **out_template,
                                   struct sl_err *err) SL_MUST_CHECK;
void sl_template_destroy(struct sl_template **t);

/* Renders with the members of the JSON object `vars` as variables (messages, tools,
 * add_generation_prompt, bos_token, enable_thinking, ...). limits NULL = the defaults.
 * A compiled template is immutable: any thread may render it.
 * out: malloc'd, NUL-terminated, length in out_len.
 * Errors: SL_ERR_INVALID, where the template refuses what it was given: raise_exception's message,
 * or what cannot be evaluated. SL_ERR_LIMIT, naming the limit. SL_ERR_NOMEM. */
enum sl_status sl_template_render(const struct sl_template *t, const json_t *vars,
                                  const struct sl_template_limits *limits, char **out,
                                  size_t *out_len, struct sl_err *err) SL_MUST_CHECK;

#endif
