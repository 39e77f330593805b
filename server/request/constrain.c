#include "server/request/constrain.h"

#include "server/request/fields.h"

#include <stdio.h>
#include <string.h>

static bool add_schema(struct sl_content_form *f, const json_t *schema, bool strict,
                       const char *field, struct sl_http_error *e) {
    struct sl_err err;
    uint32_t rule = 0;
    sl_json_schema_rules_begin(&f->rules, &f->text);
    f->rules.strict = strict;
    enum sl_status status = sl_json_schema_rules_add(&f->rules, schema, schema, &rule, &err);
    if (status == SL_ERR_INVALID)
        return sl_http_bad(e, field, "'%s': %.440s", field, err.text);
    if (status != SL_OK)
        return sl_http_from_status(e, status, &err);
    snprintf(f->rule, sizeof f->rule, "r%u", rule);
    f->field = field;
    return true;
}

static bool read_response_format(const json_t *f, struct sl_content_form *out,
                                 struct sl_http_error *e) {
    static const char *const field = "response_format";
    if (!json_is_object(f))
        return sl_http_bad(e, field, "'%s' must be an object, not %s", field, sl_json_kind(f));
    const char *type = json_string_value(json_object_get(f, "type"));
    if (!type)
        return sl_http_bad(e, field, "'response_format.type' must be a string");
    if (strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0) {
        json_t *any = json_pack("{s:s}", "type", "object");
        bool ok = any ? add_schema(out, any, false, field, e)
                      : sl_http_from_status(e, SL_ERR_NOMEM, NULL);
        json_decref(any);
        return ok;
    }
    if (strcmp(type, "json_schema") != 0)
        return sl_http_bad(
            e, field,
            "'response_format.type' must be text, json_object or json_schema, not '%.40s'", type);
    const json_t *spec = json_object_get(f, "json_schema");
    if (!json_is_object(spec))
        return sl_http_bad(e, "response_format.json_schema",
                           "'response_format.json_schema' must be an object, not %s",
                           sl_json_kind(spec));
    const json_t *strict = json_object_get(spec, "strict");
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return sl_http_bad(e, "response_format.json_schema.strict",
                           "'response_format.json_schema.strict' must be true or false, not %s",
                           sl_json_kind(strict));
    const json_t *schema = json_object_get(spec, "schema");
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return sl_http_bad(e, "response_format.json_schema.schema",
                           "'response_format.json_schema.schema' must be an object, not %s",
                           sl_json_kind(schema));
    return add_schema(out, schema, json_is_true(strict), "response_format.json_schema.schema", e);
}

bool sl_content_form_read(const json_t *body, struct sl_content_form *out,
                          struct sl_http_error *e) {
    const json_t *format = json_object_get(body, "response_format");
    const json_t *grammar = json_object_get(body, "grammar");
    if (format && !json_is_null(format) && !read_response_format(format, out, e))
        return false;
    if (!grammar || json_is_null(grammar) ||
        (json_is_string(grammar) && json_string_length(grammar) == 0))
        return true;
    if (!json_is_string(grammar))
        return sl_http_bad(e, "grammar", "'grammar' must be a string, not %s",
                           sl_json_kind(grammar));
    if (out->field)
        return sl_http_bad(e, "grammar", "'grammar' and 'response_format' cannot both be given");
    sl_buf_put(&out->text, json_string_value(grammar), json_string_length(grammar));
    sl_buf_puts(&out->text, "\n"); /* a comment may be its end */
    out->rules.out = &out->text;
    out->field = "grammar";
    out->is_grammar = true;
    snprintf(out->rule, sizeof out->rule, "root");
    return !out->text.failed || sl_http_from_status(e, SL_ERR_NOMEM, NULL);
}

void sl_content_form_release(struct sl_content_form *f) {
    sl_buf_release(&f->text);
    *f = (struct sl_content_form){0};
}

bool sl_content_form_compile(const struct sl_content_form *f, const char *rule, const char *field,
                             struct sl_grammar **out_grammar, struct sl_http_error *e) {
    struct sl_err err;
    *out_grammar = NULL;
    if (!rule[0])
        return true;
    enum sl_status status =
        f->text.failed ? sl_fail(&err, SL_ERR_NOMEM, "out of memory")
                       : sl_grammar_parse_from(f->text.ptr, f->text.len, rule, out_grammar, &err);
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
