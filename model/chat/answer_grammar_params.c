/* Calls whose parameters stand one by one, as rules: between tags, and as literals. */
#include "model/chat/answer_grammar_internal.h"

#include "model/grammar/grammar.h"
#include "model/grammar/json_types.h"

#include <string.h>

/* ---- tagged ---- */

/* What a text between tags cannot be held to. */
static enum sl_status check_string(struct sl_answer_rules *c, uint32_t i, const json_t *s) {
    static const char *const keys[] = {"minLength", "maxLength", "pattern", "format"};
    for (size_t k = 0; sl_answer_is_strict(c, i) && k < sizeof keys / sizeof *keys; k++)
        if (json_object_get(s, keys[k])) {
            sl_fail(c->err, SL_ERR_INVALID,
                    "%s: not supported in a strict function with this model, whose form of calls "
                    "has no JSON strings",
                    keys[k]);
            return sl_answer_blame(c, i, SL_ERR_INVALID);
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

/* A marker with a gap in it, in whose place rule stands. */
static void put_gap(struct sl_answer_rules *c, struct sl_buf *b, const char *pattern,
                    const char *rule) {
    const char *gap = strpbrk(pattern, "%#");
    char first[64];
    size_t n = gap ? (size_t)(gap - pattern) : strlen(pattern);
    memcpy(first, pattern, n);
    first[n] = '\0';
    sl_answer_put_marker(c, b, first);
    if (gap) {
        sl_buf_printf(b, "%s ", rule);
        sl_answer_put_marker(c, b, gap + 1);
    }
}

/* What the key says of its value, as a rule: one of the words. */
static void put_types(struct sl_buf *b, const char *types, bool is_string) {
    size_t n = strcspn(types, "|");
    sl_buf_puts(b, "(");
    if (is_string)
        sl_json_schema_literal(b, types, n);
    for (types += n; *types && !is_string; types += n) {
        n = strcspn(++types, "|");
        sl_json_schema_literal(b, types, n);
        sl_buf_puts(b, types[n] ? " | " : "");
    }
    sl_buf_puts(b, ")");
}

static void put_key(struct sl_answer_rules *c, struct sl_buf *b, const char *key, bool is_string) {
    struct sl_buf types = {0};
    sl_answer_put_marker(c, b, c->f->key_open);
    if (key)
        sl_answer_put_text(b, key);
    else
        sl_buf_puts(b, "[a-zA-Z0-9_]{1,64} ");
    if (c->f->types)
        put_types(&types, c->f->types, is_string);
    else
        sl_buf_puts(&types, "\"\\n\"");
    sl_buf_put(&types, "", 1);
    b->failed = b->failed || types.failed;
    if (!types.failed)
        put_gap(c, b, c->f->key_close, types.ptr);
    sl_buf_release(&types);
    if (c->f->value_space)
        sl_answer_put_text(b, c->f->value_space);
}

static void put_value_end(struct sl_answer_rules *c, struct sl_buf *b, const char *key) {
    if (c->f->value_space)
        sl_answer_put_text(b, c->f->value_space);
    sl_answer_put_marker(c, b, c->f->value_close);
    if (c->f->nested) {
        sl_answer_put_text(b, key);
        sl_answer_put_text(b, ">");
    }
    sl_answer_put_text(b, c->f->tight ? "" : "\n");
}

/* One parameter's tags and text, as an alternative in parentheses. */
static enum sl_status put_parameter(struct sl_answer_rules *c, uint32_t i, const char *key,
                                    const json_t *s, uint32_t text_rule, struct sl_buf *b) {
    const json_t *root = json_object_get(sl_answer_function(c, i), "parameters");
    uint32_t types = sl_json_types(root, s), rule = 0;
    bool text = types & SL_JSON_STRING, json = c->f->types ? types != SL_JSON_STRING : !text;
    enum sl_status status = text ? check_string(c, i, s) : SL_OK;
    if (status == SL_OK && json)
        status = sl_json_schema_rules_add(c->r, root, s, &rule, c->err);
    bool loose = status == SL_ERR_INVALID && !sl_answer_is_strict(c, i);
    if (status != SL_OK && !loose)
        return sl_answer_blame(c, i, status);
    sl_buf_puts(b, "(");
    if (text) {
        put_key(c, b, key, true);
        if (types != SL_JSON_STRING || !put_values(b, s))
            sl_buf_printf(b, "sl-t%u-0 ", text_rule);
        put_value_end(c, b, key);
    }
    if (json) {
        sl_buf_puts(b, text ? "| " : "");
        put_key(c, b, key, false);
        if (loose)
            sl_buf_puts(b, "val ");
        else
            sl_buf_printf(b, "r%u ", rule);
        put_value_end(c, b, key);
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

/* What the parameters of a strict function as a whole cannot be held to. */
static enum sl_status check_whole(struct sl_answer_rules *c, uint32_t i) {
    static const char *const whole[] = {"$ref", "allOf", "anyOf", "oneOf", "if", "not"};
    const json_t *p = json_object_get(sl_answer_function(c, i), "parameters");
    for (size_t k = 0; sl_answer_is_strict(c, i) && k < sizeof whole / sizeof *whole; k++)
        if (json_object_get(p, whole[k])) {
            sl_fail(c->err, SL_ERR_INVALID,
                    "%s: not supported for a strict function's parameters as a whole with this "
                    "model",
                    whole[k]);
            return sl_answer_blame(c, i, SL_ERR_INVALID);
        }
    return SL_OK;
}

static enum sl_status check_size(struct sl_answer_rules *c, uint32_t i, const struct sl_buf *b) {
    if (c->b->len + b->len <= SL_GRAMMAR_MAX_TEXT_BYTES)
        return SL_OK;
    sl_fail(c->err, SL_ERR_INVALID, "its parameters make too large a grammar");
    return sl_answer_blame(c, i, SL_ERR_INVALID);
}

/* Properties in the schema's order; those that are not required may be left out. */
static enum sl_status put_parameters(struct sl_answer_rules *c, uint32_t i, uint32_t text_rule,
                                     struct sl_buf *b) {
    const json_t *p = json_object_get(sl_answer_function(c, i), "parameters");
    const json_t *properties = json_object_get(p, "properties");
    enum sl_status status = check_whole(c, i);
    const char *key;
    json_t *s;
    if (status == SL_OK && json_is_object(p) && !properties && !c->f->nested) {
        status = put_parameter(c, i, NULL, NULL, text_rule, b);
        sl_buf_puts(b, "{0,16} ");
    }
    json_t *required = set_of(json_object_get(p, "required"));
    if (!required)
        return sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
    json_object_foreach((json_t *)properties, key, s) {
        if (status == SL_OK)
            status = check_size(c, i, b);
        if (status != SL_OK)
            break;
        status = put_parameter(c, i, key, s, text_rule, b);
        sl_buf_puts(b, json_object_get(required, key) ? " " : "? ");
    }
    json_decref(required);
    return status;
}

enum sl_status sl_answer_tagged_call(struct sl_answer_rules *c, uint32_t i, uint32_t text_rule) {
    const struct sl_answer_format *f = c->f;
    struct sl_buf b = {0}; /* its own: parameters add rules to c->b */
    enum sl_status status = put_parameters(c, i, text_rule, &b);
    if (status == SL_OK) {
        sl_buf_printf(c->b, "sl-call%u ::= ", i);
        sl_answer_put_marker(c, c->b, f->call_open);
        if (f->call_open && f->name_open)
            sl_answer_put_text(c->b, "\n");
        sl_answer_put_marker(c, c->b, f->name_open);
        sl_answer_put_text(c->b, sl_answer_function_name(c, i));
        if (f->name_close)
            put_gap(c, c->b, f->name_close, "[0-9]{1,3}");
        sl_answer_put_text(c->b, f->tight ? "" : "\n");
        sl_buf_put(c->b, b.ptr ? b.ptr : "", b.len);
        sl_answer_put_marker(c, c->b, f->function_close);
        if (f->function_close && f->call_close)
            sl_answer_put_text(c->b, "\n");
        sl_answer_put_marker(c, c->b, f->call_close);
        sl_buf_puts(c->b, "\n");
    }
    if (b.failed)
        status = sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
    sl_buf_release(&b);
    return status;
}

/* ---- literals ---- */

/* A key without quotes is read up to the byte behind it. */
static bool is_plain_key(const char *key) {
    return *key &&
           !key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}

/* The rule "sl-call<i>-k<k>": key and value. A string is text between the format's quotes, or JSON,
 * which Python reads as well; everything else is JSON. */
static enum sl_status put_argument(struct sl_answer_rules *c, uint32_t i, uint32_t k,
                                   const char *key, const json_t *s, uint32_t text_rule) {
    const struct sl_answer_format *f = c->f;
    const json_t *root = json_object_get(sl_answer_function(c, i), "parameters");
    uint32_t types = sl_json_types(root, s), rule = 0;
    bool text = f->quote && (types & SL_JSON_STRING), json = !text || types != SL_JSON_STRING;
    enum sl_status status = text ? check_string(c, i, s) : SL_OK;
    if (status == SL_OK && json)
        status = sl_json_schema_rules_add(c->r, root, s, &rule, c->err);
    bool loose = status == SL_ERR_INVALID && !sl_answer_is_strict(c, i);
    if (status != SL_OK && !loose)
        return sl_answer_blame(c, i, status);
    sl_buf_printf(c->b, "sl-call%u-k%u ::= ", i, k);
    if (!key) {
        sl_buf_puts(c->b, "[a-zA-Z0-9_]{1,64} ");
    } else if (is_plain_key(key)) {
        sl_answer_put_text(c->b, key);
    } else {
        struct sl_buf quoted = {0};
        sl_buf_json(&quoted, key, strlen(key));
        sl_json_schema_literal(c->b, quoted.ptr ? quoted.ptr : "", quoted.len);
        sl_buf_puts(c->b, " ");
        c->b->failed = c->b->failed || quoted.failed;
        sl_buf_release(&quoted);
    }
    sl_answer_put_text(c->b, f->key_close);
    sl_buf_puts(c->b, "(");
    if (text) {
        sl_answer_put_marker(c, c->b, f->quote);
        if (types != SL_JSON_STRING || !put_values(c->b, s))
            sl_buf_printf(c->b, "sl-t%u-0 ", text_rule);
        sl_answer_put_marker(c, c->b, f->quote);
    }
    if (json && text)
        sl_buf_puts(c->b, "| ");
    if (json && types == SL_JSON_BOOLEAN && !f->quote && !json_object_get(s, "enum") &&
        !json_object_get(s, "const"))
        sl_buf_puts(c->b, "\"True\" | \"False\"");
    else if (json && loose)
        sl_buf_puts(c->b, "val");
    else if (json)
        sl_buf_printf(c->b, "r%u", rule);
    sl_buf_puts(c->b, ")\n");
    return SL_OK;
}

/* The rule "sl-call<i>-a0": arguments in the schema's order with commas between those that are
 * there. "a<k>" goes on with the k-th argument as the first one, "b<k>" behind others. */
static enum sl_status put_arguments(struct sl_answer_rules *c, uint32_t i, uint32_t text_rule) {
    const json_t *p = json_object_get(sl_answer_function(c, i), "parameters");
    const json_t *properties = json_object_get(p, "properties");
    const char *comma = c->f->quote ? "\",\"" : "\", \"", *key;
    enum sl_status status = check_whole(c, i);
    uint32_t k = 0;
    json_t *s;
    if (status == SL_OK && json_is_object(p) && !properties) {
        status = put_argument(c, i, 0, NULL, NULL, text_rule);
        sl_buf_printf(c->b, "sl-call%u-a0 ::= (sl-call%u-k0 (%s sl-call%u-k0){0,15})?\n", i, i,
                      comma, i);
        return status;
    }
    json_t *required = set_of(json_object_get(p, "required"));
    if (!required)
        return sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
    json_object_foreach((json_t *)properties, key, s) {
        if (status == SL_OK)
            status = check_size(c, i, c->b);
        if (status == SL_OK)
            status = put_argument(c, i, k, key, s, text_rule);
        if (status != SL_OK)
            break;
        bool must = json_object_get(required, key) != NULL;
        for (int behind = 0; behind < 2; behind++) {
            char state = behind ? 'b' : 'a';
            sl_buf_printf(c->b, "sl-call%u-%c%u ::= %s sl-call%u-k%u sl-call%u-b%u", i, state, k,
                          behind ? comma : "", i, k, i, k + 1);
            if (!must)
                sl_buf_printf(c->b, " | sl-call%u-%c%u", i, state, k + 1);
            sl_buf_puts(c->b, "\n");
        }
        k++;
    }
    json_decref(required);
    sl_buf_printf(c->b, "sl-call%u-a%u ::= \"\"\n", i, k);
    if (k)
        sl_buf_printf(c->b, "sl-call%u-b%u ::= \"\"\n", i, k);
    return status;
}

enum sl_status sl_answer_literal_call(struct sl_answer_rules *c, uint32_t i, uint32_t text_rule) {
    const struct sl_answer_format *f = c->f;
    enum sl_status status = put_arguments(c, i, text_rule);
    sl_buf_printf(c->b, "sl-call%u ::= ", i);
    if (!f->array)
        sl_answer_put_marker(c, c->b, f->call_open);
    sl_answer_put_marker(c, c->b, f->name_before);
    sl_answer_put_text(c->b, sl_answer_function_name(c, i));
    sl_answer_put_text(c->b, f->separator);
    sl_buf_printf(c->b, "sl-call%u-a0 ", i);
    sl_answer_put_text(c->b, f->function_close);
    if (!f->array)
        sl_answer_put_marker(c, c->b, f->call_close);
    sl_buf_puts(c->b, "\n");
    return status;
}
