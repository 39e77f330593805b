#include "model/chat/answer_format.h"

#include <stdlib.h>
#include <string.h>

/* U+FF5C and U+2581, as DeepSeek's tokens are written. */
#define BAR        "\xef\xbd\x9c"
#define LOW        "\xe2\x96\x81"
#define DS(words)  "<" BAR words BAR ">"
#define DSML(word) BAR "DSML" BAR word

#define THINK .think_open = "<think>", .think_close = "</think>"

/* Sources are the chat templates that the models' authors publish with the weights, unless said. */
static const struct sl_answer_format formats[] = {
    /* The fallback: Hermes' form, which the server describes to the model itself. */
    {.name = "generic",
     .syntax = SL_CALL_JSON,
     THINK,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .arguments_key = "arguments",
     .prompt_hint = "hermes"},
    /* NousResearch/Hermes-2-Pro-Llama-3-8B, tool_use template and model card; Qwen/Qwen2.5-7B,
     * Qwen/Qwen3-0.6B. */
    {.name = "hermes",
     .syntax = SL_CALL_JSON,
     THINK,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .arguments_key = "arguments"},
    /* Qwen/Qwen3-Coder-30B-A3B-Instruct. */
    {.name = "qwen3-coder",
     .syntax = SL_CALL_TAGGED,
     THINK,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .name_open = "<function=",
     .name_close = ">",
     .function_close = "</function>",
     .key_open = "<parameter=",
     .key_close = ">",
     .value_close = "</parameter>",
     .value_space = "\n",
     .optional_open = true},
    /* ByteDance-Seed/Seed-OSS-36B-Instruct. */
    {.name = "seed-oss",
     .syntax = SL_CALL_TAGGED,
     .think_open = "<seed:think>",
     .think_close = "</seed:think>",
     .call_open = "<seed:tool_call>",
     .call_close = "</seed:tool_call>",
     .name_open = "<function=",
     .name_close = ">",
     .function_close = "</function>",
     .key_open = "<parameter=",
     .key_close = ">",
     .value_close = "</parameter>"},
    /* meta-llama/Llama-3.1-8B-Instruct; llama-models, models/llama3_1/prompt_format.md. */
    {.name = "llama3",
     .syntax = SL_CALL_JSON,
     .call_open = "<|python_tag|>",
     .bare = true,
     .one_call = true,
     .arguments_key = "parameters"},
    /* mistralai/Mistral-Nemo-Instruct-2407; mistral-common, instruct tokenizers v3 to v7. */
    {.name = "mistral",
     .syntax = SL_CALL_JSON,
     .think_open = "[THINK]",
     .think_close = "[/THINK]",
     .call_open = "[TOOL_CALLS]",
     .array = true,
     .short_ids = true,
     .arguments_key = "arguments"},
    /* mistralai/Magistral-Small-2509, mistralai/Devstral-Small-2507; mistral-common, v11 and v13.
     */
    {.name = "mistral-args",
     .syntax = SL_CALL_NAMED,
     .think_open = "[THINK]",
     .think_close = "[/THINK]",
     .call_open = "[TOOL_CALLS]",
     .separator = "[ARGS]",
     .short_ids = true},
    /* deepseek-ai/DeepSeek-V3, deepseek-ai/DeepSeek-R1-0528. */
    {.name = "deepseek-v3",
     .syntax = SL_CALL_NAMED,
     THINK,
     .section_open = DS("tool" LOW "calls" LOW "begin"),
     .section_close = DS("tool" LOW "calls" LOW "end"),
     .call_open = DS("tool" LOW "call" LOW "begin"),
     .call_close = DS("tool" LOW "call" LOW "end"),
     .name_before = "function" DS("tool" LOW "sep"),
     .separator = "\n",
     .fence = "```json\n",
     .fence_close = "```"},
    /* deepseek-ai/DeepSeek-V3.1. */
    {.name = "deepseek-v3.1",
     .syntax = SL_CALL_NAMED,
     THINK,
     .section_open = DS("tool" LOW "calls" LOW "begin"),
     .section_close = DS("tool" LOW "calls" LOW "end"),
     .call_open = DS("tool" LOW "call" LOW "begin"),
     .call_close = DS("tool" LOW "call" LOW "end"),
     .separator = DS("tool" LOW "sep")},
    /* deepseek-ai/DeepSeek-V3.2, encoding folder of the model's repository. */
    {.name = "deepseek-v3.2",
     .syntax = SL_CALL_TAGGED,
     THINK,
     .section_open = "<" DSML("function_calls>"),
     .section_close = "</" DSML("function_calls>"),
     .name_open = "<" DSML("invoke name=\""),
     .name_close = "\">",
     .function_close = "</" DSML("invoke>"),
     .key_open = "<" DSML("parameter name=\""),
     .key_close = "\" string=\"%\">",
     .value_close = "</" DSML("parameter>"),
     .typed = true},
    /* deepseek-ai/DeepSeek-V4: the same with another name for the section. */
    {.name = "deepseek-v4",
     .syntax = SL_CALL_TAGGED,
     THINK,
     .section_open = "<" DSML("tool_calls>"),
     .section_close = "</" DSML("tool_calls>"),
     .name_open = "<" DSML("invoke name=\""),
     .name_close = "\">",
     .function_close = "</" DSML("invoke>"),
     .key_open = "<" DSML("parameter name=\""),
     .key_close = "\" string=\"%\">",
     .value_close = "</" DSML("parameter>"),
     .typed = true},
    /* zai-org/GLM-4.5, zai-org/GLM-4.6. */
    {.name = "glm",
     .syntax = SL_CALL_TAGGED,
     THINK,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .key_open = "<arg_key>",
     .key_close = "</arg_key>%<arg_value>",
     .value_close = "</arg_value>"},
    /* MiniMaxAI/MiniMax-M2, docs/tool_calling_guide.md. */
    {.name = "minimax",
     .syntax = SL_CALL_TAGGED,
     THINK,
     .section_open = "<minimax:tool_call>",
     .section_close = "</minimax:tool_call>",
     .name_open = "<invoke name=\"",
     .name_close = "\">",
     .function_close = "</invoke>",
     .key_open = "<parameter name=\"",
     .key_close = "\">",
     .value_close = "</parameter>"},
    /* moonshotai/Kimi-K2-Instruct, docs/tool_call_guidance.md. */
    {.name = "kimi-k2",
     .syntax = SL_CALL_NAMED,
     THINK,
     .section_open = "<|tool_calls_section_begin|>",
     .section_close = "<|tool_calls_section_end|>",
     .call_open = "<|tool_call_begin|>",
     .call_close = "<|tool_call_end|>",
     .separator = "<|tool_call_argument_begin|>",
     .name_before = "functions."},
    /* ibm-granite/granite-3.3-2b-instruct. */
    {.name = "granite",
     .syntax = SL_CALL_JSON,
     THINK,
     .call_open = "<|tool_call|>",
     .array = true,
     .arguments_key = "arguments"},
    /* swiss-ai/Apertus-8B-Instruct-2509. */
    {.name = "apertus",
     .syntax = SL_CALL_JSON_KEYED,
     .think_open = "<|inner_prefix|>",
     .think_close = "<|inner_suffix|>",
     .call_open = "<|tools_prefix|>",
     .call_close = "<|tools_suffix|>",
     .array = true},
    /* openai/gpt-oss-120b; OpenAI cookbook, "OpenAI harmony response format". */
    {.name = "harmony", .syntax = SL_CALL_HARMONY, .one_call = true},
};
#define N_FORMATS (sizeof formats / sizeof *formats)

