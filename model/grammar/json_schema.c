#include "model/grammar/json_schema_regex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OVERLAPPING 12u /* alternatives of a oneOf */

/* White space is bounded: without that, a model may go on with it for ever. */
static const char common_rules[] =
    "ws ::= (\" \" | \"\\n\" [ ]{0,32})?\n"
    "sp ::= \" \"?\n"
    "esc ::= [\"\\\\/bfnrt] | \"u\" (\"0\" (\"0\" (\"0\" [1-9a-fA-F] | [1-9a-fA-F] hex) | "
    "[1-9a-fA-F] hex hex) | [1-9a-cA-CefEF] hex hex hex | [dD] [0-7] hex hex)\n"
    "hex ::= [0-9a-fA-F]\n"
    "str ::= \"\\\"\" " SL_SCHEMA_ANY_CHAR "* \"\\\"\"\n"
    "int ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "num ::= int (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
    "arr ::= \"[\" ws (val (\",\" ws val)* ws)? \"]\"\n"
    "obj ::= \"{\" ws (str \":\" sp val (\",\" ws str \":\" sp val)* ws)? \"}\"\n"
    "val ::= str | num | obj | arr | \"true\" | \"false\" | \"null\"\n";

enum sl_status sl_schema_no_memory(struct sl_schema *c) {
    return sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
}

void sl_schema_literal(struct sl_buf *b, const char *bytes, size_t len) {
    sl_buf_puts(b, "\"");
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)bytes[i];
        if (ch == '"' || ch == '\\')
            sl_buf_printf(b, "\\%c", ch);
        else if (ch < 0x20)
            sl_buf_printf(b, "\\x%02x", ch);
        else
            sl_buf_put(b, bytes + i, 1);
    }
    sl_buf_puts(b, "\"");
}

/* ---- counts ---- */

/* A most that is out of reach is one that is not there. */
enum sl_status sl_schema_counts(struct sl_schema *c, const json_t *s, const char *least_key,
                                const char *most_key, uint32_t *out_least, uint32_t *out_most) {
    const json_t *l = json_object_get(s, least_key), *m = json_object_get(s, most_key);
    double least = l ? json_number_value(l) : 0, most = m ? json_number_value(m) : INFINITY;
    if (least > SL_SCHEMA_MAX_COUNT)
        return sl_fail(c->err, SL_ERR_INVALID, "%s: at most %u is supported", least_key,
                       SL_SCHEMA_MAX_COUNT);
    if (most < least)
        return SL_SCHEMA_NOTHING(c, "%s is more than %s", least_key, most_key);
    *out_least = (uint32_t)least;
    *out_most =
        m ? (most < SL_SCHEMA_MAX_COUNT ? (uint32_t)most : SL_SCHEMA_MAX_COUNT) : SL_SCHEMA_NO_MAX;
    return SL_OK;
}

void sl_schema_put_counts(struct sl_buf *b, uint32_t least, uint32_t most) {
    sl_buf_printf(b, "{%u,", least);
    if (most != SL_SCHEMA_NO_MAX)
        sl_buf_printf(b, "%u", most);
    sl_buf_puts(b, "}");
}

/* ---- items ---- */

enum sl_status sl_schema_item(struct sl_schema *c, const json_t *s, char out[24]) {
    uint32_t rule;
    if (!s || json_is_true(s)) {
        strcpy(out, "val");
        return SL_OK;
    }
    enum sl_status status = sl_schema_rule(c, s, &rule);
    if (status == SL_OK)
        snprintf(out, 24, "r%u", rule);
    return status;
}

/* ---- a schema ---- */

static enum sl_status put_types(struct sl_schema *c, const json_t *s, unsigned types,
                                struct sl_buf *b) {
    enum sl_status status = SL_OK;
    bool any = false, left_out = false;
    for (unsigned t = 1; t <= SL_TYPE_OBJECT && status == SL_OK; t <<= 1) {
        if (!(types & t) || (t == SL_TYPE_INTEGER && (types & SL_TYPE_FRACTION)))
            continue;
        size_t before = b->len;
        sl_buf_puts(b, any ? " | " : "");
        switch (t) {
        case SL_TYPE_NULL:
            sl_buf_puts(b, "\"null\"");
            break;
        case SL_TYPE_BOOLEAN:
            sl_buf_puts(b, "\"true\" | \"false\"");
            break;
        case SL_TYPE_INTEGER:
            status = sl_schema_integer(c, s, b);
            break;
        case SL_TYPE_FRACTION:
            status = sl_schema_number(c, s, b);
            break;
        case SL_TYPE_STRING:
            status = sl_schema_put_string(c, s, b);
            break;
        case SL_TYPE_ARRAY:
            status = sl_schema_put_array(c, s, b);
            break;
        default:
            status = sl_schema_put_object(c, s, b);
        }
        if (status == SL_ERR_INVALID && c->nothing && before <= b->len) {
            b->len = before; /* of this type there is nothing */
            left_out = true;
            status = SL_OK;
        } else {
            any = true;
        }
    }
    if (status == SL_OK && !any && left_out)
        return SL_ERR_INVALID; /* the text is there */
    c->nothing = c->nothing && status != SL_OK;
    return status;
}

