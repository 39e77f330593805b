#include "model/chat/answer_format.h"

#include <stdlib.h>
#include <string.h>

/* U+FF5C and U+2581, as DeepSeek's tokens are written. */
#define BAR        "\xef\xbd\x9c"
#define LOW        "\xe2\x96\x81"
#define DS(words)  "<" BAR words BAR ">"
#define DSML(word) BAR "DSML" BAR word

/* In this order: a template may hold the signs of a later row as well. All must be there: those in
 * front in the template's text, the one behind in what it wrote of a call of the function "probe"
 * (chat_probe.c), since instructions and special cases in a template name forms that its model does
 * not use. */
enum { SHOWN = 2 };
static const struct sign {
    const char *has[SHOWN + 1];
    const char *format;
} signs[] = {
    {{"<|channel|>", "<|message|>"}, "harmony"},
    {{"<|tool_calls_section_begin|>"}, "kimi-k2"},
    {{DSML(""), "function_calls"}, "deepseek-v3.2"},
    {{"DSML", "tool_calls>"}, "deepseek-v4"},
    {{"DSML"}, "deepseek-v3.2"},
    {{[SHOWN] = "<tool_calls:opensource>"}, "hy3"},
    {{"<tool_sep{}>", "<arg_key{}>"}, "hy3"},
    {{"]<]minimax[>["}, "minimax-m3"},
    {{"<|open|>", "<|close|>"}, "kimi-k3"},
    {{"<|tool_call>call:"}, "gemma4"},
    {{"<|START_ACTION|>", "<|START_TEXT|>"}, "cohere2moe"},
    {{"<|START_ACTION|>"}, "cohere"},
    {{"<TOOLCALL>"}, "nemotron-nano-v2"},
    {{"<|tool_call_start|>"}, "lfm2"},
    {{"List of tools: ", "<|im_start|>"}, "lfm2"},
    {{"<|action_start|>", "<|plugin|>"}, "internlm2"},
    {{"functools["}, "phi4-mini"},
    {{"<tool_calls>", "[BEGIN FINAL RESPONSE]"}, "apriel"},
    {{"<tool_calls>", "<beginning_of_sentence>"}, "minimax-m1"},
    {{"<tool_calls>["}, "hunyuan"},
    {{[SHOWN] = "<function=probe>{"}, "functionary-v3.1"},
    {{"tool" LOW "calls" LOW "begin", "```json"}, "deepseek-v3"},
    {{"tool" LOW "calls" LOW "begin"}, "deepseek-v3.1"},
    {{"<role>ASSISTANT</role>", "<arg_key>"}, "ling3"},
    {{"<arg_key>"}, "glm"},
    {{"seed:tool_call>"}, "seed-oss"},
    {{"minimax:tool_call>"}, "minimax"},
    {{"<function=", "<parameter="}, "qwen3-coder"},
    {{"<|tools_prefix|>"}, "apertus"},
    {{"[TOOL_CALLS]", "[ARGS]"}, "mistral-args"},
    {{"[TOOL_CALLS]"}, "mistral"},
    {{"<|tool_call|>"}, "granite"},
    {{"<function_call> "}, "granite-20b-fc"},
    {{"<|function_call|>"}, "gigachat"},
    {{"<|tool_call:begin|>"}, "solar-open"},
    {{"<tool_call>"}, "hermes"},
    {{"<function=", "</function>"}, "functionary-v3.1"},
    {{[SHOWN] = "[probe(probe_key="}, "pythonic"},
    {{"<|python_start|>"}, "llama4"},
    {{"<|header_start|>", "\"parameters\": "}, "llama4"},
    {{"<|python_tag|>"}, "llama3"},
    {{"<|start_header_id|>", "\"parameters\": "}, "llama3"},
    {{[SHOWN] = "[{\"name\": \"probe\", \"arguments\": "}, "xlam"},
};

/* NULL: nothing is looked for. */
static bool holds(const char *text, size_t len, const char *what) {
    return !what || (len && memmem(text, len, what, strlen(what)) != NULL);
}

static bool knows(const struct sl_tokenizer *tok, const char *text) {
    return sl_tokenizer_find(tok, text, strlen(text)) != SL_NO_TOKEN;
}

