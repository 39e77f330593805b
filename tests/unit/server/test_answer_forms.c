/* Chat templates of many forms: each finds its family, and what it writes of a model's earlier
 * calls is read back as the same calls. */
#include "tests/unit/server/fake_engine.c"

#include "model/chat/chat.h"
#include "server/answer/splitter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define OWN       "tests/templates/forms"
#define PUBLISHED "../shared/testdata/templates"
#define PEERS     "build/peer/src/models/templates" /* with make peer */

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather.\"," \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","           \
    "\"description\":\"Where.\"},\"days\":{\"type\":\"integer\",\"description\":\"How long.\"},"   \
    "\"metric\":{\"type\":\"boolean\",\"description\":\"Celsius.\"},\"parts\":{\"type\":"          \
    "\"array\",\"items\":{\"type\":\"string\"},\"description\":\"Of the day.\"},\"at\":{"          \
    "\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"},\"note\":{\"type\":"         \
    "\"string\"}},\"description\":\"Place.\"}},\"required\":[\"city\"]}}}]"
#define SIMPLE "{\"city\": \"Rome\"}"
#define RICH                                                                                       \
    "{\"city\": \"San Jos\xc3\xa9, \\\"CA\\\"\", \"days\": 3, \"metric\": true, \"parts\": "       \
    "[\"day\", \"2\"], \"at\": {\"x\": -4, \"note\": \"17\"}}"

