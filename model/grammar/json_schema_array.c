/* Arrays: items, how many, and whether each is another. */
#include "model/grammar/json_schema_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETS     8u /* values of which every selection is a state */
#define MAX_CONTAINS 32u
#define MAX_ORDER    4096u /* states where the values come in the order of the schema */

/* The few values that an item may have, as JSON texts; NULL: they are not few. */
static enum sl_status few_values(struct sl_schema *c, const json_t *item, json_t **out) {
    const double whole = 9007199254740992.0; /* 2^53 */
    json_t *flat = NULL, *own = NULL, *texts = NULL;
    unsigned types = 0;
    enum sl_status status = SL_OK;
    *out = NULL;
    if (json_is_object(item))
        status = sl_schema_flatten(c, item, 0, &flat);
    if (status == SL_OK && json_is_object(flat))
        status = sl_schema_types(c, flat, &types);
    const json_t *values = json_is_object(flat) ? sl_schema_values(flat, &own) : NULL;
    bool simple = !(types & ~(unsigned)(SL_TYPE_NULL | SL_TYPE_BOOLEAN)) && types;
    if (status != SL_OK || (!simple && !json_is_array(values)) ||
        json_object_size(flat) != (json_object_get(flat, "type") ? 1u : 0u) + (values ? 1u : 0u))
        goto done;
    texts = json_object();
    if (!values) {
        if (texts && (types & SL_TYPE_NULL))
            json_object_set_new(texts, "null", json_true());
        for (int i = 0; texts && (types & SL_TYPE_BOOLEAN) && i < 2; i++)
            json_object_set_new(texts, i ? "true" : "false", json_true());
    }
    for (size_t i = 0; texts && i < json_array_size(values) && i <= SL_SCHEMA_MAX_ENUM; i++) {
        const json_t *v = json_array_get(values, i);
        json_t *number = NULL;
        if (!(sl_schema_type_of(v) & types))
            continue;
        /* 1 and 1.0 are one value. */
        if (json_is_real(v) && fabs(json_real_value(v)) < whole &&
            json_real_value(v) == floor(json_real_value(v)))
            number = json_integer((json_int_t)json_real_value(v));
        char *text = json_is_array(v) || json_is_object(v)
                         ? NULL
                         : json_dumps(number ? number : v, JSON_COMPACT | JSON_ENCODE_ANY);
        json_decref(number);
        if (!text || json_object_set_new(texts, text, json_true()) != 0) {
            free(text);
            json_decref(texts); /* of values with parts it is not known which are equal */
            texts = NULL;
            goto done;
        }
        free(text);
        status = sl_schema_spend(c, 1);
    }
    if (!texts)
        status = sl_schema_no_memory(c);
done:
    json_decref(own);
    json_decref(flat);
    if (status == SL_OK)
        *out = texts;
    else
        json_decref(texts);
    return status;
}

/* Rules u<base + state>: what may follow, after the items that a state stands for. Of few values a
 * state is the set of those used; of more, how many there were and the place of the last. */
static void put_states(struct sl_schema *c, const char **text, uint32_t n, bool sets,
                       uint32_t least, uint32_t most, uint32_t base) {
    struct sl_buf *o = c->out;
    uint32_t n_states = sets ? 1u << n : 1 + n * most;
    for (uint32_t s = 0; s < n_states; s++) {
        uint32_t used = sets ? (uint32_t)__builtin_popcount(s) : s == 0 ? 0 : 1 + (s - 1) / n;
        uint32_t from = sets || s == 0 ? 0 : 1 + (s - 1) % n;
        bool any = false;
        if (used > most)
            continue;
        sl_buf_printf(o, "u%u ::=", base + s);
        if (used >= least) {
            sl_buf_puts(o, " ws \"]\"");
            any = true;
        }
        for (uint32_t i = from; used < most && i < n; i++) {
            if (sets && (s >> i & 1))
                continue;
            sl_buf_puts(o, any ? " | " : " ");
            sl_buf_puts(o, used ? "\",\" ws " : "");
            sl_schema_literal(o, text[i], strlen(text[i]));
            sl_buf_printf(o, " u%u", base + (sets ? s | 1u << i : 1 + used * n + i));
            any = true;
        }
        if (!any) /* a rule that never ends is dropped */
            sl_buf_printf(o, " \"x\" u%u", base + s);
        sl_buf_puts(o, "\n");
    }
}

static enum sl_status put_unique(struct sl_schema *c, const json_t *item, uint32_t least,
                                 uint32_t most, bool *out_done, struct sl_buf *b) {
    json_t *texts = NULL, *unused;
    const char *key;
    *out_done = false;
    enum sl_status status = few_values(c, item, &texts);
    if (status != SL_OK || !texts)
        return status;
    uint32_t n = (uint32_t)json_object_size(texts), i = 0;
    if (most > n)
        most = n;
    bool sets = n <= MAX_SETS;
    const char **list = malloc((n + 1) * sizeof *list);
    if (!list) {
        status = sl_schema_no_memory(c);
    } else if (least > n) {
        status = SL_SCHEMA_NOTHING(c, "minItems is more than the different items");
    } else if (n && (sets || (uint64_t)n * most < MAX_ORDER)) {
        uint32_t base = c->n_rules;
        json_object_foreach(texts, key, unused) list[i++] = key;
        c->n_rules += sets ? 1u << n : 1 + n * most;
        put_states(c, list, n, sets, least, most, base);
        sl_buf_printf(b, "\"[\" ws u%u", base);
        *out_done = true;
    }
    free(list);
    json_decref(texts);
    return status;
}