static enum sl_status put_choices(struct sl_schema *c, const json_t *s, const char *key,
                                  struct sl_buf *b);

/* oneOf whose alternatives overlap: each with the opposites of the others. */
static enum sl_status put_exactly_one(struct sl_schema *c, json_t *base, const json_t *choices,
                                      struct sl_buf *b) {
    size_t n = json_array_size(choices);
    json_t *nots = json_array(), *any = json_array();
    enum sl_status status = nots && any ? SL_OK : sl_schema_no_memory(c);
    for (size_t i = 0; status == SL_OK && i < n; i++) {
        json_t *wrong = NULL;
        status = sl_schema_not(c, json_array_get(choices, i), &wrong);
        if (status == SL_ERR_INVALID)
            status = sl_fail(c->err, status,
                             "oneOf: alternatives that may hold at once, of which %zu has no "
                             "opposite that can be written; use anyOf, or tell them apart by a "
                             "required property with const",
                             i);
        if (status == SL_OK && json_array_append_new(nots, wrong) != 0)
            status = sl_schema_no_memory(c);
    }
    for (size_t i = 0; status == SL_OK && i < n; i++) {
        json_t *all = json_array();
        bool ok = all != NULL;
        for (size_t k = 0; ok && k < n; k++)
            ok = json_array_append(all, json_array_get(k == i ? choices : nots, k)) == 0;
        if (!ok || json_array_append_new(any, json_pack("{s:o}", "allOf", all)) != 0)
            status = sl_schema_no_memory(c);
    }
    if (status == SL_OK && json_object_get(base, "anyOf"))
        status = sl_fail(c->err, SL_ERR_INVALID,
                         "oneOf: alternatives that may hold at once are not "
                         "supported beside anyOf");
    if (status == SL_OK && (json_object_set(base, "anyOf", any) != 0 ||
                            json_object_set_new(base, SL_SCHEMA_OPPOSITE, json_true()) != 0))
        status = sl_schema_no_memory(c);
    json_decref(nots);
    json_decref(any);
    if (status == SL_OK)
        status = put_choices(c, base, "anyOf", b);
    if (sl_schema_took_nothing(c, status))
        return SL_SCHEMA_NOTHING(c, "oneOf: its alternatives overlap, and no values are found that "
                                    "only one of them takes");
    return status;
}

/* anyOf or oneOf: what stands beside them holds for each alternative. */
static enum sl_status put_choices(struct sl_schema *c, const json_t *s, const char *key,
                                  struct sl_buf *b) {
    const json_t *choices = json_object_get(s, key);
    size_t n = json_array_size(choices);
    bool one = strcmp(key, "oneOf") == 0;
    if (!json_is_array(choices) || n == 0)
        return sl_fail(c->err, SL_ERR_INVALID, "%s must be an array of schemas", key);
    size_t start = b->len;
    if (n > 256)
        return sl_fail(c->err, SL_ERR_INVALID, "%s: at most 256 alternatives are supported", key);
    json_t *base = NULL, **flat = calloc(n, sizeof *flat);
    enum sl_status status = flat ? sl_schema_copy(c, s, &base) : sl_schema_no_memory(c);
    bool any = false, overlap = false;
    if (base)
        json_object_del(base, key);
    for (size_t i = 0; status == SL_OK && i < n; i++) {
        json_t *alone = NULL;
        unsigned types = 0;
        uint32_t rule;
        status = sl_schema_flatten(c, json_array_get(choices, i), 0, &alone);
        if (status == SL_OK)
            status = sl_schema_check_closed(c, alone);
        if (status == SL_OK)
            status = sl_schema_merge(c, base, alone, 0, &flat[i]);
        json_decref(alone);
        if (status == SL_OK && json_is_object(flat[i]))
            status = sl_schema_types(c, flat[i], &types);
        if (status != SL_OK || json_is_false(flat[i]) || (json_is_object(flat[i]) && !types)) {
            json_decref(flat[i]); /* nothing is allowed by this one */
            flat[i] = NULL;
            continue;
        }
        for (size_t k = 0; one && status == SL_OK && k < i && !overlap; k++) {
            bool disjoint = true;
            if (!flat[k])
                continue;
            status = sl_schema_disjoint(c, flat[k], flat[i], 0, &disjoint);
            overlap = status == SL_OK && !disjoint;
            if (overlap && n > MAX_OVERLAPPING)
                status = sl_fail(c->err, SL_ERR_INVALID,
                                 "oneOf: alternatives %zu and %zu may hold at once, which is "
                                 "supported for up to %u; use anyOf, or tell them apart by a "
                                 "required property with const",
                                 k, i, MAX_OVERLAPPING);
        }
        if (overlap)
            break;
        if (status == SL_OK)
            status = sl_schema_rule(c, flat[i], &rule);
        if (status == SL_OK) {
            sl_buf_printf(b, "%sr%u", any ? " | " : "", rule);
            any = true;
        } else if (sl_schema_took_nothing(c, status)) {
            status = SL_OK;
        }
        if (!one) { /* oneOf compares with those before */
            json_decref(flat[i]);
            flat[i] = NULL;
        }
    }
    for (size_t i = 0; flat && i < n; i++)
        json_decref(flat[i]);
    free(flat);
    if (status == SL_OK && overlap) {
        b->len = start;
        status = put_exactly_one(c, base, choices, b);
        json_decref(base);
        return status;
    }
    json_decref(base);
    if (status == SL_OK && !any)
        status = SL_SCHEMA_NOTHING(c, "%s: nothing is allowed by any alternative", key);
    return status;
}

