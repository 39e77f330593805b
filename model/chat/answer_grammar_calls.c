/* Calls in each family's form, as rules. */
#include "model/chat/answer_grammar_internal.h"

#include "model/grammar/grammar.h"
#include "model/grammar/json_types.h"

#include <string.h>

const json_t *sl_answer_function(const struct sl_answer_rules *c, uint32_t i) {
    return json_object_get(json_array_get(c->g->tools, i), "function");
}

const char *sl_answer_function_name(const struct sl_answer_rules *c, uint32_t i) {
    const char *name = json_string_value(json_object_get(sl_answer_function(c, i), "name"));
    return name ? name : "";
}

static bool is_strict(const struct sl_answer_rules *c, uint32_t i) {
    return json_is_true(json_object_get(sl_answer_function(c, i), "strict"));
}

/* A strict function's schema: err names the function. */
static enum sl_status blame(struct sl_answer_rules *c, uint32_t i, enum sl_status status) {
    struct sl_err e = *c->err;
    return status == SL_ERR_INVALID
               ? sl_fail(c->err, status, "tools[%u], the function '%.128s': %.300s", i,
                         sl_answer_function_name(c, i), e.text)
               : status;
}

static void put_literal(struct sl_buf *b, const char *text) {
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
    else if (status == SL_ERR_INVALID && !is_strict(c, i)) {
        sl_buf_printf(c->b, "sl-call%u-arguments ::= obj\n", i);
        status = SL_OK;
    }
    return blame(c, i, status);
}

/* ---- JSON ---- */

static void json_call(struct sl_answer_rules *c, uint32_t i) {
    const struct sl_answer_format *f = c->f;
    const char *name = sl_answer_function_name(c, i);
    struct sl_buf *b = c->b;
    sl_buf_printf(b, "sl-call%u ::= ", i);
    if (!f->array && !f->bare) {
        sl_answer_put_marker(c, b, f->call_open);
        sl_buf_puts(b, "\"\\n\" ");
    }
    if (f->syntax == SL_CALL_JSON_KEYED) {
        put_literal(b, "{\"");
        put_literal(b, name);
        put_literal(b, "\": ");
    } else {
        put_literal(b, "{\"name\": \"");
        put_literal(b, name);
        put_literal(b, "\", \"");
        put_literal(b, f->arguments_key);
        put_literal(b, "\": ");
    }
    sl_buf_printf(b, "sl-call%u-arguments ", i);
    if (f->short_ids) /* as the template writes it; the model may leave it out */
        sl_buf_puts(b, "(\", \\\"id\\\": \\\"\" [a-zA-Z0-9]{9} \"\\\"\")? ");
    put_literal(b, "}");
    if (!f->array && !f->bare) {
        sl_buf_puts(b, "\"\\n\" ");
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
    sl_answer_put_marker(c, b, f->name_before);
    put_literal(b, sl_answer_function_name(c, i));
    if (f->name_before && strcmp(f->name_before, "functions.") == 0)
        sl_buf_puts(b, "\":\" [0-9]{1,3} ");
    sl_answer_put_marker(c, b, f->separator);
    sl_answer_put_marker(c, b, f->fence);
    sl_buf_printf(b, "sl-call%u-arguments ", i);
    if (f->fence_close) {
        put_literal(b, "\n");
        put_literal(b, f->fence_close);
    }
    sl_answer_put_marker(c, b, f->call_close);
    sl_buf_puts(b, "\n");
}

/* ---- tagged ---- */

/* What a text between tags cannot be held to. */
static enum sl_status check_string(struct sl_answer_rules *c, uint32_t i, const json_t *s) {
    static const char *const keys[] = {"minLength", "maxLength", "pattern", "format"};
    for (size_t k = 0; is_strict(c, i) && k < sizeof keys / sizeof *keys; k++)
        if (json_object_get(s, keys[k])) {
            sl_fail(c->err, SL_ERR_INVALID,
                    "%s: not supported in a strict function with this model, whose form of calls "
                    "has no JSON strings",
                    keys[k]);
            return blame(c, i, SL_ERR_INVALID);
        }
    return SL_OK;
}

/* Alternatives, each a text as it stands between the tags. False: not all are strings. */
static bool put_values(struct sl_buf *b, const json_t *s) {
    const json_t *one = json_object_get(s, "const"), *all = json_object_get(s, "enum");
    size_t n = one ? 1 : json_array_size(all);
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(one ? one : json_array_get(all, i)))
            return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = one ? one : json_array_get(all, i);
        sl_buf_puts(b, i ? " | " : "(");
        sl_json_schema_literal(b, json_string_value(v), json_string_length(v));
    }
    if (n)
        sl_buf_puts(b, ") ");
    return n > 0;
}