/* At least so many items are of another schema too. Items before and between those may be of it as
 * well: any such array can be read in this way. */
static enum sl_status put_contains(struct sl_schema *c, const json_t *s, const json_t *items,
                                   uint32_t least, uint32_t most, struct sl_buf *b) {
    uint32_t some = 1, unused;
    char item[24], found[24];
    json_t *both = NULL;
    enum sl_status status = SL_OK;
    if (json_object_get(s, "minContains"))
        status = sl_schema_counts(c, s, "minContains", "maxContains", &some, &unused);
    if (status == SL_OK && (json_object_get(s, "maxContains") || some > MAX_CONTAINS))
        status = sl_fail(
            c->err, SL_ERR_INVALID, "%s: supported is minContains up to %u, without maxContains",
            json_object_get(s, "maxContains") ? "maxContains" : "minContains", MAX_CONTAINS);
    if (status == SL_OK && (least > some || most != SL_SCHEMA_NO_MAX ||
                            json_object_get(s, "prefixItems") || json_is_array(items)))
        status = sl_fail(c->err, SL_ERR_INVALID,
                         "contains: not supported beside minItems, maxItems and prefixItems");
    if (status != SL_OK)
        return status;
    const json_t *contains = json_object_get(s, "contains");
    both =
        items ? json_pack("{s:[O,O]}", "allOf", items, contains) : json_incref((json_t *)contains);
    status = both ? sl_schema_item(c, items, item) : sl_schema_no_memory(c);
    if (status == SL_OK)
        status = sl_schema_item(c, both, found);
    json_decref(both);
    if (status == SL_OK)
        sl_buf_printf(
            b,
            "\"[\" ws (%s \",\" ws)* %s (\",\" ws (%s \",\" ws)* %s){%u} (\",\" ws %s)* ws "
            "\"]\"",
            item, found, item, found, some - 1, item);
    return status;
}

enum sl_status sl_schema_put_array(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    const json_t *prefix = json_object_get(s, "prefixItems"), *rest = json_object_get(s, "items");
    if (json_is_array(rest)) { /* drafts 4 to 2019-09 */
        prefix = rest;
        rest = json_object_get(s, "additionalItems");
    }
    if (prefix && !json_is_array(prefix))
        return sl_fail(c->err, SL_ERR_INVALID, "prefixItems must be an array");
    uint32_t least, most, n_prefix = (uint32_t)json_array_size(prefix);
    SL_TRY(sl_schema_counts(c, s, "minItems", "maxItems", &least, &most));
    const json_t *at_least = json_object_get(s, "minContains");
    if (json_object_get(s, "contains") &&
        !(at_least && json_number_value(at_least) == 0 && !json_object_get(s, "maxContains"))) {
        if (json_is_true(json_object_get(s, "uniqueItems")) && c->strict)
            return sl_fail(c->err, SL_ERR_INVALID, "contains: not supported beside uniqueItems");
        return put_contains(c, s, rest, least, most, b);
    }
    if (json_is_true(json_object_get(s, "uniqueItems")) && most > 1 &&
        !(json_is_false(rest) && n_prefix <= 1)) {
        bool done = false;
        if (!prefix)
            SL_TRY(put_unique(c, rest, least, most, &done, b));
        if (done)
            return SL_OK;
        if (c->strict)
            return sl_fail(c->err, SL_ERR_INVALID,
                           "uniqueItems: with strict it is supported for items of enum, const, "
                           "boolean or null alone");
    }
    if (n_prefix > SL_SCHEMA_MAX_DEPTH)
        return sl_fail(c->err, SL_ERR_INVALID, "prefixItems: at most %u are supported",
                       SL_SCHEMA_MAX_DEPTH);
    if (n_prefix > most)
        n_prefix = most;
    bool closed = json_is_false(rest);
    if (closed && least > n_prefix)
        return SL_SCHEMA_NOTHING(c, "minItems is more than the items there may be");
    sl_buf_puts(b, "\"[\" ws");
    char item[24];
    uint32_t n_open = 0;
    for (uint32_t i = 0; i < n_prefix; i++) {
        enum sl_status status = sl_schema_item(c, json_array_get(prefix, i), item);
        if (i >= least && sl_schema_took_nothing(c, status)) {
            closed = true; /* the array ends before it */
            break;
        }
        if (status != SL_OK)
            return status;
        if (i >= least) {
            sl_buf_puts(b, " (");
            n_open++;
        }
        sl_buf_printf(b, "%s %s", i ? " \",\" ws" : "", item);
    }
    if (!closed && most > n_prefix) {
        SL_TRY(sl_schema_item(c, rest, item));
        uint32_t need = least > n_prefix ? least - n_prefix : 0;
        uint32_t can = most == SL_SCHEMA_NO_MAX ? most : most - n_prefix;
        if (n_prefix) {
            sl_buf_printf(b, " (\",\" ws %s)", item);
            sl_schema_put_counts(b, need, can);
        } else {
            sl_buf_printf(b, " (%s (\",\" ws %s)", item, item);
            sl_schema_put_counts(b, need ? need - 1 : 0, can == SL_SCHEMA_NO_MAX ? can : can - 1);
            sl_buf_puts(b, need ? ")" : ")?");
        }
    }
    while (n_open--)
        sl_buf_puts(b, ")?");
    sl_buf_puts(b, " ws \"]\"");
    return SL_OK;
}
