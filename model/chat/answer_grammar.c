#include "model/chat/answer_grammar_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- tools of a request ---- */

static bool is_name(const char *name, size_t len) {
    static const char more[] = "_-.:/";
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              (c && strchr(more, c))))
            return false;
    }
    return len > 0 && len <= SL_TOOL_NAME_BYTES;
}

static enum sl_status check_parameters(const json_t *p, const char *name, struct sl_err *err) {
    const json_t *type = json_object_get(p, "type"), *properties = json_object_get(p, "properties");
    if (!p || json_is_null(p))
        return SL_OK;
    if (!json_is_object(p))
        return sl_fail(err, SL_ERR_INVALID,
                       "the function '%s': 'parameters' must be a schema, an object", name);
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "object") != 0))
        return sl_fail(err, SL_ERR_INVALID,
                       "the function '%s': 'parameters' must be of type 'object'", name);
    if (properties && !json_is_object(properties))
        return sl_fail(err, SL_ERR_INVALID,
                       "the function '%s': 'parameters.properties' must be an object", name);
    return SL_OK;
}

static enum sl_status check_tool(const json_t *tools, size_t i, struct sl_err *err) {
    const json_t *tool = json_array_get(tools, i), *type = json_object_get(tool, "type");
    const json_t *f = json_object_get(tool, "function"), *name = json_object_get(f, "name");
    const json_t *strict = json_object_get(f, "strict"), *text = json_object_get(f, "description");
    const char *n = json_string_value(name);
    if (!json_is_object(tool))
        return sl_fail(err, SL_ERR_INVALID, "must be an object");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return sl_fail(err, SL_ERR_INVALID, "'type' must be 'function'");
    if (!json_is_object(f))
        return sl_fail(err, SL_ERR_INVALID, "'function' must be an object");
    if (!n)
        return sl_fail(err, SL_ERR_INVALID, "'function.name' must be a string");
    if (!is_name(n, json_string_length(name)))
        return sl_fail(err, SL_ERR_INVALID,
                       "'function.name' must have 1 to %u letters, digits and _-.:/",
                       SL_TOOL_NAME_BYTES);
    if (text && !json_is_null(text) && !json_is_string(text))
        return sl_fail(err, SL_ERR_INVALID, "the function '%s': 'description' must be a string", n);
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return sl_fail(err, SL_ERR_INVALID, "the function '%s': 'strict' must be true or false", n);
    for (size_t k = 0; k < i; k++) {
        const json_t *other = json_object_get(json_array_get(tools, k), "function");
        if (strcmp(n, json_string_value(json_object_get(other, "name"))) == 0)
            return sl_fail(err, SL_ERR_INVALID, "the function '%s' is there twice", n);
    }
    return check_parameters(json_object_get(f, "parameters"), n, err);
}

enum sl_status sl_tools_check(const json_t *tools, size_t *out_index, struct sl_err *err) {
    *out_index = SL_MAX_TOOLS;
    if (!json_is_array(tools))
        return sl_fail(err, SL_ERR_INVALID, "must be an array");
    if (json_array_size(tools) > SL_MAX_TOOLS)
        return sl_fail(err, SL_ERR_INVALID, "%zu tools; at most %u are supported",
                       json_array_size(tools), SL_MAX_TOOLS);
    enum sl_status status = SL_OK;
    for (size_t i = 0; i < json_array_size(tools) && status == SL_OK; i++) {
        *out_index = i;
        status = check_tool(tools, i, err);
    }
    return status;
}

/* ---- answers ---- */

static bool calls(const struct sl_answer_rules *c) {
    return c->g->choice != SL_TOOLS_NONE && json_array_size(c->g->tools) > 0;
}

static const char *content(const struct sl_answer_rules *c, const char *otherwise) {
    return c->g->content ? c->g->content : otherwise;
}

/* The rule "sl-think": reasoning where there may be some, and white space behind it. */
static enum sl_status put_think(struct sl_answer_rules *c) {
    const struct sl_answer_format *f = c->f;
    bool inside = c->g->place == SL_ANSWER_IN_REASONING;
    uint32_t text = 0;
    enum sl_status status = SL_OK;
    sl_buf_puts(c->b, "sl-space ::= [ \\n]{0,3}\n");
    if (!f->think_close || !c->g->thinks || c->g->place == SL_ANSWER_BEHIND_REASONING) {
        sl_buf_puts(c->b, "sl-think ::= \"\"\n");
        return SL_OK;
    }
    const char *const ends[] = {f->think_close, calls(c) ? f->section_open : NULL,
                                calls(c) && f->think_calls ? f->call_open : NULL};
    status = sl_answer_free_text(c, ends, 3, &text);
    sl_buf_puts(c->b, "sl-think ::= (");
    if (!inside) {
        sl_buf_puts(c->b, "sl-space ");
        sl_answer_put_marker(c, c->b, f->think_open);
    }
    sl_buf_printf(c->b, "sl-t%u-0 ", text);
    sl_answer_put_marker(c, c->b, f->think_close);
    sl_buf_printf(c->b, "sl-space)%s\n", inside ? "" : "?");
    return status;
}

/* The rules of what may stand around the content and at the answer's end. */
static void put_around(struct sl_answer_rules *c) {
    const struct {
        const char *rule, *marker;
    } around[] = {{"sl-open", c->f->content_open},
                  {"sl-close", c->f->content_close},
                  {"sl-end", c->f->answer_close}};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        sl_buf_printf(c->b, "%s ::= (", around[i].rule);
        sl_answer_put_marker(c, c->b, around[i].marker);
        sl_buf_puts(c->b, around[i].marker ? ")?\n" : "\"\")\n");
    }
}

