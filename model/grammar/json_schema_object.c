/* Objects: properties in order, then others, whose names are none of theirs. */
#include "model/grammar/json_schema_internal.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Rules for the keys that are none of names [n], sorted, which all begin with the same `at` bytes.
 * No escapes in such keys: they could spell a name. */
static enum sl_status other_keys(struct sl_schema *c, const char **names, size_t n, size_t at,
                                 uint32_t *out_rule) {
    struct sl_buf b = {0}, set = {0};
    enum sl_status status = SL_OK;
    if (at > 200 || c->n_rules >= SL_SCHEMA_MAX_RULES)
        return sl_fail(c->err, SL_ERR_INVALID,
                       "additionalProperties: the names in properties are too long or too many");
    *out_rule = c->n_rules++;
    bool ends = n && names[0][at] == '\0';
    for (size_t i = ends ? 1 : 0, end; status == SL_OK && i < n; i = end) {
        uint32_t len = sl_utf8_len((const unsigned char *)names[i] + at, strnlen(names[i] + at, 4));
        unsigned char ch = (unsigned char)names[i][at];
        for (end = i + 1; end < n && strncmp(names[i] + at, names[end] + at, len) == 0;)
            end++;
        if (ch == '"' || ch == '\\' || ch < 0x20)
            continue; /* such keys cannot be written here at all */
        uint32_t rule;
        status = other_keys(c, names + i, end - i, at + len, &rule);
        sl_buf_puts(&b, " | ");
        sl_schema_literal(&b, names[i] + at, len);
        sl_buf_printf(&b, " k%u", rule);
        sl_buf_printf(&set, "\\U%08X", sl_utf8_get((const unsigned char *)names[i] + at, len));
    }
    if (status == SL_OK) {
        sl_buf_printf(c->out, "k%u ::= [^\"\\\\\\x00-\\x1f", *out_rule);
        sl_buf_put(c->out, set.ptr ? set.ptr : "", set.len);
        sl_buf_puts(c->out, "] [^\"\\\\\\x00-\\x1f]* \"\\\"\"");
        if (!ends)
            sl_buf_puts(c->out, " | \"\\\"\"");
        sl_buf_put(c->out, b.ptr ? b.ptr : "", b.len);
        sl_buf_puts(c->out, "\n");
        if (b.failed || set.failed)
            status = sl_schema_no_memory(c);
    }
    sl_buf_release(&b);
    sl_buf_release(&set);
    return status;
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
        return sl_schema_no_memory(c);
    json_object_foreach((json_t *)names, key, unused) sorted[i++] = key;
    if (n)
        qsort(sorted, n, sizeof *sorted, by_text);
    enum sl_status status = n ? other_keys(c, sorted, n, 0, &keys) : SL_OK;
    free(sorted);
    if (status == SL_OK)
        status = sl_schema_item(c, value, val);
    if (status != SL_OK)
        return status;
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
    enum sl_status status =
        !p && !none ? sl_schema_no_memory(c) : sl_schema_copy(c, p ? p : none, &all);
    json_decref(none);
    if (status != SL_OK)
        return status;
    json_array_foreach((json_t *)r, i, name) {
        const char *key = json_string_value(name);
        if (!key)
            status = sl_fail(c->err, SL_ERR_INVALID, "required must be an array of names");
        else if (json_object_get(all, key))
            continue;
        else if (json_is_false(extra))
            status = sl_fail(c->err, SL_ERR_INVALID,
                             "required: '%.60s' is not in properties, and additionalProperties is "
                             "false",
                             key);
        else if (json_object_set(all, key, json_is_object(extra) ? (json_t *)extra : json_true()) !=
                 0)
            status = sl_schema_no_memory(c);
        if (status != SL_OK)
            break;
    }
    if (status == SL_OK)
        *out_all = all;
    else
        json_decref(all);
    return status;
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
        sl_schema_put_counts(o, 0, most_more == SL_SCHEMA_NO_MAX ? most_more : most_more - 1);
        sl_buf_puts(o, " ws)?");
    } else {
        sl_buf_puts(o, "\"\"");
    }
    sl_buf_printf(o, "\nb%u ::= ", base + n);
    if (more && most_more) {
        sl_buf_printf(o, "(\",\" ws m%u)", more_rule);
        sl_schema_put_counts(o, 0, most_more);
    }
    sl_buf_puts(o, " ws\n");
}

