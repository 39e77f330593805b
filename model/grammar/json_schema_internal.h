/* Inside of the schema compiler: shared by model/json_schema*.c alone. */
#ifndef SL_MODEL_JSON_SCHEMA_INTERNAL_H
#define SL_MODEL_JSON_SCHEMA_INTERNAL_H

#include "model/grammar/json_schema.h"

#include <stdint.h>

#define SL_SCHEMA_MAX_DEPTH 64u
#define SL_SCHEMA_MAX_RULES 20000u
#define SL_SCHEMA_MAX_WORK  (32u << 20) /* bytes of schemas written out to be recognised */
#define SL_SCHEMA_MAX_TEXT  (4u << 20)  /* bytes of a grammar, of which more is refused later */
#define SL_SCHEMA_MAX_STEPS (1u << 20)  /* see sl_schema_spend */
#define SL_SCHEMA_MAX_COUNT 16384u      /* characters, items */
#define SL_SCHEMA_MAX_ENUM  2000u
#define SL_SCHEMA_NO_MAX    UINT32_MAX

/* A character of a JSON string. In place, not as a rule: see grammar_plain.c. */
#define SL_SCHEMA_ANY_CHAR "([^\"\\\\\\x00-\\x1f] | \"\\\\\" esc)"

struct sl_schema {
    const json_t *root;
    struct sl_buf *out;
    json_t *known; /* a schema's text -> its rule */
    uint32_t n_rules, depth;
    size_t work;
    uint64_t steps;
    bool strict;  /* what cannot be promised is an error */
    bool open;    /* what a schema does not say is allowed */
    bool nothing; /* the error is that a schema allows no value */
    bool raw;     /* strings are written as they are, not as JSON */
    struct sl_err *err;
};

/* Keywords of our own, in schemas that were put together here. Arrays of values of enum and of
 * patterns that a string must not have; that a part is an opposite, so that what it names is not
 * evaluated in the sense of unevaluatedProperties. */
#define SL_SCHEMA_NOT_ENUM    "\001not-enum"
#define SL_SCHEMA_NOT_PATTERN "\001not-pattern"
#define SL_SCHEMA_OPPOSITE    "\001opposite"

/* SL_ERR_INVALID because no value is allowed: an alternative, an optional property may do without.
 */
#define SL_SCHEMA_NOTHING(c, ...)                                                                  \
    ((c)->nothing = true, sl_fail((c)->err, SL_ERR_INVALID, __VA_ARGS__))
/* Was it that? Then it is settled, and may be left out. */
static inline bool sl_schema_took_nothing(struct sl_schema *c, enum sl_status status) {
    bool was = status == SL_ERR_INVALID && c->nothing;
    c->nothing = c->nothing && !was;
    return was;
}

/* A literal in a grammar. */
void sl_schema_literal(struct sl_buf *b, const char *bytes, size_t len);
enum sl_status sl_schema_no_memory(struct sl_schema *c) SL_MUST_CHECK;

/* json_schema.c: the rule of a schema, "r<*out_rule>", written unless an equal schema has one. */
enum sl_status sl_schema_rule(struct sl_schema *c, const json_t *s,
                              uint32_t *out_rule) SL_MUST_CHECK;
/* The name of the rule of an item's or a property's value; s NULL: any value. */
enum sl_status sl_schema_item(struct sl_schema *c, const json_t *s, char out[24]) SL_MUST_CHECK;
/* What two keywords such as minLength and maxLength ask for; SL_SCHEMA_NO_MAX: no most. */
enum sl_status sl_schema_counts(struct sl_schema *c, const json_t *s, const char *least_key,
                                const char *most_key, uint32_t *out_least,
                                uint32_t *out_most) SL_MUST_CHECK;
/* {least,most} of a grammar. */
void sl_schema_put_counts(struct sl_buf *b, uint32_t least, uint32_t most);

/* json_schema_keywords.c */

/* SL_ERR_INVALID names a keyword that is not supported, or whose value cannot be. */
enum sl_status sl_schema_check_keywords(struct sl_schema *c, const json_t *s) SL_MUST_CHECK;
/* Types of which a schema's keywords speak; SL_TYPE_ALL when they speak of none. */
unsigned sl_schema_implied_types(const json_t *s);
/* SL_ERR_INVALID names a keyword about these types that the values of enum and const would have to
 * be tried against, and are not. */
enum sl_status sl_schema_check_with_values(struct sl_schema *c, const json_t *s,
                                           unsigned types) SL_MUST_CHECK;

/* json_schema_values.c, json_schema_string.c, json_schema_array.c, json_schema_object.c: what a
 * rule of such a schema consists of, behind "::=". Flat schemas. */
