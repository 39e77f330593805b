/* Strings: lengths, patterns, formats. */
#include "model/grammar/json_schema_internal.h"

#include <string.h>

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

enum sl_status sl_schema_put_string(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    uint32_t least, most;
    const json_t *pattern = json_object_get(s, "pattern"), *format = json_object_get(s, "format");
    enum sl_status status = sl_schema_counts(c, s, "minLength", "maxLength", &least, &most);
    if (status != SL_OK)
        return status;
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
        status = sl_schema_pattern(regex, strlen(regex), b, &regex_least, &regex_most, c->err);
        if (status != SL_OK)
            return status;
        if (regex_least < least || regex_most > most)
            return sl_fail(
                c->err, SL_ERR_INVALID, "%s: beside %s it is supported only where that implies it",
                regex_least < least ? "minLength" : "maxLength", pattern ? "pattern" : "format");
    } else {
        sl_buf_puts(b, SL_SCHEMA_ANY_CHAR);
        sl_schema_put_counts(b, least, most);
    }
    sl_buf_puts(b, " \"\\\"\"");
    return SL_OK;
}
