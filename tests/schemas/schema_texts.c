/* Which texts a schema's grammar takes: schema_texts [open] [strict]. A line of standard input is
 * {"schema": ..., "texts": [...]}; a line of standard output says {"error": "..."} or
 * {"takes": [true, ...]}. The words are those of struct sl_schema_rules. */
#include "model/grammar/automaton.h"
#include "model/grammar/json_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool open_, strict;

static bool takes(struct sl_automaton *a, const char *text, size_t len, struct sl_err *err) {
    struct sl_cursor c;
    if (sl_cursor_init(&c, a, err) != SL_OK)
        return false;
    bool ok = sl_cursor_push_bytes(&c, text, len, err) == SL_OK && sl_cursor_complete(&c);
    sl_cursor_release(&c);
    return ok;
}

static json_t *answer(const json_t *schema, const json_t *texts) {
    struct sl_buf b = {0};
    struct sl_err err = {""};
    struct sl_grammar *g = NULL;
    struct sl_automaton *a = NULL;
    json_t *out = NULL;
    struct sl_schema_rules rules;
    uint32_t rule = 0;
    char start[24];
    sl_json_schema_rules_begin(&rules, &b);
    rules.open = open_;
    rules.strict = strict;
    enum sl_status status = sl_json_schema_rules_add(&rules, schema, schema, &rule, &err);
    snprintf(start, sizeof start, "r%u", rule);
    if (status != SL_OK || sl_grammar_parse_from(b.ptr, b.len, start, &g, &err) != SL_OK ||
        sl_automaton_create(g, NULL, NULL, 0, &a) != SL_OK) {
        out = json_pack("{s:s}", "error", err.text);
    } else {
        json_t *list = json_array();
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *t = json_array_get(texts, i);
            json_array_append_new(
                list, json_boolean(takes(a, json_string_value(t), json_string_length(t), &err)));
        }
        out = json_pack("{s:o}", "takes", list);
    }
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
    sl_buf_release(&b);
    return out;
}

int main(int argc, char **argv) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    for (int i = 1; i < argc; i++) {
        open_ = open_ || strcmp(argv[i], "open") == 0;
        strict = strict || strcmp(argv[i], "strict") == 0;
    }
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_error_t e;
        json_t *in = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &e);
        json_t *out = in ? answer(json_object_get(in, "schema"), json_object_get(in, "texts"))
                         : json_pack("{s:s}", "error", e.text);
        char *text = out ? json_dumps(out, JSON_COMPACT) : NULL;
        if (!text)
            return 1;
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    return 0;
}
