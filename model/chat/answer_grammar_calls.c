/* Calls in each family's form, as rules. */
#include "model/chat/answer_grammar_internal.h"

#include <string.h>

const json_t *sl_answer_function(const struct sl_answer_rules *c, uint32_t i) {
    return json_object_get(json_array_get(c->g->tools, i), "function");
}

const char *sl_answer_function_name(const struct sl_answer_rules *c, uint32_t i) {
    const char *name = json_string_value(json_object_get(sl_answer_function(c, i), "name"));
    return name ? name : "";
}

bool sl_answer_is_strict(const struct sl_answer_rules *c, uint32_t i) {
    return json_is_true(json_object_get(sl_answer_function(c, i), "strict"));
}

enum sl_status sl_answer_blame(struct sl_answer_rules *c, uint32_t i, enum sl_status status) {
    struct sl_err e = *c->err;
    return status == SL_ERR_INVALID
               ? sl_fail(c->err, status, "tools[%u], the function '%.128s': %.300s", i,
                         sl_answer_function_name(c, i), e.text)
               : status;
}

void sl_answer_put_text(struct sl_buf *b, const char *text) {
    if (!*text)
        return;
    sl_json_schema_literal(b, text, strlen(text));
    sl_buf_puts(b, " ");
}

enum sl_status sl_answer_arguments(struct sl_answer_rules *c, uint32_t i) {
    const json_t *parameters = json_object_get(sl_answer_function(c, i), "parameters");
    uint32_t rule = 0;
    bool given = json_is_object(parameters);
    const char *type = json_string_value(json_object_get(parameters, "type"));
    json_t *schema = !given ? json_pack("{s:s,s:b}", "type", "object", "additionalProperties", 0)
                     : type ? json_incref((json_t *)parameters)
                            : json_pack("{s:[{s:s},O]}", "allOf", "type", "object", parameters);
    if (!schema)
        return sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
    enum sl_status status =
        sl_json_schema_rules_add(c->r, given ? parameters : schema, schema, &rule, c->err);
    json_decref(schema);
    if (status == SL_OK)
        sl_buf_printf(c->b, "sl-call%u-arguments ::= r%u\n", i, rule);
    else if (status == SL_ERR_INVALID && !sl_answer_is_strict(c, i)) {
        sl_buf_printf(c->b, "sl-call%u-arguments ::= obj\n", i);
        status = SL_OK;
    }
    return sl_answer_blame(c, i, status);
}

/* ---- JSON ---- */

static void json_call(struct sl_answer_rules *c, uint32_t i) {
    const struct sl_answer_format *f = c->f;
    const char *name = sl_answer_function_name(c, i);
    struct sl_buf *b = c->b;
    bool marked = !f->array && !f->bare && !f->lines;
    sl_buf_printf(b, "sl-call%u ::= ", i);
    if (marked) {
        sl_answer_put_marker(c, b, f->call_open);
        sl_answer_put_text(b, f->call_close ? "\n" : " ");
    }
    if (f->syntax == SL_CALL_JSON_KEYED) {
        sl_answer_put_text(b, "{\"");
        sl_answer_put_text(b, name);
        sl_answer_put_text(b, "\": ");
    } else {
        sl_answer_put_text(b, "{\"");
        if (f->id_key) {
            sl_buf_puts(b, "(");
            sl_answer_put_text(b, f->id_key);
            sl_buf_puts(b, "\"\\\": \\\"\" [0-9]{1,3} \"\\\", \\\"\")? ");
        }
        sl_answer_put_text(b, f->name_key ? f->name_key : "name");
        sl_answer_put_text(b, "\": \"");
        sl_answer_put_text(b, name);
        sl_answer_put_text(b, "\", \"");
        sl_answer_put_text(b, f->arguments_key);
        sl_answer_put_text(b, "\": ");
    }
    sl_buf_printf(b, "sl-call%u-arguments ", i);
    if (f->short_ids) /* as the template writes it; the model may leave it out */
        sl_buf_puts(b, "(\", \\\"id\\\": \\\"\" [a-zA-Z0-9]{9} \"\\\"\")? ");
    sl_answer_put_text(b, "}");
    if (marked && f->call_close) {
        sl_answer_put_text(b, "\n");
        sl_answer_put_marker(c, b, f->call_close);
    }
    sl_buf_puts(b, "\n");
}

/* ---- named ---- */