static enum sl_status put_schema(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    if (json_is_true(s)) {
        sl_buf_puts(b, "val");
        return SL_OK;
    }
    if (json_is_false(s))
        return SL_SCHEMA_NOTHING(c, "a schema that is false allows nothing");
    enum sl_status status = sl_schema_check_keywords(c, s);
    unsigned types;
    if (status != SL_OK)
        return status;
    if (json_object_get(s, "anyOf"))
        return put_choices(c, s, "anyOf", b);
    if (json_object_get(s, "oneOf"))
        return put_choices(c, s, "oneOf", b);
    SL_TRY(sl_schema_types(c, s, &types));
    json_t *own;
    const json_t *values = sl_schema_values(s, &own);
    if (values)
        status = sl_schema_put_values(c, s, values, types, b);
    else if (!types)
        status = SL_SCHEMA_NOTHING(c, "type: no type is left that is allowed everywhere");
    else if (!json_object_get(s, "type") && sl_schema_implied_types(s) == SL_TYPE_ALL)
        sl_buf_puts(b, "val");
    else
        status = put_types(
            c, s, json_object_get(s, "type") || c->open ? types : sl_schema_implied_types(s), b);
    json_decref(own);
    return status;
}

struct text_sink {
    struct sl_schema *c;
    struct sl_buf text;
};

static int put_text(const char *bytes, size_t len, void *ctx) {
    struct text_sink *t = ctx;
    t->c->work += len;
    sl_buf_put(&t->text, bytes, len);
    return t->c->work > SL_SCHEMA_MAX_WORK || t->text.failed ? -1 : 0;
}

static enum sl_status too_large(struct sl_schema *c) {
    return sl_fail(c->err, SL_ERR_INVALID, "the schema is too large or too complex");
}

/* Equal schemas share a rule, which is also what ends recursion. */
enum sl_status sl_schema_rule(struct sl_schema *c, const json_t *s, uint32_t *out_rule) {
    /* Merged schemas share parts, so the text may be far longer than what was read: stopped as it
     * is written. */
    struct text_sink t = {.c = c};
    if (json_dump_callback(s, put_text, &t, JSON_COMPACT | JSON_ENCODE_ANY) != 0 || t.text.failed ||
        !t.text.len) {
        sl_buf_release(&t.text);
        return c->work > SL_SCHEMA_MAX_WORK ? too_large(c) : sl_schema_no_memory(c);
    }
    sl_buf_put(&t.text, "", 1);
    const char *text = t.text.failed ? "" : t.text.ptr;
    const json_t *known = json_object_get(c->known, text);
    enum sl_status status = t.text.failed ? sl_schema_no_memory(c) : SL_OK;
    json_t *flat = NULL;
    struct sl_buf b = {0};
    if (known) {
        *out_rule = (uint32_t)json_integer_value(known);
        sl_buf_release(&t.text);
        return SL_OK;
    }
    uint32_t rule = c->n_rules++;
    if (status == SL_OK && json_object_set_new(c->known, text, json_integer(rule)) != 0)
        status = sl_schema_no_memory(c);
    sl_buf_release(&t.text);
    if (status == SL_OK && ++c->depth > SL_SCHEMA_MAX_DEPTH)
        status = sl_fail(c->err, SL_ERR_INVALID, "the schema is nested more than %u deep",
                         SL_SCHEMA_MAX_DEPTH);
    if (status == SL_OK && (c->work > SL_SCHEMA_MAX_WORK || c->n_rules > SL_SCHEMA_MAX_RULES ||
                            c->out->len > SL_SCHEMA_MAX_TEXT))
        status = too_large(c);
    if (status == SL_OK)
        status = sl_schema_flatten(c, s, 0, &flat);
    if (status == SL_OK)
        status = put_schema(c, flat, &b);
    if (status == SL_OK && c->out->len + b.len > SL_SCHEMA_MAX_TEXT)
        status = too_large(c);
    c->depth--;
    if (status == SL_OK) {
        sl_buf_printf(c->out, "r%u ::= ", rule);
        sl_buf_put(c->out, b.ptr ? b.ptr : "", b.len);
        sl_buf_puts(c->out, "\n");
        if (b.failed)
            status = sl_schema_no_memory(c);
    } else if (status == SL_ERR_INVALID && c->nothing) {
        sl_buf_printf(c->out, "r%u ::= \"x\" r%u\n", rule, rule); /* never ends: is dropped */
    }
    *out_rule = rule;
    sl_buf_release(&b);
    json_decref(flat);
    return status;
}

