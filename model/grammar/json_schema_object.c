/* Objects: properties in order, then others, whose names are none of theirs. */
#include "model/grammar/json_schema_regex.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PATTERNS  6u /* of patternProperties: each set of them is told apart */
#define MAX_ANY_ORDER 5u /* members that may come in any order: each set of them is a rule */

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

/* Which names others may have: what propertyNames says, and the patterns of patternProperties. */
struct names {
    struct sl_rx x;
    uint32_t allowed;
    uint32_t n; /* patterns */
    uint32_t set[MAX_PATTERNS];
    const json_t *value[MAX_PATTERNS];
    bool any; /* either keyword is there */
};

/* The strings that a schema of names takes. */
static enum sl_status name_set(struct sl_schema *c, const json_t *s, uint32_t depth,
                               struct sl_rx *x, uint32_t *out) {
    json_t *flat = NULL, *own = NULL;
    unsigned types = 0;
    uint32_t set = SL_RX_ANY;
    if (depth > 8)
        return sl_fail(c->err, SL_ERR_INVALID, "propertyNames: nested too deep");
    enum sl_status status = sl_schema_flatten(c, s, 0, &flat);
    if (status == SL_OK && json_is_object(flat)) {
        status = sl_schema_check_keywords(c, flat);
        if (status == SL_OK)
            status = sl_schema_types(c, flat, &types);
        if (status == SL_OK)
            status = sl_schema_strings(c, flat, x, &set);
        const json_t *values = sl_schema_values(flat, &own);
        if (status == SL_OK && values) {
            uint32_t any = SL_RX_NONE;
            status = sl_schema_spend(c, json_array_size(values));
            for (size_t i = 0; status == SL_OK && i < json_array_size(values); i++) {
                const char *text = json_string_value(json_array_get(values, i));
                if (text)
                    any = sl_rx_alt(x, any, sl_rx_text(x, text));
                status = x->status;
            }
            set = sl_rx_and(x, set, any);
        }
        static const char *const lists[] = {"anyOf", "oneOf"};
        for (size_t k = 0; status == SL_OK && k < 2; k++) {
            const json_t *list = json_object_get(flat, lists[k]);
            uint32_t any = SL_RX_NONE, one;
            if (k == 1 && json_array_size(list) > 1)
                status = sl_fail(c->err, SL_ERR_INVALID, "propertyNames: oneOf is not supported");
            for (size_t i = 0; status == SL_OK && i < json_array_size(list); i++) {
                status = name_set(c, json_array_get(list, i), depth + 1, x, &one);
                if (status == SL_OK)
                    any = sl_rx_alt(x, any, one);
            }
            if (list)
                set = sl_rx_and(x, set, any);
        }
        if (!(types & SL_TYPE_STRING))
            set = SL_RX_NONE;
    } else if (status == SL_OK && json_is_false(flat)) {
        set = SL_RX_NONE;
    }
    json_decref(own);
    json_decref(flat);
    *out = set;
    return status == SL_OK ? x->status : status;
}

static enum sl_status read_names(struct sl_schema *c, const json_t *s, struct names *out) {
    const json_t *names = json_object_get(s, "propertyNames");
    const json_t *patterns = json_object_get(s, "patternProperties");
    const char *key;
    json_t *value;
    sl_rx_init(&out->x, c->err);
    out->allowed = SL_RX_ANY;
    out->any = names || patterns;
    enum sl_status status = out->x.status;
    if (patterns && !json_is_object(patterns))
        return sl_fail(c->err, SL_ERR_INVALID, "patternProperties must be an object");
    if (json_object_size(patterns) > MAX_PATTERNS)
        return sl_fail(c->err, SL_ERR_INVALID, "patternProperties: at most %u are supported",
                       MAX_PATTERNS);
    if (status == SL_OK && names)
        status = name_set(c, names, 0, &out->x, &out->allowed);
    json_object_foreach((json_t *)patterns, key, value) {
        if (status != SL_OK)
            break;
        out->set[out->n] = sl_rx_pattern(&out->x, key, strlen(key));
        out->value[out->n++] = value;
        status = out->x.status;
    }
    return status;
}

