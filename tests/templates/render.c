/* Renders templates for the comparison with Jinja2: reads requests from stdin, one JSON object a
 * line, {"template": text, "vars": object, "now": seconds}, and answers each with one line,
 * {"ok": text} or {"error": text}. A request without a template has the one before. */
#include "model/jinja/chat_template.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer(const char *key, const char *text, size_t len) {
    json_t *o = json_object();
    json_object_set_new(o, key, json_stringn_nocheck(text, len));
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(o);
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    bool any = false;
    struct sl_template *t = NULL;
    struct sl_err err = {{0}};
    while (getline(&line, &cap, stdin) > 0) {
        json_t *o = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *source = json_object_get(o, "template");
        if (!json_is_string(source) && (source || !any)) {
            fprintf(stderr, "bad request: %.200s\n", line);
            return 2;
        }
        if (source) {
            sl_template_destroy(&t);
            err.text[0] = 0;
            if (sl_template_compile(json_string_value(source), json_string_length(source), &t,
                                    &err) != SL_OK)
                t = NULL;
            any = true;
        }
        struct sl_template_limits limits = sl_template_default_limits;
        limits.now_s = json_integer_value(json_object_get(o, "now"));
        char *text = NULL;
        size_t len = 0;
        struct sl_err rerr = err;
        if (t &&
            sl_template_render(t, json_object_get(o, "vars"), &limits, &text, &len, &rerr) == SL_OK)
            answer("ok", text, len);
        else
            answer("error", rerr.text, strlen(rerr.text));
        free(text);
        json_decref(o);
    }
    sl_template_destroy(&t);
    free(line);
    return 0;
}