/* In this order: a template may hold the signs of a later row as well. All of `has` must be there.
 */
static const struct sign {
    const char *has[2];
    const char *format;
} signs[] = {
    {{"<|channel|>", "<|message|>"}, "harmony"},
    {{"<|tool_calls_section_begin|>"}, "kimi-k2"},
    {{DSML(""), "function_calls"}, "deepseek-v3.2"},
    {{"DSML", "tool_calls>"}, "deepseek-v4"},
    {{"DSML"}, "deepseek-v3.2"},
    {{"tool" LOW "calls" LOW "begin", "```json"}, "deepseek-v3"},
    {{"tool" LOW "calls" LOW "begin"}, "deepseek-v3.1"},
    {{"<arg_key>"}, "glm"},
    {{"seed:tool_call>"}, "seed-oss"},
    {{"minimax:tool_call>"}, "minimax"},
    {{"<function=", "<parameter="}, "qwen3-coder"},
    {{"<|tools_prefix|>"}, "apertus"},
    {{"[TOOL_CALLS]", "[ARGS]"}, "mistral-args"},
    {{"[TOOL_CALLS]"}, "mistral"},
    {{"<|tool_call|>"}, "granite"},
    {{"<tool_call>"}, "hermes"},
    {{"<|python_tag|>"}, "llama3"},
    {{"<|start_header_id|>", "\"parameters\": "}, "llama3"},
};

