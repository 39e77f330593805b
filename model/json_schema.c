#include "model/json_schema_internal.h"

#include "common/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static enum sl_status rule_of(struct sl_schema *c, const json_t *s, uint32_t *out_rule);

static enum sl_status no_memory(struct sl_schema *c) {
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

/* ---- keywords ---- */

static enum sl_status check_keywords(struct sl_schema *c, const json_t *s) {
    static const char *const no[] = {"not",
                                     "if",
                                     "then",
                                     "else",
                                     "dependentRequired",
                                     "dependentSchemas",
                                     "dependencies",
                                     "patternProperties",
                                     "propertyNames",
                                     "contains",
                                     "minContains",
                                     "maxContains",
                                     "unevaluatedItems",
                                     "unevaluatedProperties",
                                     "$dynamicRef",
                                     "$recursiveRef"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        const json_t *v = json_object_get(s, no[i]);
        /* unevaluatedProperties: false is what generating does anyway. */
        if (v && !(json_is_false(v) && strncmp(no[i], "unevaluated", 11) == 0))
            return sl_fail(c->err, SL_ERR_INVALID, "%s: this keyword is not supported", no[i]);
    }
    static const char *const counts[] = {"minLength", "maxLength",     "minItems",
                                         "maxItems",  "minProperties", "maxProperties"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const json_t *v = json_object_get(s, counts[i]);
        if (v && !(json_is_number(v) && json_number_value(v) >= 0 &&
                   json_number_value(v) == floor(json_number_value(v))))
            return sl_fail(c->err, SL_ERR_INVALID, "%s must be a whole number from 0 up",
                           counts[i]);
    }
    return sl_schema_check_bounds(c, s);
}

/* What two such keywords ask for. A most that is out of reach is one that is not there. */
static enum sl_status read_counts(struct sl_schema *c, const json_t *s, const char *least_key,
                                  const char *most_key, uint32_t *out_least, uint32_t *out_most) {
    const json_t *l = json_object_get(s, least_key), *m = json_object_get(s, most_key);
    double least = l ? json_number_value(l) : 0, most = m ? json_number_value(m) : INFINITY;
    if (least > SL_SCHEMA_MAX_COUNT)
        return sl_fail(c->err, SL_ERR_INVALID, "%s: at most %u is supported", least_key,
                       SL_SCHEMA_MAX_COUNT);
    if (most < least)
        return sl_fail(c->err, SL_ERR_INVALID, "%s is more than %s", least_key, most_key);
    *out_least = (uint32_t)least;
    *out_most =
        m ? (most < SL_SCHEMA_MAX_COUNT ? (uint32_t)most : SL_SCHEMA_MAX_COUNT) : SL_SCHEMA_NO_MAX;
    return SL_OK;
}

static void put_counts(struct sl_buf *b, uint32_t least, uint32_t most) {
    sl_buf_printf(b, "{%u,", least);
    if (most != SL_SCHEMA_NO_MAX)
        sl_buf_printf(b, "%u", most);
    sl_buf_puts(b, "}");
}

/* ---- values ---- */

/* The shortest digits that give a number back. */
static void put_real(struct sl_buf *b, double v) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    sl_buf_puts(b, text);
}

