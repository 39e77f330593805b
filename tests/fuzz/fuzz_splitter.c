/* Answers from models that write anything. The first byte chooses the family, the second how the
 * text is read and where it is cut; the rest is the text. Cut and whole give the same parts,
 * nothing that was content in a family without markers is lost, and a whole answer's calls have
 * arguments that parse. */
#include "server/answer/splitter.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},"
    "\"r\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"null\"}]}},"
    "\"$defs\":{\"a\":{\"type\":\"array\"}}}}},{\"function\":{\"name\":\"g\"}}]";

struct log {
    struct sl_buf text, call;
    int kind;
    uint32_t n_calls, n_args;
    bool check; /* arguments are whole JSON */
};

static void end_call(struct log *l) {
    if (l->check && l->n_calls) {
        json_error_t e;
        json_t *v = json_loadb(l->call.ptr, l->call.len, JSON_ALLOW_NUL, &e);
        /* Numbers that jansson cannot hold and bytes that no model's text has are no fault. */
        if (!v && json_error_code(&e) == json_error_invalid_syntax)
            abort();
        json_decref(v);
    }
    sl_buf_clear(&l->call);
}

static void note(void *ctx, const struct sl_part *p) {
    struct log *l = ctx;
    if (p->kind == SL_PART_CALL) {
        end_call(l);
        if (p->call != l->n_calls++ || p->text.len == 0)
            abort();
    }
    if (p->kind == SL_PART_ARGUMENTS) {
        if (p->call + 1 != l->n_calls)
            abort();
        sl_buf_put(&l->call, p->text.ptr, p->text.len);
    }
    char mark[2] = {(char)(1 + p->kind), 0};
    if (l->kind != (int)p->kind || p->kind == SL_PART_CALL)
        sl_buf_put(&l->text, mark, 1);
    sl_buf_put(&l->text, p->text.ptr, p->text.len);
    l->kind = (int)p->kind;
}

static void split(const struct sl_splitter_config *config, bool cut_off, const char *text,
                  size_t len, size_t step, struct log *out) {
    struct sl_splitter *s;
    *out = (struct log){.kind = -1, .check = config->hold_calls && !cut_off};
    if (sl_splitter_create(config, note, out, &s) != SL_OK)
        abort();
    for (size_t at = 0; at < len; at += step)
        if (sl_splitter_push(s, text + at, len - at < step ? len - at : step) != SL_OK)
            abort();
    if (sl_splitter_finish(s, cut_off) != SL_OK || sl_splitter_n_calls(s) != out->n_calls)
        abort();
    end_call(out);
    sl_splitter_destroy(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *tools;
    static uint32_t n_formats;
    if (!tools) {
        json_object_seed(1);
        tools = json_loads(tools_text, 0, NULL);
        while (sl_answer_format_at(n_formats))
            n_formats++;
    }
    if (size < 2)
        return 0;
    unsigned how = data[1];
    const char *text = (const char *)data + 2;
    size_t len = size - 2;
    struct sl_splitter_config config = {.format = sl_answer_format_at(data[0] % n_formats),
                                        .tools = how & 1 ? tools : NULL,
                                        .thinks = how & 2,
                                        .in_reasoning = how & 4,
                                        .hold_calls = how & 8};
    struct log whole, cut;
    bool cut_off = how & 16;
    split(&config, cut_off, text, len, len ? len : 1, &whole);
    split(&config, cut_off, text, len, 1 + (how >> 5), &cut);
    if (whole.text.len != cut.text.len ||
        (whole.text.len && memcmp(whole.text.ptr, cut.text.ptr, whole.text.len) != 0))
        abort();
    bool plain = !config.tools && !config.thinks && config.format->syntax != SL_CALL_HARMONY;
    if (plain && len && (whole.text.len != len + 1 || memcmp(whole.text.ptr + 1, text, len) != 0))
        abort();
    sl_buf_release(&whole.text);
    sl_buf_release(&whole.call);
    sl_buf_release(&cut.text);
    sl_buf_release(&cut.call);
    return 0;
}