/* What the patterns say of a property beside its own schema; new reference in *out. */
static enum sl_status with_patterns(struct sl_schema *c, struct names *n, uint32_t which,
                                    const json_t *value, json_t **out) {
    json_t *all = json_array();
    int failed = all && value ? json_array_append(all, (json_t *)value) : 0;
    for (uint32_t i = 0; all && i < n->n; i++)
        if (which >> i & 1)
            failed |= json_array_append(all, (json_t *)n->value[i]);
    *out = all && !failed ? json_pack("{s:O}", "allOf", all) : NULL;
    json_decref(all);
    return *out ? sl_schema_spend(c, 1 + n->n) : sl_schema_no_memory(c);
}

/* Members under names that are no properties, by which patterns match them: each such set of names
 * with the rule of its values. */
static enum sl_status pattern_members(struct sl_schema *c, const json_t *named, struct names *n,
                                      const json_t *extra, bool *out_any, struct sl_buf *b) {
    struct sl_rx *x = &n->x;
    uint32_t others = n->allowed, taken = SL_RX_NONE;
    const char *key;
    json_t *unused;
    enum sl_status status = x->status;
    json_object_foreach((json_t *)named, key, unused) taken =
        sl_rx_alt(x, taken, sl_rx_text(x, key));
    others = sl_rx_and(x, others, sl_rx_not(x, taken));
    *out_any = false;
    for (uint32_t which = 0; status == SL_OK && which < 1u << n->n; which++) {
        uint32_t set = others;
        json_t *all = NULL, *flat = NULL;
        char val[24];
        if (which == 0 && json_is_false(extra))
            continue;
        for (uint32_t i = 0; i < n->n; i++)
            set = sl_rx_and(x, set, which >> i & 1 ? n->set[i] : sl_rx_not(x, n->set[i]));
        bool empty = sl_rx_is_empty(x, set);
        status = x->status;
        if (status != SL_OK || empty)
            continue;
        if (which)
            status = with_patterns(c, n, which, NULL, &all);
        if (status == SL_OK && which)
            status = sl_schema_flatten(c, all, 0, &flat);
        if (status == SL_OK && !json_is_false(flat)) {
            status = sl_schema_item(c, which ? flat : extra, val);
            if (which && sl_schema_took_nothing(c, status)) {
                json_decref(flat);
                json_decref(all);
                status = SL_OK; /* no member has such a name */
                continue;
            }
            sl_buf_puts(b, *out_any ? " | \"\\\"\"" : "\"\\\"\"");
            if (status == SL_OK)
                status = sl_rx_put(c, x, set, b);
            sl_buf_printf(b, " \":\" sp %s", val);
            *out_any = true;
        }
        json_decref(flat);
        json_decref(all);
    }
    return status;
}