static void put_key(struct sl_answer_rules *c, struct sl_buf *b, const char *key, bool is_string) {
    const char *close = c->f->key_close, *gap = strchr(close, '%');
    char first[64];
    size_t n = gap ? (size_t)(gap - close) : strlen(close);
    memcpy(first, close, n);
    first[n] = '\0';
    sl_answer_put_marker(c, b, c->f->key_open);
    if (key)
        put_literal(b, key);
    else
        sl_buf_puts(b, "[a-zA-Z0-9_]{1,64} ");
    sl_answer_put_marker(c, b, first);
    if (gap) {
        put_literal(b, c->f->typed ? is_string ? "true" : "false" : "\n");
        sl_answer_put_marker(c, b, gap + 1);
    }
    if (c->f->value_space)
        put_literal(b, c->f->value_space);
}

static void put_value_end(struct sl_answer_rules *c, struct sl_buf *b) {
    if (c->f->value_space)
        put_literal(b, c->f->value_space);
    sl_answer_put_marker(c, b, c->f->value_close);
    put_literal(b, "\n");
}

/* One parameter's tags and text, as an alternative in parentheses. */
static enum sl_status put_parameter(struct sl_answer_rules *c, uint32_t i, const char *key,
                                    const json_t *s, uint32_t text_rule, struct sl_buf *b) {
    const json_t *root = json_object_get(sl_answer_function(c, i), "parameters");
    uint32_t types = sl_json_types(root, s), rule = 0;
    bool text = types & SL_JSON_STRING, json = c->f->typed ? types != SL_JSON_STRING : !text;
    enum sl_status status = text ? check_string(c, i, s) : SL_OK;
    if (status == SL_OK && json)
        status = sl_json_schema_rules_add(c->r, root, s, &rule, c->err);
    bool loose = status == SL_ERR_INVALID && !is_strict(c, i);
    if (status != SL_OK && !loose)
        return blame(c, i, status);
    sl_buf_puts(b, "(");
    if (text) {
        put_key(c, b, key, true);
        if (types != SL_JSON_STRING || !put_values(b, s))
            sl_buf_printf(b, "sl-t%u-0 ", text_rule);
        put_value_end(c, b);
    }
    if (json) {
        sl_buf_puts(b, text ? "| " : "");
        put_key(c, b, key, false);
        if (loose)
            sl_buf_puts(b, "val ");
        else
            sl_buf_printf(b, "r%u ", rule);
        put_value_end(c, b);
    }
    sl_buf_puts(b, ")");
    return SL_OK;
}

/* Names as the members of an object, for lists that a stranger made long. NULL: out of memory. */
static json_t *set_of(const json_t *names) {
    json_t *set = json_object();
    for (size_t i = 0; set && i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name && json_object_set_new_nocheck(set, name, json_true()) != 0) {
            json_decref(set);
            set = NULL;
        }
    }
    return set;
}

/* Properties in the schema's order; those that are not required may be left out. */
static enum sl_status put_parameters(struct sl_answer_rules *c, uint32_t i, uint32_t text_rule,
                                     struct sl_buf *b) {
    static const char *const whole[] = {"$ref", "allOf", "anyOf", "oneOf", "if", "not"};
    const json_t *p = json_object_get(sl_answer_function(c, i), "parameters");
    const json_t *properties = json_object_get(p, "properties");
    enum sl_status status = SL_OK;
    const char *key;
    json_t *s;
    for (size_t k = 0; is_strict(c, i) && k < sizeof whole / sizeof *whole; k++)
        if (json_object_get(p, whole[k])) {
            sl_fail(c->err, SL_ERR_INVALID,
                    "%s: not supported for a strict function's parameters as a whole with this "
                    "model",
                    whole[k]);
            return blame(c, i, SL_ERR_INVALID);
        }
    if (json_is_object(p) && !properties)
        status = put_parameter(c, i, NULL, NULL, text_rule, b);
    if (json_is_object(p) && !properties)
        sl_buf_puts(b, "{0,16} ");
    json_t *required = set_of(json_object_get(p, "required"));
    if (!required)
        return sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
    json_object_foreach((json_t *)properties, key, s) {
        if (status == SL_OK && c->b->len + b->len > SL_GRAMMAR_MAX_TEXT_BYTES) {
            sl_fail(c->err, SL_ERR_INVALID, "its parameters make too large a grammar");
            status = blame(c, i, SL_ERR_INVALID);
        }
        if (status != SL_OK)
            break;
        status = put_parameter(c, i, key, s, text_rule, b);
        sl_buf_puts(b, json_object_get(required, key) ? " " : "? ");
    }
    json_decref(required);
    return status;
}

