/* Table-driven reading and checking of the fields of a request body. An absent field or null leaves
 * the output unchanged; a wrong type or a value out of range is a 400 that names the field. */
#ifndef SL_SERVER_FIELDS_H
#define SL_SERVER_FIELDS_H

#include "model/jinja/chat_template.h"
#include "server/types/errors.h"

#include <jansson.h>
#include <stdint.h>

enum sl_field_kind {
    SL_FIELD_BOOL,   /* bool */
    SL_FIELD_U32,    /* uint32_t; -1 in JSON, where min allows it, is stored as UINT32_MAX */
    SL_FIELD_F32,    /* float */
    SL_FIELD_SEED,   /* uint64_t, any JSON integer */
    SL_FIELD_STRING, /* checked, not stored */
    SL_FIELD_OBJECT, /* likewise */
};

struct sl_field {
    const char *name;
    enum sl_field_kind kind;
    size_t offset; /* of the output in the struct */
    double min, max;
};

/* Fills the struct at out. False: e is set. */
bool sl_fields_read(const json_t *body, const struct sl_field *fields, uint32_t n, void *out,
                    struct sl_http_error *e);

/* "a string", "null", "an object" */
const char *sl_json_kind(const json_t *v);

#define SL_JSON_MAX_DEPTH 128u
/* Bounds the memory of a parsed body, in units of about 50 bytes: a value is one, an array two, an
 * object six, a member two more. (The bytes of "{},{},..." would grow a hundredfold.) A server with
 * little memory allows fewer. */
#define SL_JSON_MAX_UNITS 2000000u

/* Parses a body into a JSON object; limits are checked before the parser allocates anything.
 * Asks the watch (NULL: none) every 64 KiB, and stops with its status. The caller owns the result
 * (json_decref). NULL: e is set. */
json_t *sl_json_parse_object(const char *body, size_t len, uint32_t max_units,
                             const struct sl_template_watch *watch, struct sl_http_error *e);
/* The same limits for JSON in a string of a body: subtracts what it would take when parsed from
 * *units. False: it nests too deep, or needs more than is left. */
bool sl_json_take_units(const char *text, size_t len, uint32_t *units);

#endif