static const struct form {
    const char *folder, *file, *family;
    bool thinks;
    uint32_t n_calls;      /* that its history takes in one message */
    const char *arguments; /* that its history writes in a form of its own and loses nothing of */
} forms[] = {
    {OWN, "functionary-v3.1.jinja", "functionary-v3.1", false, 2, RICH},
    {OWN, "apriel.jinja", "apriel", true, 2, RICH},
    {OWN, "minimax-m1.jinja", "minimax-m1", false, 2, RICH},
    {OWN, "minimax-m3.jinja", "minimax-m3", true, 2, RICH},
    {OWN, "hy3.jinja", "hy3", true, 2, RICH},
    {OWN, "ling3.jinja", "ling3", true, 2, RICH},
    {OWN, "hunyuan.jinja", "hunyuan", true, 2, RICH},
    {OWN, "kimi-k3.jinja", "kimi-k3", true, 2, RICH},
    {OWN, "gemma4.jinja", "gemma4", true, 2, RICH},
    {OWN, "command-r7b.jinja", "cohere", true, 2, RICH},
    {OWN, "cohere2moe.jinja", "cohere2moe", true, 2, RICH},
    {OWN, "llama4.jinja", "llama4", false, 2, RICH},
    {OWN, "pythonic.jinja", "pythonic", false, 2, RICH},
    /* It writes values of earlier calls without their quotes, so they are not read back. */
    {OWN, "toolace.jinja", "pythonic", false, 0, NULL},
    {OWN, "lfm2.jinja", "lfm2", true, 2, RICH},
    {OWN, "lfm2-text.jinja", "lfm2", false, 0, NULL},
    {OWN, "nemotron-nano-v2.jinja", "nemotron-nano-v2", true, 2, RICH},
    {OWN, "phi4-mini.jinja", "phi4-mini", false, 2, RICH},
    {OWN, "xlam.jinja", "xlam", false, 2, RICH},
    {OWN, "internlm2.jinja", "internlm2", false, 2, RICH},
    {OWN, "granite-20b-fc.jinja", "granite-20b-fc", false, 2, RICH},
    {OWN, "solar-open.jinja", "solar-open", true, 2, RICH},
    {OWN, "gigachat.jinja", "gigachat", false, 1, RICH},
    {PUBLISHED, "Apertus-8B-Instruct.jinja", "apertus", true, 2, RICH},
    {PUBLISHED, "ByteDance-Seed-OSS.jinja", "seed-oss", true, 2, SIMPLE},
    {PUBLISHED, "GLM-4.6.jinja", "glm", true, 2, RICH},
    {PUBLISHED, "Kimi-K2-Instruct.jinja", "kimi-k2", false, 2, RICH},
    {PUBLISHED, "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "hermes", false, 2, RICH},
    {PUBLISHED, "Qwen-Qwen2.5-7B-Instruct.jinja", "hermes", false, 2, RICH},
    {PUBLISHED, "Qwen-Qwen3-0.6B.jinja", "hermes", true, 2, RICH},
    {PUBLISHED, "Qwen3-Coder.jinja", "qwen3-coder", false, 2, RICH},
    {PUBLISHED, "deepseek-ai-DeepSeek-V3.1.jinja", "deepseek-v3.1", true, 2, RICH},
    {PUBLISHED, "deepseek-ai-DeepSeek-V4.jinja", "deepseek-v4", true, 2, RICH},
    {PUBLISHED, "google-gemma-2-2b-it.jinja", "generic", false, 0, NULL},
    {PUBLISHED, "ibm-granite-granite-3.3-2B-Instruct.jinja", "granite", true, 0, NULL},
    {PUBLISHED, "meetkai-functionary-medium-v3.2.jinja", "generic", false, 0, NULL},
    {PUBLISHED, "meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3", false, 1, RICH},
    {PUBLISHED, "mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral", false, 2, RICH},
    {PUBLISHED, "openai-gpt-oss-120b.jinja", "harmony", true, 0, NULL},
    {PEERS, "Apriel-1.6-15b-Thinker-fixed.jinja", "apriel", true, 2, RICH},
    {PEERS, "unsloth-Apriel-1.5.jinja", "apriel", true, 2, RICH},
    {PEERS, "Cohere2MoE.jinja", "cohere2moe", true, 2, RICH},
    {PEERS, "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "cohere", true, 2, RICH},
    {PEERS, "GLM-4.7-Flash.jinja", "glm", true, 2, RICH},
    {PEERS, "GigaChat3.1-10B-A1.8B.jinja", "gigachat", false, 1, RICH},
    {PEERS, "Kimi-K2-Thinking.jinja", "kimi-k2", true, 2, RICH},
    {PEERS, "Kimi-K3.jinja", "kimi-k3", true, 2, RICH},
    {PEERS, "LFM2.5-8B-A1B.jinja", "lfm2", true, 2, RICH},
    {PEERS, "MiniMax-M1.jinja", "minimax-m1", false, 2, RICH},
    {PEERS, "MiniMax-M2.jinja", "minimax", true, 2, RICH},
    {PEERS, "MiniMax-M3.jinja", "minimax-m3", true, 2, RICH},
    {PEERS, "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", "qwen3-coder", true, 2, RICH},
    {PEERS, "NVIDIA-Nemotron-Nano-v2.jinja", "nemotron-nano-v2", true, 2, RICH},
    {PEERS, "Qwen3.5-4B.jinja", "qwen3-coder", true, 2, RICH},
    {PEERS, "StepFun3.5-Flash.jinja", "qwen3-coder", true, 2, RICH},
    {PEERS, "deepseek-ai-DeepSeek-V3.2.jinja", "deepseek-v3.2", true, 2, RICH},
    {PEERS, "google-gemma-4-31B-it.jinja", "gemma4", true, 2, RICH},
    {PEERS, "ibm-granite-granite-4.0.jinja", "hermes", false, 2, RICH},
    {PEERS, "inclusionai-ling-3.0-flash.jinja", "ling3", true, 2, RICH},
    {PEERS, "meetkai-functionary-medium-v3.1.jinja", "functionary-v3.1", false, 2, RICH},
    {PEERS, "mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral-args", true, 2, RICH},
    {PEERS, "poolside-Laguna-XS.2.jinja", "glm", true, 2, RICH},
    {PEERS, "upstage-Solar-Open-100B.jinja", "solar-open", true, 2, RICH},
    {PEERS, "tencent-Hy3.jinja", "hy3", true, 2, RICH},
};

static char *read_file(const char *folder, const char *name, size_t *out_len) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 65536);
    assert_non_null(text);
    *out_len = f ? fread(text, 1, 65535, f) : 0;
    if (f)
        fclose(f);
    return text;
}

static json_t *parse(const char *text) {
    json_t *v = json_loads(text, 0, NULL);
    assert_non_null(v);
    return v;
}

static char *render(const struct sl_chat *c, json_t *messages, const json_t *tools, bool generate) {
    struct sl_chat_vars vars;
    struct sl_err err;
    char *text = NULL;
    size_t len;
    assert_true(sl_chat_apply_form(&c->form, messages));
    assert_true(sl_chat_vars_init(c, messages, tools, NULL, generate, &vars));
    if (sl_template_render(c->template, vars.all, &sl_template_default_limits, &text, &len, &err) !=
        SL_OK)
        fail_msg("%s", err.text);
    sl_chat_vars_release(&vars);
    return text;
}

static json_t *conversation(const char *arguments, uint32_t n_calls) {
    json_t *m = parse("[{\"role\":\"user\",\"content\":\"Rome?\"}]"), *calls = json_array();
    char id[] = "abcdefgh0";
    for (uint32_t i = 0; i < n_calls; i++, id[8]++)
        json_array_append_new(calls,
                              json_pack("{s:s,s:s,s:{s:s,s:s}}", "id", id, "type", "function",
                                        "function", "name", "get_weather", "arguments", arguments));
    if (n_calls)
        json_array_append_new(
            m, json_pack("{s:s,s:n,s:o}", "role", "assistant", "content", "tool_calls", calls));
    else
        json_decref(calls);
    return m;
}

