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
    size_t scanned; /* escapes up to here were looked at */
    size_t mend;    /* the digits of the last that was no character */
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

/* The four digits of an escape at s[0..len), or -1. */
static int escaped(const char *s, size_t len) {
    int v = 0;
    if (len < 6 || s[0] != '\\' || s[1] != 'u')
        return -1;
    for (size_t i = 2; i < 6; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* Bytes of the escape at s[0] == '\\'. out_bad: it is half a character, which programs make that
 * cut texts in UTF-16, or a NUL, which no text here can hold. */
static size_t escape_bytes(const char *s, size_t len, bool *out_bad) {
    int v = escaped(s, len);
    bool high = v >= 0xd800 && v < 0xdc00, low = v >= 0xdc00 && v < 0xe000;
    int next = high ? escaped(s + 6, len - 6) : -1;
    *out_bad = false;
    if (v < 0)
        return 2;
    if (next >= 0xdc00 && next < 0xe000)
        return 12;
    *out_bad = high || low || v == 0;
    return 6;
}

/* Writes U+FFFD over what lies of such an escape in this part of the body. */
static void mend(const struct source *s, char *part, size_t n) {
    for (size_t i = 0; i < 4; i++)
        if (s->mend + i >= s->at && s->mend + i < s->at + n)
            part[s->mend + i - s->at] = "FFFD"[i];
}

static void mend_escapes(struct source *s, char *part, size_t n) {
    mend(s, part, n); /* the last may reach into this part */
    while (s->scanned < s->at + n) {
        const char *from = s->body + s->scanned;
        const char *escape = memchr(from, '\\', s->at + n - s->scanned);
        bool bad;
        if (!escape) {
            s->scanned = s->at + n;
            return;
        }
        s->scanned = (size_t)(escape - s->body);
        size_t bytes = escape_bytes(escape, s->len - s->scanned, &bad);
        if (bad) {
            s->mend = s->scanned + 2;
            mend(s, part, n);
        }
        s->scanned += bytes;
    }
}

static size_t read_source(void *buffer, size_t size, void *data) {
    struct source *s = data;
    size_t n = s->len - s->at < size ? s->len - s->at : size;
    if (!go_on(s))
        return (size_t)-1;
    memcpy(buffer, s->body + s->at, n);
    mend_escapes(s, buffer, n);
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

static const char *what_is_wrong(const json_error_t *je) {
    switch (json_error_code(je)) {
    case json_error_invalid_utf8:
        return "a string is not valid UTF-8";
    case json_error_premature_end_of_input:
        return "it ends too early";
    case json_error_end_of_input_expected:
        return "there is more after its end";
    case json_error_numeric_overflow:
        return "a number is too large";
    case json_error_stack_overflow:
        return "it is nested too deeply";
    default:
        return "syntax error";
    }
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
    source.mend = len;
    json_error_t je;
    json_t *v = json_load_callback(read_source, &source, JSON_DECODE_ANY, &je);
    if (source.status != SL_OK) {
        json_decref(v);
        sl_http_from_status(e, source.status, &source.err);
        return NULL;
    }
    if (!v) {
        sl_http_bad(e, NULL, "the request body is not valid JSON: line %d, column %d: %s", je.line,
                    je.column, what_is_wrong(&je));
        return NULL;
    }
    if (!json_is_object(v)) {
        sl_http_bad(e, NULL, "the request body must be a JSON object, not %s", sl_json_kind(v));
        json_decref(v);
        return NULL;
    }
    return v;
}