const struct sl_answer_format *sl_answer_format_find(const struct sl_tokenizer *tok,
                                                     const char *text, size_t len,
                                                     const char *shown) {
    size_t n_shown = shown ? strlen(shown) : 0;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const struct sign *s = &signs[i];
        if (!holds(text, len, s->has[0]) || !holds(text, len, s->has[1]) ||
            !holds(shown, n_shown, s->has[SHOWN]))
            continue;
        /* Templates of newer models leave the separator to the tokenizer's own library. */
        if (strcmp(s->format, "mistral") == 0 && knows(tok, "[ARGS]"))
            return sl_answer_format_named("mistral-args");
        return sl_answer_format_named(s->format);
    }
    return sl_answer_format_at(0);
}

bool sl_answer_format_thinks(const struct sl_answer_format *f, const struct sl_tokenizer *tok,
                             const char *text, size_t len, const char *shown) {
    if (f->syntax == SL_CALL_HARMONY)
        return true;
    return f->think_open &&
           (holds(text, len, f->think_close) || (shown && strstr(shown, f->think_close)) ||
            (knows(tok, f->think_open) && knows(tok, f->think_close)));
}

static bool add_marker(const struct sl_tokenizer *tok, uint32_t id, struct sl_ids *out) {
    if (id == SL_NO_TOKEN || !sl_tokenizer_is_control(tok, id))
        return true;
    for (size_t k = 0; k < out->n; k++)
        if (out->ids[k] == id)
            return true;
    if (out->n == out->cap) {
        size_t cap = out->cap ? out->cap * 2 : 16;
        uint32_t *ids = realloc(out->ids, cap * sizeof *ids);
        if (!ids)
            return false;
        out->ids = ids;
        out->cap = cap;
    }
    out->ids[out->n++] = id;
    return true;
}

/* A marker may be a control token, or hold some, or be what stands between two of them. */
static bool add_markers_in(const struct sl_tokenizer *tok, const char *text, struct sl_ids *out) {
    size_t len = text ? strlen(text) : 0;
    for (size_t from = 0; from < len; from++)
        for (size_t n = 1; from + n <= len; n++)
            if (!add_marker(tok, sl_tokenizer_find(tok, text + from, n), out))
                return false;
    return true;
}

enum sl_status sl_answer_format_markers(const struct sl_answer_format *f,
                                        const struct sl_tokenizer *tok, struct sl_ids *out) {
    static const char *const harmony[] = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>",
                                          "<|constrain|>"};
    /* A closing tag that is a control token is seen whole or not at all. */
    const char *const own[] = {
        f->think_open,       f->think_close,   f->section_open, f->section_close, f->call_open,
        f->call_close,       f->separator,     f->name_before,  f->name_open,     f->name_close,
        f->function_close,   f->key_open,      f->key_close,    f->value_close,   f->quote,
        f->content_open,     f->content_close, f->answer_close, f->id_close,      "[CALL_ID]",
        DS("tool" LOW "sep")};
    bool is_harmony = f->syntax == SL_CALL_HARMONY;
    const char *const *texts = is_harmony ? harmony : own;
    size_t n = is_harmony ? sizeof harmony / sizeof *harmony : sizeof own / sizeof *own;
    for (size_t i = 0; i < n; i++)
        if (!add_markers_in(tok, texts[i], out)) {
            sl_ids_release(out);
            return SL_ERR_NOMEM;
        }
    return SL_OK;
}

static size_t trimmed(const char *text, size_t len) {
    while (len && (text[len - 1] == '\n' || text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    return len;
}

static bool ends_with(const char *text, size_t len, const char *what) {
    size_t n = what ? strlen(what) : 0;
    return n && len >= n && memcmp(text + len - n, what, n) == 0;
}

enum sl_answer_place sl_answer_place(const struct sl_answer_format *f, const char *prompt,
                                     size_t len) {
    len = trimmed(prompt, len);
    if (ends_with(prompt, len, f->think_open))
        return SL_ANSWER_IN_REASONING;
    return ends_with(prompt, len, f->think_close) ? SL_ANSWER_BEHIND_REASONING : SL_ANSWER_FRESH;
}

struct sl_str sl_answer_open_header(const struct sl_answer_format *f, const char *prompt,
                                    size_t len) {
    static const char start[] = "<|start|>";
    size_t n = sizeof start - 1;
    if (f->syntax != SL_CALL_HARMONY)
        return (struct sl_str){"", 0};
    for (size_t i = 0; i < 256 && len >= n + i; i++)
        if (memcmp(prompt + len - n - i, start, n) == 0)
            return (struct sl_str){prompt + len - n - i, n + i};
    return (struct sl_str){"", 0};
}