struct reading {
    struct sl_buf arguments[4];
    uint32_t n_calls;
};

static void note(void *ctx, const struct sl_part *p) {
    struct reading *r = ctx;
    if (p->kind == SL_PART_CALL) {
        assert_true(r->n_calls < 4);
        assert_memory_equal(p->text.ptr, "get_weather", p->text.len);
        r->n_calls++;
    }
    if (p->kind == SL_PART_ARGUMENTS)
        sl_buf_put(&r->arguments[p->call], p->text.ptr, p->text.len);
}

/* The model's turn as the template writes it, read as if the model had just written it. */
static void reads_back(const struct form *f, const struct sl_chat *c,
                       const struct sl_answer_format *format, bool thinks, const json_t *tools) {
    json_t *before = conversation(f->arguments, 0), *with = conversation(f->arguments, f->n_calls);
    char *prompt = render(c, before, tools, true), *whole = render(c, with, tools, false);
    size_t same = 0;
    while (prompt[same] && prompt[same] == whole[same])
        same++;
    while (same && !strchr(">]\n", whole[same - 1])) /* markers may begin alike */
        same--;
    struct reading r = {0};
    struct sl_splitter *s = NULL;
    struct sl_splitter_config config = {.format = format,
                                        .tools = tools,
                                        .thinks = thinks,
                                        .in_reasoning = sl_answer_place(format, prompt, same) ==
                                                        SL_ANSWER_IN_REASONING,
                                        .hold_calls = true};
    assert_int_equal(sl_splitter_create(&config, note, &r, &s), SL_OK);
    assert_int_equal(sl_splitter_push(s, whole + same, strlen(whole + same)), SL_OK);
    assert_int_equal(sl_splitter_finish(s, false), SL_OK);
    sl_splitter_destroy(&s);
    if (r.n_calls != f->n_calls)
        fail_msg("%s: %u calls in %s", f->file, r.n_calls, whole + same);
    json_t *want = parse(f->arguments);
    for (uint32_t i = 0; i < r.n_calls; i++) {
        json_t *got = json_loadb(r.arguments[i].ptr, r.arguments[i].len, 0, NULL);
        if (!json_equal(got, want))
            fail_msg("%s: %.*s from %s", f->file, (int)r.arguments[i].len, r.arguments[i].ptr,
                     whole + same);
        json_decref(got);
        sl_buf_release(&r.arguments[i]);
    }
    json_decref(want);
    json_decref(before);
    json_decref(with);
    free(prompt);
    free(whole);
}

static void check(const struct form *f, const char *text, size_t len) {
    struct sl_tokenizer tok;
    struct sl_chat c;
    struct sl_err err;
    fake_tokenizer_init(&tok);
    assert_int_equal(sl_chat_init(&c, &tok, text, len, NULL, &err), SL_OK);
    if (!c.template)
        fail_msg("%s: %s", f->file, c.template_err.text);
    const struct sl_answer_format *format = sl_answer_format_find(&tok, text, len, c.shown);
    bool thinks = sl_answer_format_thinks(format, &tok, text, len, c.shown);
    if (strcmp(format->name, f->family) != 0)
        fail_msg("%s is of the family %s", f->file, format->name);
    if (thinks != f->thinks)
        fail_msg("%s thinks, or not", f->file);
    json_t *tools = parse(TOOLS);
    if (f->n_calls)
        reads_back(f, &c, format, thinks, tools);
    json_decref(tools);
    sl_chat_release(&c);
}

static void of_folder(const char *folder) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].folder, folder) != 0)
            continue;
        size_t len;
        char *text = read_file(folder, forms[i].file, &len);
        if (!len) {
            free(text);
            if (strcmp(folder, OWN) == 0)
                fail_msg("%s/%s is not there", folder, forms[i].file);
            print_message("%s is not there\n", folder);
            skip();
        }
        check(&forms[i], text, len);
        free(text);
    }
}

static void own_templates(void **state) {
    (void)state;
    of_folder(OWN);
}

static void published_templates(void **state) {
    (void)state;
    of_folder(PUBLISHED);
}

static void templates_of_llama_cpp(void **state) {
    (void)state;
    of_folder(PEERS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_templates),
        cmocka_unit_test(templates_of_llama_cpp),
        cmocka_unit_test(published_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