void sl_json_schema_literal(struct sl_buf *out_text, const char *bytes, size_t len) {
    sl_schema_literal(out_text, bytes, len);
}

void sl_json_schema_rules_begin(struct sl_schema_rules *r, struct sl_buf *out_text) {
    *r = (struct sl_schema_rules){.out = out_text};
    sl_buf_puts(out_text, common_rules);
}

enum sl_status sl_json_schema_rules_add(struct sl_schema_rules *r, const json_t *root,
                                        const json_t *schema, uint32_t *out_rule,
                                        struct sl_err *err) {
    struct sl_err unused;
    struct sl_schema c = {.root = root,
                          .out = r->out,
                          .known = json_object(),
                          .n_rules = r->n_rules,
                          .work = r->work,
                          .steps = r->steps,
                          .strict = r->strict,
                          .open = r->open,
                          .err = err ? err : &unused};
    size_t len = r->out->len;
    if (!c.known)
        return sl_schema_no_memory(&c);
    enum sl_status status = sl_schema_rule(&c, schema, out_rule);
    json_decref(c.known);
    if (status == SL_OK && r->out->failed)
        status = sl_schema_no_memory(&c);
    if (status != SL_OK && len <= r->out->len)
        r->out->len = len;
    r->n_rules = c.n_rules;
    r->work = c.work;
    r->steps = c.steps;
    return status;
}

enum sl_status sl_json_schema_rules_add_pattern(struct sl_schema_rules *r, const char *pattern,
                                                size_t len, uint32_t *out_rule,
                                                struct sl_err *err) {
    struct sl_err unused;
    struct sl_schema c = {
        .out = r->out, .n_rules = r->n_rules, .raw = true, .err = err ? err : &unused};
    struct sl_buf whole = {0}, b = {0};
    struct sl_rx x;
    size_t before = r->out->len;
    sl_rx_init(&x, c.err);
    sl_buf_puts(&whole, "^(?:");
    sl_buf_put(&whole, pattern, len);
    sl_buf_puts(&whole, ")$");
    sl_buf_put(&whole, "", 1);
    enum sl_status status = whole.failed ? sl_schema_no_memory(&c) : x.status;
    uint32_t set = SL_RX_NONE;
    if (status == SL_OK && memchr(pattern, 0, len))
        status = sl_fail(c.err, SL_ERR_INVALID, "pattern: it has a zero byte");
    if (status == SL_OK)
        set = sl_rx_pattern(&x, whole.ptr, whole.len - 1);
    if (status == SL_OK)
        status = sl_rx_put(&c, &x, set, &b);
    *out_rule = c.n_rules++;
    sl_buf_printf(r->out, "r%u ::=", *out_rule);
    sl_buf_put(r->out, b.ptr ? b.ptr : "", b.len);
    sl_buf_puts(r->out, "\n");
    if (status == SL_OK && (b.failed || r->out->failed))
        status = sl_schema_no_memory(&c);
    if (status != SL_OK && before <= r->out->len)
        r->out->len = before;
    r->n_rules = c.n_rules;
    sl_buf_release(&b);
    sl_buf_release(&whole);
    sl_rx_release(&x);
    return status;
}

enum sl_status sl_json_schema_grammar(const json_t *schema, struct sl_buf *out_text,
                                      struct sl_err *err) {
    struct sl_schema_rules r;
    uint32_t root = 0;
    sl_json_schema_rules_begin(&r, out_text);
    SL_TRY(sl_json_schema_rules_add(&r, schema, schema, &root, err));
    sl_buf_printf(out_text, "root ::= r%u\n", root);
    return out_text->failed ? sl_fail(err, SL_ERR_NOMEM, "out of memory") : SL_OK;
}