static enum sl_status put_answer(struct sl_answer_rules *c) {
    const struct sl_answer_format *f = c->f;
    enum sl_status status = put_think(c);
    uint32_t text = 0;
    put_around(c);
    if (status == SL_OK && calls(c))
        status = sl_answer_calls(c);
    if (status != SL_OK)
        return status;
    if (!calls(c)) {
        sl_buf_printf(c->b, "sl-answer ::= sl-think sl-open %s sl-close sl-end\n",
                      content(c, ".*"));
        return SL_OK;
    }
    if (c->g->choice == SL_TOOLS_REQUIRED) {
        sl_buf_printf(c->b, "sl-answer ::= sl-think %ssl-calls sl-end\n",
                      f->content_open && f->content_close ? "(sl-open sl-close) " : "");
        return SL_OK;
    }
    if (c->g->content || f->bare) {
        /* Without a marker an answer that begins like a call is one. */
        char other[64];
        const char *bare = !f->bare ? "{" : strcmp(f->bare, "{[") == 0 ? "{\\[" : f->bare;
        snprintf(other, sizeof other, "[ \\n\\t\\r]* ([^%s \\n\\t\\r] .*)?",
                 strcmp(bare, "[") == 0 ? "\\[" : bare);
        sl_buf_printf(c->b, "sl-answer ::= sl-think (sl-calls | sl-open %s sl-close) sl-end\n",
                      content(c, other));
        return SL_OK;
    }
    const char *const ends[] = {f->section_open, f->call_open,
                                f->optional_open || !f->call_open ? f->name_open : NULL,
                                f->content_close, f->answer_close};
    status = sl_answer_free_text(c, ends, 5, &text);
    sl_buf_printf(c->b, "sl-answer ::= sl-think sl-open sl-t%u-0 sl-close sl-calls? sl-end\n",
                  text);
    return status;
}

/* Messages on channels: any number of the analysis and of comments, then one that ends the answer.
 * The prompt ends with "<|start|>assistant". */
static enum sl_status put_harmony(struct sl_answer_rules *c) {
    static const char *const end = "<|end|>";
    struct sl_buf *b = c->b;
    uint32_t text = 0, n = calls(c) ? (uint32_t)json_array_size(c->g->tools) : 0;
    SL_TRY(sl_answer_free_text(c, &end, 1, &text));
    for (uint32_t i = 0; i < n; i++)
        SL_TRY(sl_answer_arguments(c, i));
    sl_buf_puts(b, "sl-json ::= (\" \" (");
    sl_answer_put_marker(c, b, "<|constrain|>");
    sl_buf_puts(b, ")? \"json\")?\nsl-before ::= (");
    sl_answer_put_marker(c, b,
                         c->g->choice == SL_TOOLS_AUTO && !c->g->content
                             ? "<|channel|>"
                             : "<|channel|>analysis<|message|>");
    if (c->g->choice == SL_TOOLS_AUTO && !c->g->content) {
        sl_buf_puts(b, "(\"analysis\" | \"commentary\") ");
        sl_answer_put_marker(c, b, "<|message|>");
    }
    sl_buf_printf(b, "sl-t%u-0 ", text);
    sl_answer_put_marker(c, b, "<|end|><|start|>assistant");
    sl_buf_puts(b, "){0,64}\n");
    for (uint32_t i = 0; i < n; i++) {
        const char *name = sl_answer_function_name(c, i);
        sl_buf_printf(b, "sl-call%u ::= (", i);
        sl_answer_put_marker(c, b, "<|channel|>commentary to=functions.");
        sl_answer_put_marker(c, b, name);
        sl_buf_puts(b, "| ");
        sl_answer_put_marker(c, b, " to=functions.");
        sl_answer_put_marker(c, b, name);
        sl_answer_put_marker(c, b, "<|channel|>commentary");
        sl_buf_puts(b, ") sl-json ");
        sl_answer_put_marker(c, b, "<|message|>");
        sl_buf_printf(b, "sl-call%u-arguments\n", i);
    }
    sl_buf_puts(b, "sl-final ::= ");
    sl_answer_put_marker(c, b, "<|channel|>final<|message|>");
    if (c->g->content)
        sl_buf_printf(b, "%s\n", c->g->content);
    else
        sl_buf_printf(b, "sl-t%u-0\n", text);
    sl_buf_puts(b, "sl-answer ::= sl-before (");
    for (uint32_t i = 0; i < n; i++)
        sl_buf_printf(b, "%ssl-call%u", i ? " | " : "", i);
    if (!n || c->g->choice != SL_TOOLS_REQUIRED)
        sl_buf_puts(b, n ? " | sl-final" : "sl-final");
    sl_buf_puts(b, ")\n");
    return SL_OK;
}

enum sl_status sl_answer_grammar(const struct sl_answer_grammar *g, struct sl_schema_rules *r,
                                 struct sl_err *err) {
    struct sl_err unused;
    struct sl_answer_rules c = {
        .g = g, .f = g->format, .r = r, .b = r->out, .err = err ? err : &unused};
    enum sl_status status = sl_answer_format_markers(g->format, g->tok, &c.tokens);
    if (status == SL_OK)
        status = c.f->syntax == SL_CALL_HARMONY ? put_harmony(&c) : put_answer(&c);
    if (status == SL_OK && r->out->failed)
        status = SL_ERR_NOMEM;
    sl_ids_release(&c.tokens);
    return status == SL_ERR_NOMEM ? sl_fail(err, status, "out of memory") : status;
}
