#include "server/request/constrain.h"

#include "server/request/fields.h"

#include <stdio.h>
#include <string.h>

#define MAX_CHOICES 2000u

/* False with the error of a form that cannot be. Only one is there at once. */
static bool begin(struct sl_content_form *f, const char *field, struct sl_http_error *e) {
    if (f->field)
        return sl_http_bad(e, field, "'%s' and '%s' cannot both be given", field, f->field);
    sl_json_schema_rules_begin(&f->rules, &f->text);
    return true;
}

static bool end(struct sl_content_form *f, enum sl_status status, uint32_t rule, const char *field,
                const struct sl_err *err, struct sl_http_error *e) {
    if (status == SL_ERR_INVALID)
        return sl_http_bad(e, field, "'%s': %.440s", field, err->text);
    if (status != SL_OK)
        return sl_http_from_status(e, status, err);
    snprintf(f->rule, sizeof f->rule, "r%u", rule);
    f->field = field;
    return true;
}

enum { STRICT = 1, OPEN = 2 };

static bool add_schema(struct sl_content_form *f, const json_t *schema, unsigned how,
                       const char *field, struct sl_http_error *e) {
    struct sl_err err;
    uint32_t rule = 0;
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return sl_http_bad(e, field, "'%s' must be an object, not %s", field, sl_json_kind(schema));
    if (!begin(f, field, e))
        return false;
    f->rules.strict = how & STRICT;
    f->rules.open = how & OPEN;
    enum sl_status status = sl_json_schema_rules_add(&f->rules, schema, schema, &rule, &err);
    f->rules.strict = f->rules.open = false; /* the schemas of tools follow */
    return end(f, status, rule, field, &err, e);
}

/* A schema, or its text: vLLM's clients send either. */
static bool add_json(struct sl_content_form *f, const json_t *v, unsigned how, const char *field,
                     struct sl_http_error *e) {
    if (!json_is_string(v))
        return add_schema(f, v, how, field, e);
    uint32_t units = SL_JSON_MAX_UNITS;
    json_t *schema = NULL;
    if (sl_json_take_units(json_string_value(v), json_string_length(v), &units))
        schema = json_loadb(json_string_value(v), json_string_length(v), JSON_DECODE_ANY, NULL);
    if (!schema)
        return sl_http_bad(e, field, "'%s' is a string, but not the text of a schema", field);
    bool ok = add_schema(f, schema, how, field, e);
    json_decref(schema);
    return ok;
}

static bool add_object(struct sl_content_form *f, const char *field, struct sl_http_error *e) {
    json_t *any = json_pack("{s:s}", "type", "object");
    bool ok = any ? add_schema(f, any, 0, field, e) : sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    json_decref(any);
    return ok;
}

static bool add_regex(struct sl_content_form *f, const json_t *v, const char *field,
                      struct sl_http_error *e) {
    struct sl_err err;
    uint32_t rule = 0;
    if (!json_is_string(v))
        return sl_http_bad(e, field, "'%s' must be a string, not %s", field, sl_json_kind(v));
    if (!begin(f, field, e))
        return false;
    enum sl_status status = sl_json_schema_rules_add_pattern(&f->rules, json_string_value(v),
                                                             json_string_length(v), &rule, &err);
    return end(f, status, rule, field, &err, e);
}

static bool add_choice(struct sl_content_form *f, const json_t *v, const char *field,
                       struct sl_http_error *e) {
    size_t n = json_array_size(v), bytes = 0;
    if (!json_is_array(v) || n == 0 || n > MAX_CHOICES)
        return sl_http_bad(e, field, "'%s' must be an array of 1 to %u strings", field,
                           MAX_CHOICES);
    if (!begin(f, field, e))
        return false;
    uint32_t rule = f->rules.n_rules++;
    sl_buf_printf(&f->text, "r%u ::=", rule);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(v, i);
        bytes += json_string_length(one);
        if (!json_string_length(one) || bytes > SL_GRAMMAR_MAX_NODES / 2)
            return sl_http_bad(e, field,
                               "'%s[%zu]' must be a string of at least one byte; all of "
                               "them have at most %u",
                               field, i, SL_GRAMMAR_MAX_NODES / 2);
        sl_buf_puts(&f->text, i ? " | " : " ");
        sl_json_schema_literal(&f->text, json_string_value(one), json_string_length(one));
    }
    sl_buf_puts(&f->text, "\n");
    return end(f, f->text.failed ? SL_ERR_NOMEM : SL_OK, rule, field, NULL, e);
}

