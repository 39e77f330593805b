/* Chat templates from strangers: compiles the input and renders it. A zero byte ends the template;
 * what follows is read as the JSON of its variables, else a small conversation is used. */
#include "model/jinja/chat_template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *default_vars(void) {
    return json_loads(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"H\\u00e9 "
        "<b>\\n\"},{\"role\":\"assistant\","
        "\"content\":null,\"tool_calls\":[{\"id\":\"123456789\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":{\"x\":1,\"y\":[1.5,true]}}}]},{\"role\":\"tool\","
        "\"content\":\"ok\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":"
        "\"integer\"}}}}}],\"bos_token\":\"<s>\",\"add_generation_prompt\":true,\"n\":5,"
        "\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":2},\"s\":\"abc d\\u00e9f\",\"f\":0.1}",
        0, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct sl_template_limits limits = {.max_steps = 30000,
                                              .max_depth = 300,
                                              .max_output_bytes = 1 << 20,
                                              .max_memory_bytes = 8 << 20,
                                              .now_s = 1700000000};
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t len = zero ? (size_t)(zero - data) : size;
    struct sl_template *t = NULL;
    struct sl_err err = {{0}};
    if (sl_template_compile((const char *)data, len, &t, &err) != SL_OK) {
        if (!err.text[0] || t)
            abort(); /* a failure says why and leaves nothing behind */
        return 0;
    }
    json_t *vars = zero ? json_loadb((const char *)zero + 1, size - len - 1, 0, NULL) : NULL;
    if (!vars)
        vars = default_vars();
    char *text[2] = {0};
    size_t n[2] = {0};
    for (int i = 0; i < 2; i++)
        if (sl_template_render(t, vars, &limits, &text[i], &n[i], &err) != SL_OK && !err.text[0])
            abort();
    /* The same template and variables give the same text. */
    if (!text[0] != !text[1] || (text[0] && (n[0] != n[1] || memcmp(text[0], text[1], n[0]) ||
                                             text[0][n[0]] != 0 || n[0] > limits.max_output_bytes)))
        abort();
    free(text[0]);
    free(text[1]);
    json_decref(vars);
    sl_template_destroy(&t);
    return 0;
}
