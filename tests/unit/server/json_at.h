/* Looks into JSON that a test has got. */
#ifndef TESTS_UNIT_SERVER_JSON_AT_H
#define TESTS_UNIT_SERVER_JSON_AT_H

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A member by path, "choices.0.message.content". */
static inline json_t *at(json_t *v, const char *path) {
    char part[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(part)) : json_object_get(v, part);
        path += n + (path[n] == '.');
    }
    return v;
}
static inline const char *str_at(json_t *v, const char *path) {
    const char *s = json_string_value(at(v, path));
    if (!s)
        fail_msg("no string at %s", path);
    return s;
}

#endif
