/* Requests that become chats: what the template gets to see, and what is refused. */
#ifndef TESTS_UNIT_SERVER_TRANSLATED_H
#define TESTS_UNIT_SERVER_TRANSLATED_H

#include "offline.h"

/* The prompt is JSON, and equals `want` with the members that it does not name left out. */
static inline void expect(void (*handle)(struct sl_exchange *), const char *body,
                          const char *want) {
    struct sl_exchange ex;
    run(&ex, handle, body);
    if (!ex.gen)
        fail_msg("%s", ex.error.err.text);
    const struct sl_ids *ids = &ex.gen->prompts[0];
    char *text = calloc(1, ids->n + 1);
    for (size_t i = 0; i < ids->n; i++)
        text[i] = (char)ids->ids[i];
    json_t *got = json_loads(text, 0, NULL), *all;
    char *json = quoted(want);
    all = json_loads(json, 0, NULL);
    assert_non_null(got);
    assert_non_null(all);
    const char *key;
    json_t *value;
    json_object_foreach(all, key, value) if (!json_equal(value, json_object_get(got, key)))
        fail_msg("%s: the template sees\n%s\nnot\n%s", key, text, json);
    json_decref(got);
    json_decref(all);
    free(json);
    free(text);
    done(&ex);
}

static inline void refuse(void (*handle)(struct sl_exchange *), const char *body, const char *param,
                          const char *part) {
    struct sl_exchange ex;
    run(&ex, handle, body);
    assert_null(ex.gen);
    assert_int_equal(ex.error.http_status, 400);
    assert_string_equal(ex.error.param, param);
    if (!strstr(ex.error.err.text, part))
        fail_msg("'%s' does not say '%s'", ex.error.err.text, part);
    done(&ex);
}

#endif