static void put_value(struct sl_buf *b, const json_t *v, uint32_t depth) {
    const char *key;
    json_t *x;
    size_t i;
    bool first = true;
    if (depth > SL_SCHEMA_MAX_DEPTH)
        b->failed = true;
    switch (b->failed ? JSON_NULL : json_typeof(v)) {
    case JSON_OBJECT:
        sl_buf_puts(b, "{");
        json_object_foreach((json_t *)v, key, x) {
            sl_buf_puts(b, first ? "" : ",");
            sl_buf_json_text(b, key);
            sl_buf_puts(b, ":");
            put_value(b, x, depth + 1);
            first = false;
        }
        sl_buf_puts(b, "}");
        break;
    case JSON_ARRAY:
        sl_buf_puts(b, "[");
        json_array_foreach((json_t *)v, i, x) {
            sl_buf_puts(b, i ? "," : "");
            put_value(b, x, depth + 1);
        }
        sl_buf_puts(b, "]");
        break;
    case JSON_STRING:
        sl_buf_json(b, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        sl_buf_printf(b, "%lld", (long long)json_integer_value(v));
        break;
    case JSON_REAL:
        put_real(b, json_real_value(v));
        break;
    default:
        sl_buf_puts(b, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    }
}

static size_t count_chars(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Does a value keep to what stands beside enum or const? */
static bool admits(const json_t *s, unsigned types, const json_t *v) {
    const json_t *b;
    if (!(sl_schema_type_of(v) & types))
        return false;
    if (json_is_number(v)) {
        static const struct {
            const char *key, *open_key;
            int sign;
        } bounds[] = {{"minimum", "exclusiveMinimum", 1}, {"maximum", "exclusiveMaximum", -1}};
        for (size_t i = 0; i < 2; i++) {
            const json_t *open = json_object_get(s, bounds[i].open_key);
            long double x = sl_schema_value(v) * bounds[i].sign;
            if ((b = json_object_get(s, bounds[i].key))) {
                long double at = sl_schema_value(b) * bounds[i].sign;
                if (x < at || (x == at && json_is_true(open))) /* true: draft 4 */
                    return false;
            }
            if (json_is_number(open) && x <= sl_schema_value(open) * bounds[i].sign)
                return false;
        }
        return true;
    }
    if (json_is_string(v)) {
        double n = (double)count_chars(json_string_value(v));
        return !(((b = json_object_get(s, "minLength")) && n < json_number_value(b)) ||
                 ((b = json_object_get(s, "maxLength")) && n > json_number_value(b)));
    }
    return true;
}

/* Keywords that a listed value would have to be tried against. */
static enum sl_status check_beside_values(struct sl_schema *c, const json_t *s, unsigned types) {
    static const struct {
        const char *key;
        unsigned types;
    } keys[] = {{"pattern", SL_TYPE_STRING},
                {"format", SL_TYPE_STRING},
                {"multipleOf", SL_TYPE_INTEGER | SL_TYPE_FRACTION},
                {"properties", SL_TYPE_OBJECT},
                {"required", SL_TYPE_OBJECT},
                {"additionalProperties", SL_TYPE_OBJECT},
                {"minProperties", SL_TYPE_OBJECT},
                {"maxProperties", SL_TYPE_OBJECT},
                {"items", SL_TYPE_ARRAY},
                {"prefixItems", SL_TYPE_ARRAY},
                {"minItems", SL_TYPE_ARRAY},
                {"maxItems", SL_TYPE_ARRAY},
                {"uniqueItems", SL_TYPE_ARRAY}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(s, keys[i].key) && (types & keys[i].types))
            return sl_fail(c->err, SL_ERR_INVALID,
                           "%s: not supported beside enum or const of such values", keys[i].key);
    return SL_OK;
}

static enum sl_status put_values(struct sl_schema *c, const json_t *s, const json_t *values,
                                 unsigned types, struct sl_buf *b) {
    if (!json_is_array(values))
        return sl_fail(c->err, SL_ERR_INVALID, "enum must be an array");
    if (json_array_size(values) > SL_SCHEMA_MAX_ENUM)
        return sl_fail(c->err, SL_ERR_INVALID, "enum: at most %u values are supported",
                       SL_SCHEMA_MAX_ENUM);
    enum sl_status st = check_beside_values(c, s, types);
    bool any = false;
    for (size_t i = 0; st == SL_OK && i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        if (!admits(s, types, v))
            continue;
        struct sl_buf text = {0};
        put_value(&text, v, 0);
        if (text.failed)
            st = sl_fail(c->err, SL_ERR_INVALID, "enum: a value is nested too deep");
        sl_buf_puts(b, any ? " | " : "");
        if (st == SL_OK)
            sl_schema_literal(b, text.ptr, text.len);
        sl_buf_release(&text);
        any = true;
    }
    if (st == SL_OK && !any)
        return sl_fail(c->err, SL_ERR_INVALID,
                       "enum: no value is allowed by what stands beside it");
    return st;
}

/* ---- strings ---- */

static const char *format_pattern(const char *format) {
#define DATE                                                                                       \
    "\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"   \
    "02-(?:0[1-9]|1\\d|2[0-8]))"
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define NAME        "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
#define BYTE_NUMBER "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
    static const struct {
        const char *format, *pattern;
    } known[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "T" TIME "$"},
        {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"},
        {"ipv4", "^" BYTE_NUMBER "(?:\\." BYTE_NUMBER "){3}$"},
        {"ipv6", "^[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}$"},
        {"email", "^[a-z0-9]+(?:[._+-][a-z0-9]+){0,4}@" NAME "(?:\\." NAME "){1,4}$"},
        {"hostname", "^" NAME "(?:\\." NAME "){0,6}$"},
        {"uri", "^https?://" NAME "(?:\\." NAME "){1,6}(?:/[A-Za-z0-9._~-]*){0,16}"
                "(?:\\?[A-Za-z0-9._~&=-]*)?(?:#[A-Za-z0-9._~-]*)?$"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(format, known[i].format) == 0)
            return known[i].pattern;
    return NULL;
}

static enum sl_status put_string(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    uint32_t least, most;
    const json_t *pattern = json_object_get(s, "pattern"), *format = json_object_get(s, "format");
    enum sl_status st = read_counts(c, s, "minLength", "maxLength", &least, &most);
    if (st != SL_OK)
        return st;
    if ((pattern && !json_is_string(pattern)) || (format && !json_is_string(format)))
        return sl_fail(c->err, SL_ERR_INVALID, "%s must be a string",
                       pattern && !json_is_string(pattern) ? "pattern" : "format");
    if (pattern && format)
        return sl_fail(c->err, SL_ERR_INVALID, "format: not supported beside pattern");
    const char *regex = pattern  ? json_string_value(pattern)
                        : format ? format_pattern(json_string_value(format))
                                 : NULL;
    if (format && !regex)
        return sl_fail(c->err, SL_ERR_INVALID, "format: '%.60s' is not supported",
                       json_string_value(format));
    sl_buf_puts(b, "\"\\\"\" ");
    if (regex) {
        uint32_t regex_least, regex_most;
        st = sl_schema_pattern(regex, strlen(regex), b, &regex_least, &regex_most, c->err);
        if (st != SL_OK)
            return st;
        if (regex_least < least || regex_most > most)
            return sl_fail(
                c->err, SL_ERR_INVALID, "%s: beside %s it is supported only where that implies it",
                regex_least < least ? "minLength" : "maxLength", pattern ? "pattern" : "format");
    } else {
        sl_buf_puts(b, SL_SCHEMA_ANY_CHAR);
        put_counts(b, least, most);
    }
    sl_buf_puts(b, " \"\\\"\"");
    return SL_OK;
}

/* ---- arrays ---- */

static enum sl_status item_rule(struct sl_schema *c, const json_t *s, char out[24]) {
    uint32_t rule;
    if (!s || json_is_true(s)) {
        strcpy(out, "val");
        return SL_OK;
    }
    enum sl_status st = rule_of(c, s, &rule);
    if (st == SL_OK)
        snprintf(out, 24, "r%u", rule);
    return st;
}

static enum sl_status put_array(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    const json_t *prefix = json_object_get(s, "prefixItems"), *rest = json_object_get(s, "items");
    if (json_is_array(rest)) { /* drafts 4 to 2019-09 */
        prefix = rest;
        rest = json_object_get(s, "additionalItems");
    }
    if (prefix && !json_is_array(prefix))
        return sl_fail(c->err, SL_ERR_INVALID, "prefixItems must be an array");
    uint32_t least, most, n_prefix = (uint32_t)json_array_size(prefix);
    enum sl_status st = read_counts(c, s, "minItems", "maxItems", &least, &most);
    if (st != SL_OK)
        return st;
    if (json_is_true(json_object_get(s, "uniqueItems")) && most > 1)
        return sl_fail(c->err, SL_ERR_INVALID, "uniqueItems: this keyword is not supported");
    if (n_prefix > SL_SCHEMA_MAX_DEPTH)
        return sl_fail(c->err, SL_ERR_INVALID, "prefixItems: at most %u are supported",
                       SL_SCHEMA_MAX_DEPTH);
    if (n_prefix > most)
        n_prefix = most;
    bool closed = json_is_false(rest);
    if (closed && least > n_prefix)
        return sl_fail(c->err, SL_ERR_INVALID, "minItems is more than the items there may be");
    sl_buf_puts(b, "\"[\" ws");
    char item[24];
    uint32_t n_open = 0;
    for (uint32_t i = 0; i < n_prefix; i++) {
        st = item_rule(c, json_array_get(prefix, i), item);
        if (st != SL_OK)
            return st;
        if (i >= least) {
            sl_buf_puts(b, " (");
            n_open++;
        }
        sl_buf_printf(b, "%s %s", i ? " \",\" ws" : "", item);
    }
    if (!closed && most > n_prefix) {
        st = item_rule(c, rest, item);
        if (st != SL_OK)
            return st;
        uint32_t need = least > n_prefix ? least - n_prefix : 0;
        uint32_t can = most == SL_SCHEMA_NO_MAX ? most : most - n_prefix;
        if (n_prefix) {
            sl_buf_printf(b, " (\",\" ws %s)", item);
            put_counts(b, need, can);
        } else {
            sl_buf_printf(b, " (%s (\",\" ws %s)", item, item);
            put_counts(b, need ? need - 1 : 0, can == SL_SCHEMA_NO_MAX ? can : can - 1);
            sl_buf_puts(b, need ? ")" : ")?");
        }
    }
    while (n_open--)
        sl_buf_puts(b, ")?");
    sl_buf_puts(b, " ws \"]\"");
    return SL_OK;
}

/* ---- objects ---- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Rules for the keys that are none of names [n], sorted, which all begin with the same `at` bytes.
 * No escapes in such keys: they could spell a name. */
static enum sl_status other_keys(struct sl_schema *c, const char **names, size_t n, size_t at,
                                 uint32_t *out_rule) {
    struct sl_buf b = {0}, set = {0};
    enum sl_status st = SL_OK;
    if (at > 200 || c->n_rules >= SL_SCHEMA_MAX_RULES)
        return sl_fail(c->err, SL_ERR_INVALID,
                       "additionalProperties: the names in properties are too long or too many");
    *out_rule = c->n_rules++;
    bool ends = n && names[0][at] == '\0';
    for (size_t i = ends ? 1 : 0, end; st == SL_OK && i < n; i = end) {
        uint32_t len = sl_utf8_len((const unsigned char *)names[i] + at, strnlen(names[i] + at, 4));
        unsigned char ch = (unsigned char)names[i][at];
        for (end = i + 1; end < n && strncmp(names[i] + at, names[end] + at, len) == 0;)
            end++;
        if (ch == '"' || ch == '\\' || ch < 0x20)
            continue; /* such keys cannot be written here at all */
        uint32_t rule;
        st = other_keys(c, names + i, end - i, at + len, &rule);
        sl_buf_puts(&b, " | ");
        sl_schema_literal(&b, names[i] + at, len);
        sl_buf_printf(&b, " k%u", rule);
        sl_buf_printf(&set, "\\U%08X", sl_utf8_get((const unsigned char *)names[i] + at, len));
    }
    if (st == SL_OK) {
        sl_buf_printf(c->out, "k%u ::= [^\"\\\\\\x00-\\x1f", *out_rule);
        sl_buf_put(c->out, set.ptr ? set.ptr : "", set.len);
        sl_buf_puts(c->out, "] [^\"\\\\\\x00-\\x1f]* \"\\\"\"");
        if (!ends)
            sl_buf_puts(c->out, " | \"\\\"\"");
        sl_buf_put(c->out, b.ptr ? b.ptr : "", b.len);
        sl_buf_puts(c->out, "\n");
        if (b.failed || set.failed)
            st = no_memory(c);
    }
    sl_buf_release(&b);
    sl_buf_release(&set);
    return st;
}

/* The rule of one more member, under a name that no property has. */
static enum sl_status other_member(struct sl_schema *c, const json_t *names, const json_t *value,
                                   uint32_t *out_rule) {
    size_t n = json_object_size(names), i = 0;
    const char **sorted = malloc((n + 1) * sizeof *sorted), *key;
    char val[24];
    json_t *unused;
    uint32_t keys = 0;
    if (!sorted)
        return no_memory(c);
    json_object_foreach((json_t *)names, key, unused) sorted[i++] = key;
    if (n)
        qsort(sorted, n, sizeof *sorted, by_text);
    enum sl_status st = n ? other_keys(c, sorted, n, 0, &keys) : SL_OK;
    free(sorted);
    if (st == SL_OK)
        st = item_rule(c, value, val);
    if (st != SL_OK)
        return st;
    *out_rule = c->n_rules++;
    if (n)
        sl_buf_printf(c->out, "m%u ::= \"\\\"\" k%u \":\" sp %s\n", *out_rule, keys, val);
    else
        sl_buf_printf(c->out, "m%u ::= str \":\" sp %s\n", *out_rule, val);
    return SL_OK;
}

struct member {
    const char *name;
    bool required;
    char value[24];
};

/* properties, and names that are only in required. */
static enum sl_status read_members(struct sl_schema *c, const json_t *s, json_t **out_all) {
    const json_t *p = json_object_get(s, "properties"), *r = json_object_get(s, "required");
    const json_t *extra = json_object_get(s, "additionalProperties");
    if (p && !json_is_object(p))
        return sl_fail(c->err, SL_ERR_INVALID, "properties must be an object");
    if (r && !json_is_array(r) && !json_is_boolean(r)) /* a boolean: draft 3, of no effect */
        return sl_fail(c->err, SL_ERR_INVALID, "required must be an array of names");
    if (json_object_size(p) > SL_SCHEMA_MAX_RULES || json_array_size(r) > SL_SCHEMA_MAX_RULES)
        return sl_fail(c->err, SL_ERR_INVALID, "%s: at most %u names are supported",
                       json_object_size(p) > SL_SCHEMA_MAX_RULES ? "properties" : "required",
                       SL_SCHEMA_MAX_RULES);
    json_t *all = NULL, *name, *none = p ? NULL : json_object();
    size_t i;
    enum sl_status st = !p && !none ? no_memory(c) : sl_schema_copy(c, p ? p : none, &all);
    json_decref(none);
    if (st != SL_OK)
        return st;
    json_array_foreach((json_t *)r, i, name) {
        const char *key = json_string_value(name);
        if (!key)
            st = sl_fail(c->err, SL_ERR_INVALID, "required must be an array of names");
        else if (json_object_get(all, key))
            continue;
        else if (json_is_false(extra))
            st = sl_fail(c->err, SL_ERR_INVALID,
                         "required: '%.60s' is not in properties, and additionalProperties is "
                         "false",
                         key);
        else if (json_object_set(all, key, json_is_object(extra) ? (json_t *)extra : json_true()) !=
                 0)
            st = no_memory(c);
        if (st != SL_OK)
            break;
    }
    if (st == SL_OK)
        *out_all = all;
    else
        json_decref(all);
    return st;
}

/* The members one after the other: a: none was written yet, b: some were. */
static void put_members(struct sl_schema *c, const struct member *m, uint32_t n, uint32_t base,
                        bool more, uint32_t more_rule, uint32_t most_more) {
    struct sl_buf *o = c->out;
    for (uint32_t i = 0; i < n; i++) {
        struct sl_buf key = {0};
        sl_buf_json_text(&key, m[i].name);
        sl_buf_puts(&key, ":");
        for (int some = 0; some < 2; some++) {
            sl_buf_printf(o, "%c%u ::= %s", some ? 'b' : 'a', base + i, some ? "\",\" ws " : "");
            sl_schema_literal(o, key.ptr ? key.ptr : "", key.len);
            sl_buf_printf(o, " sp %s b%u", m[i].value, base + i + 1);
            if (!m[i].required)
                sl_buf_printf(o, " | %c%u", some ? 'b' : 'a', base + i + 1);
            sl_buf_puts(o, "\n");
        }
        o->failed = o->failed || key.failed;
        sl_buf_release(&key);
    }
    sl_buf_printf(o, "a%u ::= ", base + n);
    if (more && most_more) {
        sl_buf_printf(o, "(m%u (\",\" ws m%u)", more_rule, more_rule);
        put_counts(o, 0, most_more == SL_SCHEMA_NO_MAX ? most_more : most_more - 1);
        sl_buf_puts(o, " ws)?");
    } else {
        sl_buf_puts(o, "\"\"");
    }
    sl_buf_printf(o, "\nb%u ::= ", base + n);
    if (more && most_more) {
        sl_buf_printf(o, "(\",\" ws m%u)", more_rule);
        put_counts(o, 0, most_more);
    }
    sl_buf_puts(o, " ws\n");
}

static enum sl_status put_object(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    const json_t *extra = json_object_get(s, "additionalProperties");
    if (extra && !json_is_boolean(extra) && !json_is_object(extra))
        return sl_fail(c->err, SL_ERR_INVALID, "additionalProperties must be a schema");
    uint32_t least, most, more_rule = 0, n_required = 0;
    json_t *all = NULL, *required = NULL, *value;
    enum sl_status st = read_counts(c, s, "minProperties", "maxProperties", &least, &most);
    if (st == SL_OK)
        st = read_members(c, s, &all);
    if (st == SL_OK)
        st = sl_schema_required(c, s, &required);
    if (st != SL_OK) {
        json_decref(all);
        return st;
    }
    uint32_t n = (uint32_t)json_object_size(all), i = 0;
    bool more = extra ? !json_is_false(extra) : n == 0;
    if (n == 0 && more && (!extra || json_is_true(extra)) && least == 0 &&
        most == SL_SCHEMA_NO_MAX) {
        sl_buf_puts(b, "obj");
        json_decref(required);
        json_decref(all);
        return SL_OK;
    }
    struct member *m = calloc((size_t)n + 1, sizeof *m);
    const char *key;
    if (!m)
        st = no_memory(c);
    if (m)
        json_object_foreach(all, key, value) {
            if (st != SL_OK)
                break;
            m[i].name = key;
            m[i].required = json_object_get(required, key) != NULL;
            n_required += m[i].required;
            if (json_is_false(value) && !m[i].required)
                continue; /* must not be there */
            st = item_rule(c, value, m[i].value);
            i++;
        }
    n = i;
    /* Members that decide it, or a map of at least one. */
    bool map = n == 0 && more;
    if (st == SL_OK && least > n_required && !(map && least <= 1))
        st = sl_fail(c->err, SL_ERR_INVALID,
                     "minProperties: supported only where required has as many");
    uint32_t most_more = most;
    if (st == SL_OK && !map && most != SL_SCHEMA_NO_MAX) {
        if (most < n || n_required > most)
            st = sl_fail(c->err, SL_ERR_INVALID,
                         "maxProperties: supported only where properties has no more");
        else
            most_more = most - n;
    }
    if (st == SL_OK && more)
        st = other_member(c, all, !extra || json_is_true(extra) ? NULL : extra, &more_rule);
    if (st == SL_OK && c->n_rules + n + 1 > SL_SCHEMA_MAX_RULES)
        st = sl_fail(c->err, SL_ERR_INVALID, "properties: the schema has too many");
    if (st == SL_OK) {
        uint32_t base = c->n_rules;
        c->n_rules += n + 1;
        put_members(c, m, n, base, more, more_rule, most_more);
        if (map && least == 1 && most > 0) {
            sl_buf_printf(b, "\"{\" ws m%u (\",\" ws m%u)", more_rule, more_rule);
            put_counts(b, 0, most == SL_SCHEMA_NO_MAX ? most : most - 1);
            sl_buf_puts(b, " ws \"}\"");
        } else {
            sl_buf_printf(b, "\"{\" ws a%u \"}\"", base);
        }
    }
    free(m);
    json_decref(required);
    json_decref(all);
    return st;
}

/* ---- a schema ---- */

static unsigned implied_types(const json_t *s) {
    static const struct {
        const char *key;
        unsigned types;
    } keys[] = {{"properties", SL_TYPE_OBJECT},
                {"required", SL_TYPE_OBJECT},
                {"additionalProperties", SL_TYPE_OBJECT},
                {"minProperties", SL_TYPE_OBJECT},
                {"maxProperties", SL_TYPE_OBJECT},
                {"items", SL_TYPE_ARRAY},
                {"prefixItems", SL_TYPE_ARRAY},
                {"minItems", SL_TYPE_ARRAY},
                {"maxItems", SL_TYPE_ARRAY},
                {"uniqueItems", SL_TYPE_ARRAY},
                {"minLength", SL_TYPE_STRING},
                {"maxLength", SL_TYPE_STRING},
                {"pattern", SL_TYPE_STRING},
                {"format", SL_TYPE_STRING},
                {"minimum", SL_TYPE_INTEGER | SL_TYPE_FRACTION},
                {"maximum", SL_TYPE_INTEGER | SL_TYPE_FRACTION},
                {"exclusiveMinimum", SL_TYPE_INTEGER | SL_TYPE_FRACTION},
                {"exclusiveMaximum", SL_TYPE_INTEGER | SL_TYPE_FRACTION},
                {"multipleOf", SL_TYPE_INTEGER | SL_TYPE_FRACTION}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(s, keys[i].key))
            types |= keys[i].types;
    return types ? types : SL_TYPE_ALL;
}

static enum sl_status put_types(struct sl_schema *c, const json_t *s, unsigned types,
                                struct sl_buf *b) {
    enum sl_status st = SL_OK;
    bool any = false;
    for (unsigned t = 1; t <= SL_TYPE_OBJECT && st == SL_OK; t <<= 1) {
        if (!(types & t) || (t == SL_TYPE_INTEGER && (types & SL_TYPE_FRACTION)))
            continue;
        sl_buf_puts(b, any ? " | " : "");
        any = true;
        switch (t) {
        case SL_TYPE_NULL:
            sl_buf_puts(b, "\"null\"");
            break;
        case SL_TYPE_BOOLEAN:
            sl_buf_puts(b, "\"true\" | \"false\"");
            break;
        case SL_TYPE_INTEGER:
            st = sl_schema_integer(c, s, b);
            break;
        case SL_TYPE_FRACTION:
            st = sl_schema_number(c, s, b);
            break;
        case SL_TYPE_STRING:
            st = put_string(c, s, b);
            break;
        case SL_TYPE_ARRAY:
            st = put_array(c, s, b);
            break;
        default:
            st = put_object(c, s, b);
        }
    }
    return st;
}

/* anyOf or oneOf: what stands beside them holds for each alternative. */
static enum sl_status put_choices(struct sl_schema *c, const json_t *s, const char *key,
                                  struct sl_buf *b) {
    const json_t *choices = json_object_get(s, key);
    size_t n = json_array_size(choices);
    bool one = strcmp(key, "oneOf") == 0;
    if (!json_is_array(choices) || n == 0)
        return sl_fail(c->err, SL_ERR_INVALID, "%s must be an array of schemas", key);
    if (n > 256)
        return sl_fail(c->err, SL_ERR_INVALID, "%s: at most 256 alternatives are supported", key);
    json_t *base = NULL, **flat = calloc(n, sizeof *flat);
    enum sl_status st = flat ? sl_schema_copy(c, s, &base) : no_memory(c);
    bool any = false;
    if (base)
        json_object_del(base, key);
    for (size_t i = 0; st == SL_OK && i < n; i++) {
        json_t *alone = NULL;
        unsigned types = 0;
        uint32_t rule;
        st = sl_schema_flatten(c, json_array_get(choices, i), 0, &alone);
        if (st == SL_OK)
            st = sl_schema_merge(c, base, alone, 0, &flat[i]);
        json_decref(alone);
        if (st == SL_OK && json_is_object(flat[i]))
            st = sl_schema_types(c, flat[i], &types);
        if (st != SL_OK || json_is_false(flat[i]) || (json_is_object(flat[i]) && !types)) {
            json_decref(flat[i]); /* nothing is allowed by this one */
            flat[i] = NULL;
            continue;
        }
        for (size_t k = 0; one && st == SL_OK && k < i; k++) {
            bool disjoint = true;
            if (!flat[k])
                continue;
            st = sl_schema_disjoint(c, flat[k], flat[i], 0, &disjoint);
            if (st == SL_OK && !disjoint)
                st = sl_fail(c->err, SL_ERR_INVALID,
                             "oneOf: alternatives %zu and %zu may hold at once, which is not "
                             "supported; use anyOf, or tell them apart by a required property with "
                             "const",
                             k, i);
        }
        if (st == SL_OK)
            st = rule_of(c, flat[i], &rule);
        if (st == SL_OK)
            sl_buf_printf(b, "%sr%u", any ? " | " : "", rule);
        any = true;
        if (!one) { /* oneOf compares with those before */
            json_decref(flat[i]);
            flat[i] = NULL;
        }
    }
    for (size_t i = 0; flat && i < n; i++)
        json_decref(flat[i]);
    free(flat);
    json_decref(base);
    if (st == SL_OK && !any)
        st = sl_fail(c->err, SL_ERR_INVALID, "%s: nothing is allowed by any alternative", key);
    return st;
}

static enum sl_status put_schema(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    if (json_is_true(s)) {
        sl_buf_puts(b, "val");
        return SL_OK;
    }
    if (json_is_false(s))
        return sl_fail(c->err, SL_ERR_INVALID, "a schema that is false allows nothing");
    enum sl_status st = check_keywords(c, s);
    unsigned types;
    if (st != SL_OK)
        return st;
    if (json_object_get(s, "anyOf"))
        return put_choices(c, s, "anyOf", b);
    if (json_object_get(s, "oneOf"))
        return put_choices(c, s, "oneOf", b);
    st = sl_schema_types(c, s, &types);
    if (st != SL_OK)
        return st;
    json_t *own;
    const json_t *values = sl_schema_values(s, &own);
    if (values)
        st = put_values(c, s, values, types, b);
    else if (!types)
        st = sl_fail(c->err, SL_ERR_INVALID, "type: no type is left that is allowed everywhere");
    else if (!json_object_get(s, "type") && (types = implied_types(s)) == SL_TYPE_ALL)
        sl_buf_puts(b, "val");
    else
        st = put_types(c, s, types, b);
    json_decref(own);
    return st;
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
    return sl_fail(c->err, SL_ERR_INVALID, "the schema is too large or too intricate");
}

/* Equal schemas share a rule, which is also what ends recursion. */
static enum sl_status rule_of(struct sl_schema *c, const json_t *s, uint32_t *out_rule) {
    /* Merged schemas share parts, so the text may be far longer than what was read: stopped as it
     * is written. */
    struct text_sink t = {.c = c};
    if (json_dump_callback(s, put_text, &t, JSON_COMPACT | JSON_ENCODE_ANY) != 0 || t.text.failed ||
        !t.text.len) {
        sl_buf_release(&t.text);
        return c->work > SL_SCHEMA_MAX_WORK ? too_large(c) : no_memory(c);
    }
    sl_buf_put(&t.text, "", 1);
    const char *text = t.text.failed ? "" : t.text.ptr;
    const json_t *known = json_object_get(c->known, text);
    enum sl_status st = t.text.failed ? no_memory(c) : SL_OK;
    json_t *flat = NULL;
    struct sl_buf b = {0};
    if (known) {
        *out_rule = (uint32_t)json_integer_value(known);
        sl_buf_release(&t.text);
        return SL_OK;
    }
    uint32_t rule = c->n_rules++;
    if (st == SL_OK && json_object_set_new(c->known, text, json_integer(rule)) != 0)
        st = no_memory(c);
    sl_buf_release(&t.text);
    if (st == SL_OK && ++c->depth > SL_SCHEMA_MAX_DEPTH)
        st = sl_fail(c->err, SL_ERR_INVALID, "the schema is nested more than %u deep",
                     SL_SCHEMA_MAX_DEPTH);
    if (st == SL_OK && (c->work > SL_SCHEMA_MAX_WORK || c->n_rules > SL_SCHEMA_MAX_RULES ||
                        c->out->len > SL_SCHEMA_MAX_TEXT))
        st = too_large(c);
    if (st == SL_OK)
        st = sl_schema_flatten(c, s, 0, &flat);
    if (st == SL_OK)
        st = put_schema(c, flat, &b);
    if (st == SL_OK && c->out->len + b.len > SL_SCHEMA_MAX_TEXT)
        st = too_large(c);
    c->depth--;
    if (st == SL_OK) {
        sl_buf_printf(c->out, "r%u ::= ", rule);
        sl_buf_put(c->out, b.ptr ? b.ptr : "", b.len);
        sl_buf_puts(c->out, "\n");
        if (b.failed)
            st = no_memory(c);
        *out_rule = rule;
    }
    sl_buf_release(&b);
    json_decref(flat);
    return st;
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
                          .err = err ? err : &unused};
    size_t len = r->out->len;
    if (!c.known)
        return no_memory(&c);
    enum sl_status st = rule_of(&c, schema, out_rule);
    json_decref(c.known);
    if (st == SL_OK && r->out->failed)
        st = no_memory(&c);
    if (st != SL_OK && len <= r->out->len)
        r->out->len = len;
    r->n_rules = c.n_rules;
    r->work = c.work;
    r->steps = c.steps;
    return st;
}

enum sl_status sl_json_schema_grammar(const json_t *schema, struct sl_buf *out_text,
                                      struct sl_err *err) {
    struct sl_schema_rules r;
    uint32_t root = 0;
    sl_json_schema_rules_begin(&r, out_text);
    enum sl_status st = sl_json_schema_rules_add(&r, schema, schema, &root, err);
    if (st != SL_OK)
        return st;
    sl_buf_printf(out_text, "root ::= r%u\n", root);
    return out_text->failed ? sl_fail(err, SL_ERR_NOMEM, "out of memory") : SL_OK;
}
