/* What a chat template's work costs against what it is charged for: whatever a template from a
 * stranger's file does, its time is bounded by its steps. A built-in that works without charging
 * for it ends the run here, long before it could hold a server's worker.
 * The input is a template. Among its variables are long texts and large containers, so that one
 * call is enough to show what is free. */
#include "model/jinja/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The thread's own time, so that a busy machine makes no difference. A step takes 10 to 50 ns, and
 * up to 20 times as long under sanitizers with coverage; the floor is for what any rendering takes,
 * and page faults. Work that is not charged is not a few times cheaper than this but any number. */
enum { MAX_STEPS = 60000, LONG = 1 << 18, MANY = 4096 };
#define FLOOR_NS   200000000u
#define STEP_NS    4000u
#define COMPILE_NS 20000u /* for each byte */

static uint64_t cpu_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static json_t *repeated(const char *piece, size_t n_bytes) {
    size_t n = strlen(piece), len = n_bytes / n * n;
    char *p = malloc(len);
    if (!p)
        abort();
    for (size_t i = 0; i < len; i += n)
        memcpy(p + i, piece, n);
    json_t *s = json_stringn(p, len);
    free(p);
    return s;
}

/* What renders also have: a conversation, small values, and the long ones. */
static json_t *variables(void) {
    json_t *v = json_pack("{s:[{s:s,s:s}], s:i, s:f, s:s, s:s}", "messages", "role", "user",
                          "content", "Hello.", "n", 5, "f", 0.1, "s", "abc d\u00e9f", "x", "x");
    json_t *l = json_array(), *d = json_object(), *deep = json_array();
    char key[16];
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "key%d", i);
        json_array_append_new(l, json_integer((json_int_t)i * 7919 % MANY));
        json_object_set_new(d, key, json_integer(i));
    }
    for (int i = 0; i < 400; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    json_object_set_new(v, "l", l);
    json_object_set_new(v, "d", d);
    json_object_set_new(v, "deep", deep);
    json_object_set_new(v, "a", repeated("a", LONG));
    json_object_set_new(v, "b", repeated("a", LONG / 2));
    json_object_set_new(v, "w", repeated("ab ", LONG));
    json_object_set_new(v, "t", repeated("<a%{\n", LONG));
    json_object_set_new(v, "u", repeated("\u03a3\u0301\U0001f389", LONG));
    json_object_set_new(v, "z", repeated("0", LONG));
    return v;
}

static void check(const char *what, uint64_t took_ns, uint64_t most_ns, uint64_t steps) {
    if (took_ns <= most_ns)
        return;
    fprintf(stderr, "%s took %.1f ms of CPU time; its %llu steps allow %.1f\n", what,
            (double)took_ns * 1e-6, (unsigned long long)steps, (double)most_ns * 1e-6);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *vars;
    uint64_t steps = 0;
    const struct sl_template_limits limits = {.max_steps = MAX_STEPS,
                                              .max_depth = 1000,
                                              .max_output_bytes = 16 << 20,
                                              .max_memory_bytes = 64 << 20,
                                              .steps = &steps,
                                              .now_s = 1700000000};
    if (!vars)
        vars = variables();
    struct sl_template *t = NULL;
    struct sl_err err = {{0}};
    uint64_t start = cpu_ns();
    enum sl_status status = sl_template_compile((const char *)data, size, &t, &err);
    check("compiling", cpu_ns() - start, FLOOR_NS + size * COMPILE_NS, 0);
    if (status != SL_OK)
        return 0;
    char *text = NULL;
    size_t len;
    start = cpu_ns();
    status = sl_template_render(t, vars, &limits, &text, &len, &err);
    check("rendering", cpu_ns() - start, FLOOR_NS + steps * STEP_NS, steps);
    if (status == SL_OK)
        free(text);
    sl_template_destroy(&t);
    return 0;
}