/* The rule of one more member, under a name that no property has. *out_any: there may be one. */
static enum sl_status other_member(struct sl_schema *c, const json_t *named, struct names *names,
                                   const json_t *value, bool *out_any, uint32_t *out_rule) {
    size_t n = json_object_size(named), i = 0;
    enum sl_status status;
    *out_any = true;
    if (names->any) {
        struct sl_buf b = {0};
        status = pattern_members(c, named, names, value, out_any, &b);
        if (status == SL_OK && *out_any) {
            *out_rule = c->n_rules++;
            sl_buf_printf(c->out, "m%u ::= ", *out_rule);
            sl_buf_put(c->out, b.ptr ? b.ptr : "", b.len);
            sl_buf_puts(c->out, "\n");
            if (b.failed)
                status = sl_schema_no_memory(c);
        }
        sl_buf_release(&b);
        return status;
    }
    const char **sorted = malloc((n + 1) * sizeof *sorted), *key;
    char val[24];
    json_t *unused;
    uint32_t keys = 0;
    if (!sorted)
        return sl_schema_no_memory(c);
    json_object_foreach((json_t *)named, key, unused) sorted[i++] = key;
    if (n)
        qsort(sorted, n, sizeof *sorted, by_text);
    status = n ? other_keys(c, sorted, n, 0, &keys) : SL_OK;
    free(sorted);
    SL_TRY(status);
    SL_TRY(sl_schema_item(c, value, val));
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

/* The patterns that match a name, as bits. */
static uint32_t matching(struct names *names, const char *key) {
    uint32_t which = 0;
    for (uint32_t i = 0; i < names->n; i++)
        which |= (uint32_t)sl_rx_has(&names->x, names->set[i], key) << i;
    return which;
}

/* Members whose name must not be there become false, others take on what the patterns say. */
static enum sl_status apply_names(struct sl_schema *c, struct names *names, json_t *all) {
    const char *key;
    json_t *value, *sum, *flat;
    if (!names->any)
        return SL_OK;
    enum sl_status status = SL_OK;
    json_object_foreach(all, key, value) {
        uint32_t which = matching(names, key);
        sum = flat = NULL;
        if (status != SL_OK)
            break;
        if (!sl_rx_has(&names->x, names->allowed, key)) {
            status =
                json_object_set_new(all, key, json_false()) == 0 ? SL_OK : sl_schema_no_memory(c);
        } else if (which) {
            status = with_patterns(c, names, which, value, &sum);
            if (status == SL_OK)
                status = sl_schema_flatten(c, sum, 0, &flat);
            if (status == SL_OK && json_object_set(all, key, flat) != 0)
                status = sl_schema_no_memory(c);
        }
        json_decref(sum);
        json_decref(flat);
        if (status == SL_OK)
            status = names->x.status;
    }
    return status;
}

/* properties, and names that are only in required. */
static enum sl_status read_members(struct sl_schema *c, const json_t *s, struct names *names,
                                   json_t **out_all) {
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
        else if (matching(names, key))
            status =
                json_object_set_new(all, key, json_true()) == 0 ? SL_OK : sl_schema_no_memory(c);
        else if (json_is_false(extra))
            status = SL_SCHEMA_NOTHING(
                c,
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
        status = apply_names(c, names, all);
    if (status == SL_OK)
        *out_all = all;
    else
        json_decref(all);
    return status;
}

static void put_key(struct sl_buf *o, const struct member *m) {
    struct sl_buf key = {0};
    sl_buf_json_text(&key, m->name);
    sl_buf_puts(&key, ":");
    sl_schema_literal(o, key.ptr ? key.ptr : "", key.len);
    sl_buf_printf(o, " sp %s", m->value);
    o->failed = o->failed || key.failed;
    sl_buf_release(&key);
}

/* The members in any order, others among them. a: none was written yet; o: what may follow when a
 * set of members was. */
static void put_any_order(struct sl_schema *c, const struct member *m, uint32_t n, uint32_t base,
                          bool more, uint32_t more_rule) {
    struct sl_buf *o = c->out;
    uint32_t required = 0;
    for (uint32_t i = 0; i < n; i++)
        required |= (uint32_t)m[i].required << i;
    for (uint32_t rule = 0; rule <= 1u << n; rule++) {
        uint32_t set = rule ? rule - 1 : 0;
        const char *before = rule ? "\",\" ws " : "";
        sl_buf_printf(o, "%c%u ::= ", rule ? 'o' : 'a', base + set);
        bool any = (set & required) == required;
        if (any)
            sl_buf_puts(o, rule ? "ws" : "\"\"");
        for (uint32_t i = 0; i < n; i++) {
            if (set >> i & 1)
                continue;
            sl_buf_printf(o, "%s%s", any ? " | " : "", before);
            put_key(o, &m[i]);
            sl_buf_printf(o, " o%u", base + (set | 1u << i));
            any = true;
        }
        if (more)
            sl_buf_printf(o, "%s%sm%u o%u", any ? " | " : "", before, more_rule, base + set);
        sl_buf_puts(o, "\n");
    }
}

/* The members one after the other: a: none was written yet, b: some were. */
static void put_members(struct sl_schema *c, const struct member *m, uint32_t n, uint32_t base,
                        bool more, uint32_t more_rule, uint32_t most_more) {
    struct sl_buf *o = c->out;
    for (uint32_t i = 0; i < n; i++) {
        for (int some = 0; some < 2; some++) {
            sl_buf_printf(o, "%c%u ::= %s", some ? 'b' : 'a', base + i, some ? "\",\" ws " : "");
            put_key(o, &m[i]);
            sl_buf_printf(o, " b%u", base + i + 1);
            if (!m[i].required)
                sl_buf_printf(o, " | %c%u", some ? 'b' : 'a', base + i + 1);
            sl_buf_puts(o, "\n");
        }
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
        json_t *flat = NULL;
        status = sl_schema_flatten(c, value, 0, &flat);
        bool none = json_is_false(flat) && !one->required;
        json_decref(flat);
        if (none)
            continue; /* must not be there */
        if (status == SL_OK)
            status = sl_schema_item(c, value, one->value);
        if (!one->required && sl_schema_took_nothing(c, status)) {
            status = SL_OK;
            continue;
        }
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

static enum sl_status put_object(struct sl_schema *c, const json_t *s, struct names *names,
                                 struct sl_buf *b) {
    const json_t *extra = json_object_get(s, "additionalProperties");
    if (extra && !json_is_boolean(extra) && !json_is_object(extra))
        return sl_fail(c->err, SL_ERR_INVALID, "additionalProperties must be a schema");
    uint32_t least, most, most_more = 0, more_rule = 0, n_required = 0;
    json_t *all = NULL, *required = NULL;
    enum sl_status status = sl_schema_counts(c, s, "minProperties", "maxProperties", &least, &most);
    if (status == SL_OK)
        status = read_members(c, s, names, &all);
    if (status == SL_OK)
        status = sl_schema_required(c, s, &required);
    if (status != SL_OK) {
        json_decref(all);
        return status;
    }
    uint32_t n = (uint32_t)json_object_size(all);
    bool none = json_is_false(extra), more = names->n > 0 || !none;
    if (!extra && !c->open && (n > 0 || names->n > 0)) {
        none = true; /* properties that are not listed are left out */
        more = names->n > 0;
    }
    if (n == 0 && !names->any && more && (!extra || json_is_true(extra)) && least == 0 &&
        most == SL_SCHEMA_NO_MAX) {
        sl_buf_puts(b, "obj");
        json_decref(required);
        json_decref(all);
        return SL_OK;
    }
    struct member *m = calloc((size_t)n + 1, sizeof *m);
    status = m ? list_members(c, all, required, m, &n, &n_required) : sl_schema_no_memory(c);
    json_t *closed = json_false();
    const json_t *value = none ? closed : !extra || json_is_true(extra) ? NULL : extra;
    if (status == SL_OK && more)
        status = other_member(c, all, names, value, &more, &more_rule);
    bool map = n == 0 && more;
    if (status == SL_OK)
        status = count_others(c, map, n, n_required, least, most, &most_more);
    if (status == SL_OK && c->n_rules + n + 1 > SL_SCHEMA_MAX_RULES)
        status = sl_fail(c->err, SL_ERR_INVALID, "properties: the schema has too many");
    if (status == SL_OK) {
        uint32_t base = c->n_rules;
        if (c->open && n && n <= MAX_ANY_ORDER && (!more || most_more == SL_SCHEMA_NO_MAX)) {
            c->n_rules += 1u << n;
            put_any_order(c, m, n, base, more, more_rule);
        } else {
            c->n_rules += n + 1;
            put_members(c, m, n, base, more, more_rule, most_more);
        }
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

enum sl_status sl_schema_put_object(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    struct names names = {.n = 0};
    enum sl_status status = read_names(c, s, &names);
    if (status == SL_OK)
        status = put_object(c, s, &names, b);
    c->steps += names.x.steps / 16;
    if (status == SL_OK)
        status = sl_schema_spend(c, 0);
    sl_rx_release(&names.x);
    return status;
}
