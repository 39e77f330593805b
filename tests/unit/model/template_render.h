/* Renders a chat template on its own, for the tests of the interpreter. */
#ifndef SL_TEST_TEMPLATE_RENDER_H
#define SL_TEST_TEMPLATE_RENDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/jinja/chat_template.h"

#include <stdlib.h>
#include <string.h>

static const char VARS[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\","
    "\"content\":\"Gr\\u00fc\\u00dfe \\ud83c\\udf89\"},{\"role\":\"assistant\",\"content\":null,"
    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1,\"b\":[true,null,0.5]}}}]"
    "}]"
    ",\"tools\":[],\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"n\":5,\"l\":[3,1,2]}";

static struct sl_err err;
static enum sl_status status;

/* The text with VARS, to be freed, or NULL with the reason in err and status. */
static char *render(const char *source, const struct sl_template_limits *limits) {
    struct sl_template *t = NULL;
    char *out = NULL;
    size_t len = 0;
    err.text[0] = 0;
    json_t *vars = json_loads(VARS, 0, NULL);
    assert_non_null(vars);
    enum sl_status s = sl_template_compile(source, strlen(source), &t, &err);
    if (s == SL_OK) {
        s = sl_template_render(t, vars, limits, &out, &len, &err);
        sl_template_destroy(&t);
        assert_null(t);
    }
    json_decref(vars);
    if (s == SL_OK) {
        assert_int_equal(strlen(out), len);
        return out;
    }
    status = s;
    assert_true(s == SL_ERR_INVALID || s == SL_ERR_LIMIT);
    assert_true(err.text[0] != 0);
    return NULL;
}

/* Renders to `want`. */
static void is(const char *source, const char *want) {
    char *out = render(source, NULL);
    if (!out)
        fail_msg("%s: %s", source, err.text);
    assert_string_equal(out, want);
    free(out);
}

/* Is refused with a reason that says `text`. */
static void fails(const char *source, const char *text) {
    char *out = render(source, NULL);
    if (out)
        fail_msg("%s rendered: %s", source, out);
    if (!strstr(err.text, text))
        fail_msg("%s: \"%s\" does not say \"%s\"", source, err.text, text);
}

#endif
