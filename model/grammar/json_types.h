/* Which kinds of JSON a schema leaves open, at a glance. The schema may be anything: what is not
 * understood leaves all open, and the work is bounded. */
#ifndef SL_MODEL_JSON_TYPES_H
#define SL_MODEL_JSON_TYPES_H

#include <jansson.h>
#include <stdint.h>

enum {
    SL_JSON_STRING = 1,
    SL_JSON_NUMBER = 2,
    SL_JSON_BOOLEAN = 4,
    SL_JSON_NULL = 8,
    SL_JSON_ARRAY = 16,
    SL_JSON_OBJECT = 32,
    SL_JSON_ANY = 63,
};

/* Bits; SL_JSON_ANY for NULL. References ("#/$defs/name") start at root. */
uint32_t sl_json_types(const json_t *root, const json_t *schema);
uint32_t sl_json_type_of(const json_t *value);

#endif