enum sl_status sl_schema_put_values(struct sl_schema *c, const json_t *s, const json_t *values,
                                    unsigned types, struct sl_buf *b) SL_MUST_CHECK;
enum sl_status sl_schema_put_string(struct sl_schema *c, const json_t *s,
                                    struct sl_buf *b) SL_MUST_CHECK;
enum sl_status sl_schema_put_array(struct sl_schema *c, const json_t *s,
                                   struct sl_buf *b) SL_MUST_CHECK;
enum sl_status sl_schema_put_object(struct sl_schema *c, const json_t *s,
                                    struct sl_buf *b) SL_MUST_CHECK;

/* json_schema_number.c: alternatives in parentheses. */
enum sl_status sl_schema_integer(struct sl_schema *c, const json_t *s,
                                 struct sl_buf *b) SL_MUST_CHECK;
enum sl_status sl_schema_number(struct sl_schema *c, const json_t *s,
                                struct sl_buf *b) SL_MUST_CHECK;

/* minimum, maximum, multipleOf and the like are numbers, or SL_ERR_INVALID names the one that is
 * not. exclusiveMinimum and exclusiveMaximum may be booleans as well, as in draft 4. */
enum sl_status sl_schema_check_bounds(struct sl_schema *c, const json_t *s) SL_MUST_CHECK;
/* Up to here a double holds every integer: beyond, 1.0's way to write one says another number. */
#define SL_SCHEMA_EXACT 9007199254740992ll
/* Of a number, without rounding integers beyond 2^53. */
long double sl_schema_value(const json_t *v);

/* json_schema_format.c: the pattern of a format's strings; NULL: the format is not known. open:
 * also of strings that the standard allows and many validators do not. */
const char *sl_schema_format(const char *format, bool open);

/* json_schema_types.c */

/* Types that a schema allows: bits. */
enum {
    SL_TYPE_NULL = 1,
    SL_TYPE_BOOLEAN = 2,
    SL_TYPE_INTEGER = 4,
    SL_TYPE_FRACTION = 8, /* a number that is no integer */
    SL_TYPE_STRING = 16,
    SL_TYPE_ARRAY = 32,
    SL_TYPE_OBJECT = 64,
    SL_TYPE_ALL = 127,
};
/* The types that type, enum and const leave. SL_ERR_INVALID for a type that does not exist. */
enum sl_status sl_schema_types(struct sl_schema *c, const json_t *s,
                               unsigned *out_types) SL_MUST_CHECK;
unsigned sl_schema_type_of(const json_t *value);
/* Types by their names, for the keyword type; NULL: no memory. New reference. */
json_t *sl_schema_type_names(unsigned types);
/* enum or const as an array, NULL when there is neither; borrowed or in *out_new. */
const json_t *sl_schema_values(const json_t *s, json_t **out_new);

/* json_schema_refs.c */

/* A schema without $ref and allOf that takes what s takes; new reference. */
enum sl_status sl_schema_flatten(struct sl_schema *c, const json_t *s, uint32_t depth,
                                 json_t **out) SL_MUST_CHECK;

/* What a $ref refers to; NULL: it is not in the schema. Borrowed. */
const json_t *sl_schema_find(const struct sl_schema *c, const char *ref);

/* json_schema_not.c: a schema of values that s does not take, though not of all; new reference. */
enum sl_status sl_schema_not(struct sl_schema *c, const json_t *s, json_t **out) SL_MUST_CHECK;

/* SL_ERR_INVALID: the part, flattened, has unevaluatedProperties or unevaluatedItems that could not
 * be resolved in it; merged into another schema they would see what that one has. */
enum sl_status sl_schema_check_closed(struct sl_schema *c, const json_t *part) SL_MUST_CHECK;

/* json_schema_merge.c */

/* Counts work that the size of a schema does not bound: schemas resolved, members copied or
 * compared. SL_ERR_INVALID once there was too much of it for one schema. */
enum sl_status sl_schema_spend(struct sl_schema *c, uint64_t steps) SL_MUST_CHECK;
/* json_copy of an object or array, counted. */
enum sl_status sl_schema_copy(struct sl_schema *c, const json_t *v, json_t **out) SL_MUST_CHECK;
/* The names in required, each once, as keys of an object; new reference. */
enum sl_status sl_schema_required(struct sl_schema *c, const json_t *s, json_t **out) SL_MUST_CHECK;

/* Both flat: what both take; new reference. */
enum sl_status sl_schema_merge(struct sl_schema *c, const json_t *a, const json_t *b,
                               uint32_t depth, json_t **out) SL_MUST_CHECK;
/* Is there surely no JSON that both take? Both flat. */
enum sl_status sl_schema_disjoint(struct sl_schema *c, const json_t *a, const json_t *b,
                                  uint32_t depth, bool *out) SL_MUST_CHECK;

#endif