static bool add_grammar(struct sl_content_form *f, const json_t *v, const char *field,
                        struct sl_http_error *e) {
    if (!json_is_string(v))
        return sl_http_bad(e, field, "'%s' must be a string, not %s", field, sl_json_kind(v));
    if (f->field)
        return sl_http_bad(e, field, "'%s' and '%s' cannot both be given", field, f->field);
    sl_buf_put(&f->text, json_string_value(v), json_string_length(v));
    sl_buf_puts(&f->text, "\n"); /* a comment may be its end */
    f->rules.out = &f->text;
    f->field = field;
    f->is_grammar = true;
    snprintf(f->rule, sizeof f->rule, "root");
    return !f->text.failed || sl_http_from_status(e, SL_ERR_NOMEM, NULL);
}

static bool given(const json_t *v) {
    return v && !json_is_null(v);
}

static bool read_response_format(const json_t *f, struct sl_content_form *out,
                                 struct sl_http_error *e) {
    static const char *const field = "response_format";
    if (!json_is_object(f))
        return sl_http_bad(e, field, "'%s' must be an object, not %s", field, sl_json_kind(f));
    const char *type = json_string_value(json_object_get(f, "type"));
    const json_t *schema = json_object_get(f, "schema");
    if (!type)
        return sl_http_bad(e, field, "'response_format.type' must be a string");
    if (strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0 && given(schema)) /* as llama.cpp has it */
        return add_schema(out, schema, 0, "response_format.schema", e);
    if (strcmp(type, "json_object") == 0)
        return add_object(out, field, e);
    if (strcmp(type, "grammar") == 0)
        return add_grammar(out, json_object_get(f, "grammar"), "response_format.grammar", e);
    if (strcmp(type, "json_schema") != 0)
        return sl_http_bad(e, field,
                           "'response_format.type' must be text, json_object, json_schema or "
                           "grammar, not '%.40s'",
                           type);
    const json_t *spec = json_object_get(f, "json_schema");
    if (!spec && given(schema))
        return add_schema(out, schema, 0, "response_format.schema", e);
    if (!json_is_object(spec))
        return sl_http_bad(e, "response_format.json_schema",
                           "'response_format.json_schema' must be an object, not %s",
                           sl_json_kind(spec));
    const json_t *strict = json_object_get(spec, "strict");
    if (given(strict) && !json_is_boolean(strict))
        return sl_http_bad(e, "response_format.json_schema.strict",
                           "'response_format.json_schema.strict' must be true or false, not %s",
                           sl_json_kind(strict));
    return add_schema(out, json_object_get(spec, "schema"), json_is_true(strict) ? STRICT : 0,
                      "response_format.json_schema.schema", e);
}

/* A grammar's text, or what text-generation-inference has under this name. */
static bool read_grammar(const json_t *g, struct sl_content_form *out, struct sl_http_error *e) {
    if (json_is_string(g))
        return json_string_length(g) == 0 || add_grammar(out, g, "grammar", e);
    if (!json_is_object(g))
        return sl_http_bad(e, "grammar", "'grammar' must be a string, not %s", sl_json_kind(g));
    const char *type = json_string_value(json_object_get(g, "type"));
    const json_t *value = json_object_get(g, "value");
    if (type && (strcmp(type, "json") == 0 || strcmp(type, "json_schema") == 0))
        return add_json(out, value, 0, "grammar.value", e);
    if (type && strcmp(type, "regex") == 0)
        return add_regex(out, value, "grammar.value", e);
    return sl_http_bad(e, "grammar", "'grammar.type' must be json, json_schema or regex");
}

/* vLLM's object for what it had under guided_* before. */
static bool read_structured_outputs(const json_t *s, struct sl_content_form *out,
                                    struct sl_http_error *e) {
    static const char *const refused[] = {"structural_tag", "whitespace_pattern"};
    if (!json_is_object(s))
        return sl_http_bad(e, "structured_outputs",
                           "'structured_outputs' must be an object, not %s", sl_json_kind(s));
    for (size_t i = 0; i < 2; i++)
        if (given(json_object_get(s, refused[i])))
            return sl_http_bad(
                e,
                i ? "structured_outputs.whitespace_pattern" : "structured_outputs.structural_tag",
                "'structured_outputs.%s' is not supported: leave it out", refused[i]);
    const json_t *closed = json_object_get(s, "disable_additional_properties");
    const json_t *object = json_object_get(s, "json_object"), *v;
    if ((given(closed) && !json_is_boolean(closed)) || (given(object) && !json_is_boolean(object)))
        return sl_http_bad(e, "structured_outputs", "'structured_outputs.%s' must be true or false",
                           given(closed) && !json_is_boolean(closed)
                               ? "disable_additional_properties"
                               : "json_object");
    if (given(v = json_object_get(s, "json")) &&
        !add_json(out, v, json_is_false(closed) ? OPEN : 0, "structured_outputs.json", e))
        return false;
    if (given(v = json_object_get(s, "regex")) && !add_regex(out, v, "structured_outputs.regex", e))
        return false;
    if (given(v = json_object_get(s, "choice")) &&
        !add_choice(out, v, "structured_outputs.choice", e))
        return false;
    if (given(v = json_object_get(s, "grammar")) &&
        !add_grammar(out, v, "structured_outputs.grammar", e))
        return false;
    if (json_is_true(object) && !add_object(out, "structured_outputs.json_object", e))
        return false;
    return out->field || sl_http_bad(e, "structured_outputs",
                                     "'structured_outputs' must have json, regex, choice, grammar "
                                     "or json_object");
}