static enum sl_status tagged_call(struct sl_answer_rules *c, uint32_t i, uint32_t text_rule) {
    const struct sl_answer_format *f = c->f;
    struct sl_buf b = {0}; /* apart: parameters add rules of their own */
    enum sl_status status = put_parameters(c, i, text_rule, &b);
    if (status == SL_OK) {
        sl_buf_printf(c->b, "sl-call%u ::= ", i);
        sl_answer_put_marker(c, c->b, f->call_open);
        if (f->call_open && f->name_open)
            put_literal(c->b, "\n");
        sl_answer_put_marker(c, c->b, f->name_open);
        put_literal(c->b, sl_answer_function_name(c, i));
        sl_answer_put_marker(c, c->b, f->name_close);
        put_literal(c->b, "\n");
        sl_buf_put(c->b, b.ptr ? b.ptr : "", b.len);
        sl_answer_put_marker(c, c->b, f->function_close);
        if (f->function_close && f->call_close)
            put_literal(c->b, "\n");
        sl_answer_put_marker(c, c->b, f->call_close);
        sl_buf_puts(c->b, "\n");
    }
    if (b.failed)
        status = sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
    sl_buf_release(&b);
    return status;
}

/* ---- all of them ---- */

static enum sl_status put_each(struct sl_answer_rules *c) {
    uint32_t text_rule = 0, n = (uint32_t)json_array_size(c->g->tools);
    enum sl_status status = SL_OK;
    if (c->f->syntax == SL_CALL_TAGGED)
        status = sl_answer_free_text(c, &c->f->value_close, 1, &text_rule);
    for (uint32_t i = 0; i < n && status == SL_OK; i++) {
        if (c->f->syntax == SL_CALL_TAGGED) {
            status = tagged_call(c, i, text_rule);
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

enum sl_status sl_answer_calls(struct sl_answer_rules *c) {
    const struct sl_answer_format *f = c->f;
    struct sl_buf *b = c->b;
    enum sl_status status = put_each(c);
    uint32_t n = (uint32_t)json_array_size(c->g->tools);
    bool tagged = f->syntax == SL_CALL_TAGGED, many = c->g->parallel && !f->one_call;
    sl_buf_puts(b, "sl-call ::= ");
    for (uint32_t i = 0; i < n; i++)
        sl_buf_printf(b, "%ssl-call%u", i ? " | " : "", i);
    sl_buf_puts(b, "\nsl-calls ::= ");
    sl_answer_put_marker(c, b, f->section_open);
    if (f->section_open && tagged)
        put_literal(b, "\n");
    if (f->bare) {
        sl_buf_puts(b, "(");
        sl_answer_put_marker(c, b, f->call_open);
        sl_buf_puts(b, ")? ");
    }
    if (f->array) {
        sl_answer_put_marker(c, b, f->call_open);
        sl_buf_puts(b, "\" \"? \"[\" ");
    }
    sl_buf_puts(b, "sl-call ");
    if (many) {
        bool named = f->syntax == SL_CALL_NAMED;
        bool line = !named || f->fence;
        const char *between = f->array ? "\", \" " : line ? "\"\\n\" " : "";
        sl_buf_printf(b, "(%ssl-call){0,%u} ", between, SL_MAX_CALLS - 1);
    }
    if (f->array) {
        put_literal(b, "]");
        sl_answer_put_marker(c, b, f->call_close);
    }
    if (f->section_close && tagged)
        put_literal(b, "\n");
    sl_answer_put_marker(c, b, f->section_close);
    sl_buf_puts(b, "\n");
    return status;
}