const struct sl_answer_format *sl_answer_format_at(uint32_t n) {
    return n < N_FORMATS ? &formats[n] : NULL;
}

const struct sl_answer_format *sl_answer_format_named(const char *name) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

static bool holds(const char *text, size_t len, const char *what) {
    return len && memmem(text, len, what, strlen(what)) != NULL;
}

static bool knows(const struct sl_tokenizer *tok, const char *text) {
    return sl_tokenizer_find(tok, text, strlen(text)) != SL_NO_TOKEN;
}

const struct sl_answer_format *sl_answer_format_find(const struct sl_tokenizer *tok,
                                                     const char *text, size_t len) {
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const struct sign *s = &signs[i];
        if (!holds(text, len, s->has[0]) || (s->has[1] && !holds(text, len, s->has[1])))
            continue;
        /* Templates of newer models leave the separator to the tokenizer's own library. */
        if (strcmp(s->format, "mistral") == 0 && knows(tok, "[ARGS]"))
            return sl_answer_format_named("mistral-args");
        return sl_answer_format_named(s->format);
    }
    return &formats[0];
}

bool sl_answer_format_thinks(const struct sl_answer_format *f, const struct sl_tokenizer *tok,
                             const char *text, size_t len) {
    if (f->syntax == SL_CALL_HARMONY)
        return true;
    return f->think_open && (holds(text, len, f->think_close) ||
                             (knows(tok, f->think_open) && knows(tok, f->think_close)));
}

enum sl_status sl_answer_format_markers(const struct sl_answer_format *f,
                                        const struct sl_tokenizer *tok, struct sl_ids *out) {
    static const char *const harmony[] = {"<|start|>", "<|end|>", "<|message|>", "<|channel|>",
                                          "<|constrain|>"};
    /* A closing tag that is a control token is seen whole or not at all. */
    const char *const own[] = {
        f->think_open,  f->think_close, f->section_open,     f->section_close,  f->call_open,
        f->call_close,  f->separator,   f->name_open,        f->function_close, f->key_open,
        f->value_close, "<" DSML(""),   "</" DSML(""),       DSML(""),          "[CALL_ID]",
        "<arg_value>",  "</arg_key>",   DS("tool" LOW "sep")};
    bool is_harmony = f->syntax == SL_CALL_HARMONY;
    const char *const *texts = is_harmony ? harmony : own;
    size_t n = is_harmony ? sizeof harmony / sizeof *harmony : sizeof own / sizeof *own;
    out->ids = malloc(n * sizeof *out->ids);
    if (!out->ids)
        return SL_ERR_NOMEM;
    out->cap = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = texts[i] ? sl_tokenizer_find(tok, texts[i], strlen(texts[i])) : SL_NO_TOKEN;
        bool has = id == SL_NO_TOKEN || !sl_tokenizer_is_control(tok, id);
        for (size_t k = 0; k < out->n && !has; k++)
            has = out->ids[k] == id;
        if (!has)
            out->ids[out->n++] = id;
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