bool sl_content_form_read(const json_t *body, struct sl_content_form *out,
                          struct sl_http_error *e) {
    const json_t *v;
    if (given(v = json_object_get(body, "response_format")) && !read_response_format(v, out, e))
        return false;
    if (given(v = json_object_get(body, "json_schema")) && !add_schema(out, v, 0, "json_schema", e))
        return false;
    if (given(v = json_object_get(body, "grammar")) && !read_grammar(v, out, e))
        return false;
    if (given(v = json_object_get(body, "guided_json")) && !add_json(out, v, 0, "guided_json", e))
        return false;
    if (given(v = json_object_get(body, "guided_regex")) && !add_regex(out, v, "guided_regex", e))
        return false;
    if (given(v = json_object_get(body, "guided_choice")) &&
        !add_choice(out, v, "guided_choice", e))
        return false;
    if (given(v = json_object_get(body, "guided_grammar")) &&
        !add_grammar(out, v, "guided_grammar", e))
        return false;
    if (given(json_object_get(body, "guided_whitespace_pattern")))
        return sl_http_bad(e, "guided_whitespace_pattern",
                           "'guided_whitespace_pattern' is not supported: leave it out");
    return !given(v = json_object_get(body, "structured_outputs")) ||
           read_structured_outputs(v, out, e);
}

void sl_content_form_release(struct sl_content_form *f) {
    sl_buf_release(&f->text);
    *f = (struct sl_content_form){0};
}

bool sl_content_form_compile(const struct sl_content_form *f, const char *rule, const char *field,
                             const struct sl_tokenizer *tok, struct sl_grammar **out_grammar,
                             struct sl_http_error *e) {
    struct sl_err err;
    *out_grammar = NULL;
    if (!rule[0])
        return true;
    enum sl_status status = f->text.failed ? sl_fail(&err, SL_ERR_NOMEM, "out of memory")
                                           : sl_grammar_parse_for(tok, f->text.ptr, f->text.len,
                                                                  rule, out_grammar, &err);
    if (status == SL_ERR_INVALID)
        return sl_http_bad(e, field, "'%s': %.440s", field, err.text);
    return status == SL_OK || sl_http_from_status(e, status, &err);
}

/* ---- the scheduler's thread ---- */

/* A grammar that cannot be followed is its sender's mistake. */
static enum sl_status blame(enum sl_status status) {
    return status == SL_ERR_UNSUPPORTED ? SL_ERR_INVALID : status;
}

static enum sl_status mask(struct sl_constraint *base, float *logits, uint32_t n_vocab) {
    struct sl_constrained *c = (struct sl_constrained *)base;
    const uint64_t *set;
    enum sl_status status = c->status;
    if (status == SL_OK)
        status = sl_cursor_mask(&c->cursor, &set, &base->err);
    if (status != SL_OK)
        return blame(status);
    sl_token_set_apply(set, sl_cursor_n_vocab(&c->cursor), logits, n_vocab);
    return SL_OK;
}

static enum sl_status accept_token(struct sl_constraint *base, uint32_t token) {
    struct sl_constrained *c = (struct sl_constrained *)base;
    return blame(sl_cursor_push_token(&c->cursor, token, &base->err));
}

void sl_constrained_init(struct sl_constrained *c, struct sl_automaton *a) {
    *c = (struct sl_constrained){.base = {.mask = mask, .accept = accept_token}};
    c->status = sl_cursor_init(&c->cursor, a, &c->base.err);
}

void sl_constrained_release(struct sl_constrained *c) {
    sl_cursor_release(&c->cursor);
}