static void named_call(struct sl_answer_rules *c, uint32_t i) {
    const struct sl_answer_format *f = c->f;
    struct sl_buf *b = c->b;
    sl_buf_printf(b, "sl-call%u ::= ", i);
    sl_answer_put_marker(c, b, f->call_open);
    if (f->id_close) {
        sl_buf_puts(b, "[a-zA-Z0-9_-]{1,40} ");
        sl_answer_put_marker(c, b, f->id_close);
    }
    sl_answer_put_marker(c, b, f->name_before);
    sl_answer_put_text(b, sl_answer_function_name(c, i));
    if (f->name_before && strcmp(f->name_before, "functions.") == 0)
        sl_buf_puts(b, "\":\" [0-9]{1,3} ");
    sl_answer_put_marker(c, b, f->separator);
    sl_answer_put_marker(c, b, f->fence);
    sl_buf_printf(b, "sl-call%u-arguments ", i);
    if (f->fence_close) {
        sl_answer_put_text(b, "\n");
        sl_answer_put_text(b, f->fence_close);
    }
    sl_answer_put_marker(c, b, f->call_close);
    sl_buf_puts(b, "\n");
}

/* ---- all of them ---- */

static enum sl_status put_each(struct sl_answer_rules *c) {
    uint32_t text_rule = 0, n = (uint32_t)json_array_size(c->g->tools);
    bool tagged = c->f->syntax == SL_CALL_TAGGED, literal = c->f->syntax == SL_CALL_LITERAL;
    /* What ends a value: of nested ones the tags within, for the key is in their own. */
    const char *end = literal ? c->f->quote : c->f->nested ? c->f->key_open : c->f->value_close;
    enum sl_status status = SL_OK;
    if (tagged || end)
        status = sl_answer_free_text(c, &end, 1, &text_rule);
    for (uint32_t i = 0; i < n && status == SL_OK; i++) {
        if (tagged || literal) {
            status = (tagged ? sl_answer_tagged_call : sl_answer_literal_call)(c, i, text_rule);
            continue;
        }
        status = sl_answer_arguments(c, i);
        if (c->f->syntax == SL_CALL_NAMED)
            named_call(c, i);
        else
            json_call(c, i);
    }
    return status;
}

/* What stands between two calls. */
static const char *between_calls(const struct sl_answer_format *f) {
    if (f->array)
        return ", ";
    if (f->syntax == SL_CALL_LITERAL || (f->syntax == SL_CALL_NAMED && !f->fence))
        return "";
    return f->tight_calls ? "" : "\n";
}

enum sl_status sl_answer_calls(struct sl_answer_rules *c) {
    const struct sl_answer_format *f = c->f;
    struct sl_buf *b = c->b;
    enum sl_status status = put_each(c);
    uint32_t n = (uint32_t)json_array_size(c->g->tools);
    bool line = f->syntax == SL_CALL_TAGGED && !f->tight_calls;
    sl_buf_puts(b, "sl-call ::= ");
    for (uint32_t i = 0; i < n; i++)
        sl_buf_printf(b, "%ssl-call%u", i ? " | " : "", i);
    sl_buf_puts(b, "\nsl-calls ::= ");
    sl_answer_put_marker(c, b, f->section_open);
    if (f->section_open && line)
        sl_answer_put_text(b, "\n");
    if (f->bare && f->call_open) {
        sl_buf_puts(b, "(");
        sl_answer_put_marker(c, b, f->call_open);
        sl_buf_puts(b, ")? ");
    } else if (f->array || f->lines) {
        sl_answer_put_marker(c, b, f->call_open);
    }
    const char *gap = f->id_key ? "[ \\n]{0,6} " : ""; /* pretty-printed by some */
    if (f->array)
        sl_buf_printf(b, "\" \"? \"[\" %s", gap);
    if (f->lines)
        sl_answer_put_text(b, "\n");
    sl_buf_puts(b, "sl-call ");
    if (c->g->parallel && !f->one_call) {
        sl_buf_puts(b, "(");
        if (*gap)
            sl_buf_printf(b, "\",\" %s", gap);
        else
            sl_answer_put_text(b, between_calls(f));
        sl_buf_printf(b, "sl-call){0,%u} ", SL_MAX_CALLS - 1);
    }
    if (f->array)
        sl_buf_printf(b, "%s\"]\" ", gap);
    if (f->lines)
        sl_answer_put_text(b, "\n");
    if ((f->array || f->lines) && !f->bare)
        sl_answer_put_marker(c, b, f->call_close);
    if (f->section_close && line)
        sl_answer_put_text(b, "\n");
    sl_answer_put_marker(c, b, f->section_close);
    sl_buf_puts(b, "\n");
    return status;
}