/* The members that may be there, each with the rule of its value. */
static enum sl_status list_members(struct sl_schema *c, json_t *all, const json_t *required,
                                   struct member *m, uint32_t *out_n, uint32_t *out_n_required) {
    enum sl_status status = SL_OK;
    const char *key;
    json_t *value;
    *out_n = *out_n_required = 0;
    json_object_foreach(all, key, value) {
        struct member *one = &m[*out_n];
        if (status != SL_OK)
            break;
        one->name = key;
        one->required = json_object_get(required, key) != NULL;
        *out_n_required += one->required;
        if (json_is_false(value) && !one->required)
            continue; /* must not be there */
        status = sl_schema_item(c, value, one->value);
        ++*out_n;
    }
    return status;
}

/* How many others there may be beside n members. Supported where the members decide it, or in a map
 * of at least one. */
static enum sl_status count_others(struct sl_schema *c, bool map, uint32_t n, uint32_t n_required,
                                   uint32_t least, uint32_t most, uint32_t *out_most_more) {
    if (least > n_required && !(map && least <= 1))
        return sl_fail(c->err, SL_ERR_INVALID,
                       "minProperties: supported only where required has as many");
    *out_most_more = most;
    if (map || most == SL_SCHEMA_NO_MAX)
        return SL_OK;
    if (most < n || n_required > most)
        return sl_fail(c->err, SL_ERR_INVALID,
                       "maxProperties: supported only where properties has no more");
    *out_most_more = most - n;
    return SL_OK;
}

enum sl_status sl_schema_put_object(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    const json_t *extra = json_object_get(s, "additionalProperties");
    if (extra && !json_is_boolean(extra) && !json_is_object(extra))
        return sl_fail(c->err, SL_ERR_INVALID, "additionalProperties must be a schema");
    uint32_t least, most, most_more = 0, more_rule = 0, n_required = 0;
    json_t *all = NULL, *required = NULL;
    enum sl_status status = sl_schema_counts(c, s, "minProperties", "maxProperties", &least, &most);
    if (status == SL_OK)
        status = read_members(c, s, &all);
    if (status == SL_OK)
        status = sl_schema_required(c, s, &required);
    if (status != SL_OK) {
        json_decref(all);
        return status;
    }
    uint32_t n = (uint32_t)json_object_size(all);
    bool more = extra ? !json_is_false(extra) : n == 0;
    if (n == 0 && more && (!extra || json_is_true(extra)) && least == 0 &&
        most == SL_SCHEMA_NO_MAX) {
        sl_buf_puts(b, "obj");
        json_decref(required);
        json_decref(all);
        return SL_OK;
    }
    struct member *m = calloc((size_t)n + 1, sizeof *m);
    status = m ? list_members(c, all, required, m, &n, &n_required) : sl_schema_no_memory(c);
    bool map = n == 0 && more;
    if (status == SL_OK)
        status = count_others(c, map, n, n_required, least, most, &most_more);
    if (status == SL_OK && more)
        status = other_member(c, all, !extra || json_is_true(extra) ? NULL : extra, &more_rule);
    if (status == SL_OK && c->n_rules + n + 1 > SL_SCHEMA_MAX_RULES)
        status = sl_fail(c->err, SL_ERR_INVALID, "properties: the schema has too many");
    if (status == SL_OK) {
        uint32_t base = c->n_rules;
        c->n_rules += n + 1;
        put_members(c, m, n, base, more, more_rule, most_more);
        if (map && least == 1 && most > 0) {
            sl_buf_printf(b, "\"{\" ws m%u (\",\" ws m%u)", more_rule, more_rule);
            sl_schema_put_counts(b, 0, most == SL_SCHEMA_NO_MAX ? most : most - 1);
            sl_buf_puts(b, " ws \"}\"");
        } else {
            sl_buf_printf(b, "\"{\" ws a%u \"}\"", base);
        }
    }
    free(m);
    json_decref(required);
    json_decref(all);
    return status;
}
