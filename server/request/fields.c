#include "server/request/fields.h"

#include <math.h>
#include <string.h>

const char *sl_json_kind(const json_t *v) {
    if (!v)
        return "absent";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

static bool read_number(const json_t *v, const struct sl_field *f, double *out,
                        struct sl_http_error *e) {
    const char *what = f->kind == SL_FIELD_F32 ? "a number" : "an integer";
    if (!json_is_number(v))
        return sl_http_bad(e, f->name, "'%s' must be %s from %.10g to %.10g, not %s", f->name, what,
                           f->min, f->max, sl_json_kind(v));
    double x = json_number_value(v);
    if (f->kind == SL_FIELD_U32 && !json_is_integer(v))
        return sl_http_bad(e, f->name, "'%s' must be an integer from %.0f to %.0f, not %.10g",
                           f->name, f->min, f->max, x);
    if (!(x >= f->min && x <= f->max))
        return sl_http_bad(e, f->name, "'%s' must be %s from %.10g to %.10g, not %.10g", f->name,
                           what, f->min, f->max, x);
    *out = x;
    return true;
}

bool sl_fields_read(const json_t *body, const struct sl_field *fields, uint32_t n, void *out,
                    struct sl_http_error *e) {
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_field *f = &fields[i];
        const json_t *v = json_object_get(body, f->name);
        if (!v || json_is_null(v))
            continue;
        char *at = (char *)out + f->offset;
        double x;
        switch (f->kind) {
        case SL_FIELD_BOOL: {
            if (!json_is_boolean(v))
                return sl_http_bad(e, f->name, "'%s' must be true or false, not %s", f->name,
                                   sl_json_kind(v));
            bool b = json_is_true(v);
            memcpy(at, &b, sizeof b);
            break;
        }
        case SL_FIELD_U32: {
            if (!read_number(v, f, &x, e))
                return false;
            uint32_t u = x < 0 ? UINT32_MAX : (uint32_t)x;
            memcpy(at, &u, sizeof u);
            break;
        }
        case SL_FIELD_F32: {
            if (!read_number(v, f, &x, e))
                return false;
            float y = (float)x;
            memcpy(at, &y, sizeof y);
            break;
        }
        case SL_FIELD_SEED: {
            if (!json_is_integer(v))
                return sl_http_bad(e, f->name, "'%s' must be an integer, not %s", f->name,
                                   json_is_real(v) ? "a fraction" : sl_json_kind(v));
            uint64_t u = (uint64_t)json_integer_value(v);
            memcpy(at, &u, sizeof u);
            break;
        }
        case SL_FIELD_STRING:
            if (!json_is_string(v))
                return sl_http_bad(e, f->name, "'%s' must be a string, not %s", f->name,
                                   sl_json_kind(v));
            break;
        case SL_FIELD_OBJECT:
            if (!json_is_object(v))
                return sl_http_bad(e, f->name, "'%s' must be an object, not %s", f->name,
                                   sl_json_kind(v));
            break;
        }
    }
    return true;
}

#define WATCH_BYTES 65536u /* some tenths of a millisecond, where values are small */

/* What json_load_callback reads from. */
struct source {
    const char *body;
    size_t len, at, next_poll;
    const struct sl_template_watch *watch;
    enum sl_status status; /* the watch's */
    struct sl_err err;
};

static bool go_on(struct source *s) {
    if (!s->watch || s->at < s->next_poll)
        return true;
    s->next_poll = s->at + WATCH_BYTES;
    s->status = s->watch->poll(s->watch->ctx, &s->err);
    return s->status == SL_OK;
}

static size_t read_source(void *buffer, size_t size, void *data) {
    struct source *s = data;
    size_t n = s->len - s->at < size ? s->len - s->at : size;
    if (!go_on(s))
        return (size_t)-1;
    memcpy(buffer, s->body + s->at, n);
    s->at += n;
    return n;
}

/* Depth and size when parsed, by brackets, colons and commas outside strings: an upper bound for
 * valid JSON, and invalid JSON is refused by the parser afterwards. */
static bool within_limits(struct source *source, uint32_t max_units, uint32_t *out_units,
                          struct sl_http_error *e) {
    const char *s = source->body;
    size_t len = source->len;
    uint32_t depth = 0, units = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        source->at = i;
        if (!go_on(source))
            return sl_http_from_status(e, source->status, &source->err);
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        switch (c) {
        case '"':
            in_string = true;
            break;
        case '[':
        case '{':
            units += c == '{' ? 6 : 2;
            if (++depth > SL_JSON_MAX_DEPTH)
                return sl_http_bad(e, NULL,
                                   "the request body nests deeper than %u levels at byte %zu",
                                   SL_JSON_MAX_DEPTH, i);
            break;
        case ']':
        case '}':
            if (depth > 0)
                depth--;
            break;
        case ':':
            units += 2;
            break;
        case ',':
            units++;
            break;
        default:
            break;
        }
        if (units > max_units)
            return sl_http_bad(e, NULL,
                               "the request body holds too many values: at most %u numbers, or %u "
                               "small objects",
                               max_units, max_units / 10);
    }
    *out_units = units;
    return true;
}

bool sl_json_take_units(const char *text, size_t len, uint32_t *units) {
    struct sl_http_error unused;
    struct source source = {.body = text, .len = len};
    uint32_t n;
    if (!within_limits(&source, *units, &n, &unused))
        return false;
    *units -= n;
    return true;
}

json_t *sl_json_parse_object(const char *body, size_t len, uint32_t max_units,
                             const struct sl_template_watch *watch, struct sl_http_error *e) {
    if (len == 0) {
        sl_http_bad(e, NULL, "the request has no body; send a JSON object");
        return NULL;
    }
    uint32_t units;
    struct source source = {.body = body, .len = len, .watch = watch};
    if (!within_limits(&source, max_units, &units, e))
        return NULL;
    source.at = source.next_poll = 0;
    json_error_t je;
    json_t *v = json_load_callback(read_source, &source, JSON_DECODE_ANY, &je);
    if (source.status != SL_OK) {
        json_decref(v);
        sl_http_from_status(e, source.status, &source.err);
        return NULL;
    }
    if (!v) {
        sl_http_bad(e, NULL, "the request body is not valid JSON: line %d, column %d: %s", je.line,
                    je.column, je.text);
        return NULL;
    }
    if (!json_is_object(v)) {
        sl_http_bad(e, NULL, "the request body must be a JSON object, not %s", sl_json_kind(v));
        json_decref(v);
        return NULL;
    }
    return v;
}
