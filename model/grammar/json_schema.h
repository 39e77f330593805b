/* JSON schemas (draft 2020-12, and what drafts 4 to 7 spelled differently) to grammars.
 *
 * Every text of the grammar is JSON that the schema takes; not every such JSON is a text of the
 * grammar. What is left out on purpose: properties come in the order of the schema; an object with
 * `properties` has no others unless `additionalProperties` is there; white space is one space, or a
 * line break and up to 32 spaces; integers have up to 16 digits, or what their bounds ask for;
 * numbers up to 16 digits before the point and 15 behind it, with bounds no exponent; strings and
 * arrays at most 16,384 long where no bound is lower; a multipleOf (integers) gives at most 2,000
 * values.
 *
 * Honoured: type, enum, const, properties, required, additionalProperties, patternProperties,
 * propertyNames, min/maxProperties (where the properties decide), items, prefixItems,
 * additionalItems, min/maxItems, contains, uniqueItems (of few values), unevaluatedProperties and
 * -Items, min/maxLength, pattern (json_schema_pattern.c), format (json_schema_format.c), minimum,
 * maximum, exclusive*, multipleOf, dependent*, $ref within the schema (recursion too), $defs,
 * definitions, allOf, anyOf, oneOf, not and if (as far as json_schema_not.c knows opposites),
 * boolean schemas. Any other keyword of the standard is an error that names it; what the standard
 * does not know, and annotations, are ignored. */
#ifndef SL_MODEL_JSON_SCHEMA_H
#define SL_MODEL_JSON_SCHEMA_H

#include "common/buf.h"
#include "common/status.h"

#include <jansson.h>
#include <stdint.h>

/* Appends the grammar's text. Errors: SL_ERR_INVALID, the text names the keyword and where it
 * stands; SL_ERR_NOMEM. The schema may come from strangers: depth, work and output are bounded. */
enum sl_status sl_json_schema_grammar(const json_t *schema, struct sl_buf *out_text,
                                      struct sl_err *err) SL_MUST_CHECK;

/* Several schemas in one grammar: their rules behind one another, the shared ones first. Their
 * bounds hold for all of them together. */
struct sl_schema_rules {
    struct sl_buf *out; /* borrowed */
    /* Set after sl_json_schema_rules_begin. strict: a format that is not known, and uniqueItems
     * that cannot be enforced, are errors. open: as the standard has it, a keyword of one type says
     * nothing about values of others, and objects may have properties that are not listed. */
    bool strict, open;
    uint32_t n_rules;
    size_t work;
    uint64_t steps;
};
/* Appends what all schemas' rules use: ws, sp, str, num, int, arr, obj, val and their parts. */
void sl_json_schema_rules_begin(struct sl_schema_rules *r, struct sl_buf *out_text);
/* Appends the rules of a schema; references start at root. Its own rule is "r<*out_rule>". After an
 * error the text is as it was. Errors: as above. */
enum sl_status sl_json_schema_rules_add(struct sl_schema_rules *r, const json_t *root,
                                        const json_t *schema, uint32_t *out_rule,
                                        struct sl_err *err) SL_MUST_CHECK;
/* The same for a text, not JSON, that as a whole matches a pattern, see json_schema_pattern.c. */
enum sl_status sl_json_schema_rules_add_pattern(struct sl_schema_rules *r, const char *pattern,
                                                size_t len, uint32_t *out_rule,
                                                struct sl_err *err) SL_MUST_CHECK;
/* A literal as grammars write it. */
void sl_json_schema_literal(struct sl_buf *out_text, const char *bytes, size_t len);

#endif
