/* Tools through the server: the templates of published models find their family and take a
 * conversation with calls, and answers of a scripted engine come out as reasoning and calls. */
#include "harness.h"

#include "model/chat/answer_format.h"
#include "server/request/tools.h"

#include <stdio.h>

#define TEMPLATES "../shared/testdata/templates"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":"    \
    "\"Tells the weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"         \
    "\"type\":\"string\",\"description\":\"Where\"},\"days\":{\"type\":\"integer\","               \
    "\"description\":\"How long\"}},\"required\":[\"city\"]}}}]"

static char *read_file(const char *name, size_t *out_len) {
    char path[256];
    snprintf(path, sizeof path, TEMPLATES "/%s", name);
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 65536);
    *out_len = f ? fread(text, 1, 65535, f) : 0;
    if (f)
        fclose(f);
    return text;
}

static const struct {
    const char *file, *family;
    bool thinks;
} published[] = {
    {"ByteDance-Seed-OSS.jinja", "seed-oss", true},
    {"GLM-4.6.jinja", "glm", true},
    {"Kimi-K2-Instruct.jinja", "kimi-k2", false},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "hermes", false},
    {"Qwen-Qwen2.5-7B-Instruct.jinja", "hermes", false},
    {"Qwen-Qwen3-0.6B.jinja", "hermes", true},
    {"Qwen3-Coder.jinja", "qwen3-coder", false},
    {"deepseek-ai-DeepSeek-V3.1.jinja", "deepseek-v3.1", true},
    {"deepseek-ai-DeepSeek-V4.jinja", "deepseek-v4", true},
    {"google-gemma-2-2b-it.jinja", "generic", false},
    {"ibm-granite-granite-3.3-2B-Instruct.jinja", "granite", true},
    {"meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3", false},
    {"mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral", false},
    {"openai-gpt-oss-120b.jinja", "harmony", true},
};

static void published_templates(void **state) {
    (void)state;
    fake_tokenizer_init(&tok);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        size_t len;
        char *text = read_file(published[i].file, &len);
        if (!len) {
            free(text);
            print_message("%s is not there\n", TEMPLATES);
            skip();
        }
        const struct sl_answer_format *f = sl_answer_format_find(&tok, text, len, NULL);
        if (strcmp(f->name, published[i].family) != 0)
            fail_msg("%s is of the family %s", published[i].file, f->name);
        if (sl_answer_format_thinks(f, &tok, text, len, NULL) != published[i].thinks)
            fail_msg("%s thinks, or not", published[i].file);
        start(text);
        struct reply r = client_post(
            "/apply-template",
            "{" TOOLS ",\"messages\":[{\"role\":\"user\",\"content\":\"Rome?\"},{\"role\":"
            "\"assistant\",\"content\":null,\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":"
            "\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
            "\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\","
            "\"tool_call_id\":\"call_1\",\"content\":\"sunny all day\"}]}");
        if (r.status != 200)
            fail_msg("%s: %.400s", published[i].file, r.body);
        assert_non_null(strstr(r.body, "get_weather"));
        if (!strstr(r.body, "sunny all day") || !strstr(r.body, "Rome"))
            fail_msg("%s: %.3000s", published[i].file, r.body);
        if (strstr(r.body, "None"))
            fail_msg("%s writes absent text out: %.3000s", published[i].file, r.body);
        reply_free(&r);
        stop();
        free(text);
    }
}

/* The script of a text: control tokens where the vocabulary has them, then the end. */
static uint32_t encode(const char *text, uint32_t *out) {
    uint32_t n = 0;
    for (size_t i = 0, len = strlen(text); i < len;) {
        uint32_t id = (unsigned char)text[i];
        size_t taken = 1;
        for (uint32_t w = 0; w < tok.n_words; w++)
            if (strncmp(text + i, tok.words[w], strlen(tok.words[w])) == 0) {
                id = FAKE_WORDS + w;
                taken = strlen(tok.words[w]);
            }
        out[n++] = id;
        i += taken;
    }
    out[n++] = FAKE_EOS;
    return n;
}

/* The message of a whole answer, or of a stream put together. */
static json_t *message_of(const struct reply *r, bool stream, char *reason) {
    json_t *all = json_pack("{s:s,s:s,s:[]}", "content", "", "reasoning_content", "", "tool_calls");
    const char *p = r->body;
    if (!stream) {
        json_t *v = json_loadb(r->body, r->body_len, 0, NULL);
        json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
        snprintf(reason, 32, "%s", json_string_value(json_object_get(choice, "finish_reason")));
        json_object_update(all, json_object_get(choice, "message"));
        json_decref(v);
        return all;
    }
    while ((p = strstr(p, "data: {")) != NULL) {
        const char *end = strstr(p, "\n\n");
        json_t *v = json_loadb(p + 6, (size_t)(end - p - 6), 0, NULL);
        json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
        json_t *delta = json_object_get(choice, "delta"),
               *calls = json_object_get(all, "tool_calls");
        static const char *const texts[] = {"content", "reasoning_content"};
        for (size_t i = 0; i < 2; i++) {
            const char *more = json_string_value(json_object_get(delta, texts[i]));
            if (more)
                json_object_set_new(
                    all, texts[i],
                    json_sprintf("%s%s", json_string_value(json_object_get(all, texts[i])), more));
        }
        json_t *call = json_array_get(json_object_get(delta, "tool_calls"), 0);
        json_t *f = json_object_get(call, "function");
        if (json_object_get(call, "id"))
            json_array_append(calls, call);
        else if (call) {
            json_t *to =
                json_object_get(json_array_get(calls, json_array_size(calls) - 1), "function");
            const char *so_far = json_string_value(json_object_get(to, "arguments"));
            json_object_set_new(
                to, "arguments",
                json_sprintf("%s%s", so_far, json_string_value(json_object_get(f, "arguments"))));
        }
        const char *why = json_string_value(json_object_get(choice, "finish_reason"));
        if (why)
            snprintf(reason, 32, "%s", why);
        json_decref(v);
        p = end;
    }
    return all;
}

static const char *text_of(const json_t *message, const char *key) {
    const char *s = json_string_value(json_object_get(message, key));
    return s ? s : "";
}

struct answer {
    const char *template, *text;
    bool without_tools;
    const char *reasoning, *content, *name, *arguments, *reason;
};

static void check_answer(const struct answer *a, bool stream) {
    static uint32_t script[1024];
    char reason[32] = "", body[2048];
    start(a->template);
    engine->n_script = encode(a->text, script);
    engine->script = script;
    snprintf(body, sizeof body,
             "{\"stream\":%s,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]%s%s}",
             stream ? "true" : "false", a->without_tools ? "" : ",", a->without_tools ? "" : TOOLS);
    struct reply r = client_post(CHAT, body);
    if (r.status != 200)
        fail_msg("%.400s", r.body);
    json_t *m = message_of(&r, stream, reason);
    json_t *call = json_array_get(json_object_get(m, "tool_calls"), 0);
    json_t *f = json_object_get(call, "function");
    assert_string_equal(text_of(m, "reasoning_content"), a->reasoning);
    assert_string_equal(text_of(m, "content"), a->content);
    assert_string_equal(text_of(f, "name"), a->name ? a->name : "");
    assert_string_equal(text_of(f, "arguments"), a->name ? a->arguments : "");
    assert_string_equal(reason, a->reason);
    json_decref(m);
    reply_free(&r);
    stop();
}

#define PLAIN(sign, tail) "{# " sign " #}{{ messages[0].content }}" tail
#define ARGS              "{\"city\": \"Rome\"}"

static void scripted_answers(void **state) {
    (void)state;
    static const char *const markers[] = {"<|channel|>",
                                          "<|message|>",
                                          "<|start|>",
                                          "<|constrain|>",
                                          "<|tool_call_begin|>",
                                          "<|tool_call_end|>",
                                          "<|tool_call_argument_begin|>",
                                          "<|tool_calls_section_begin|>",
                                          "<|tool_calls_section_end|>",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "<|unknown|>"};
    static const struct answer answers[] = {
        {PLAIN("<tool_call> </think>", "<think>\n"),
         "\nhm\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " ARGS
         "}\n</tool_call>",
         false, "hm", "", "get_weather", ARGS, "tool_calls"},
        {PLAIN("<tool_call> </think>", ""), "<think>a</think>b", true, "a", "b", NULL, NULL,
         "stop"},
        {PLAIN("<tool_call>", ""), "x <tool_call>{\"name\": \"get_weather\"}</tool_call>", true, "",
         "x <tool_call>{\"name\": \"get_weather\"}</tool_call>", NULL, NULL, "stop"},
        {PLAIN("<tool_call>", ""), "<tool_call>\n{\"name\": oops}\n</tool_call>", false, "",
         "<tool_call>\n{\"name\": oops}\n</tool_call>", NULL, NULL, "stop"},
        /* Markers that are control tokens, which text would not show. */
        {PLAIN("<|channel|> <|message|>", "<|start|>assistant"),
         "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.get_weather <|constrain|>json<|message|>" ARGS,
         false, "hm", "", "get_weather", ARGS, "tool_calls"},
        {PLAIN("<|channel|> <|message|>", "<|start|>assistant"),
         "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>hi",
         true, "hm", "hi", NULL, NULL, "stop"},
        {PLAIN("<|tool_calls_section_begin|>", ""),
         "I look<|unknown|>.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
         "<|tool_call_argument_begin|>" ARGS "<|tool_call_end|><|tool_calls_section_end|>",
         false, "", "I look.", "get_weather", ARGS, "tool_calls"},
        {PLAIN("[TOOL_CALLS]", ""), "[TOOL_CALLS]get_weather[ARGS]" ARGS, false, "", "",
         "get_weather", ARGS, "tool_calls"},
        /* Without tools control tokens stay hidden, as always. */
        {PLAIN("[TOOL_CALLS]", ""), "a[TOOL_CALLS]b", true, "", "ab", NULL, NULL, "stop"},
        /* No sign: the server's own form. */
        {"{{ messages[0].content }}",
         "<tool_call>{\"name\": \"get_weather\", \"arguments\": " ARGS "}</tool_call>", false, "",
         "", "get_weather", ARGS, "tool_calls"},
    };
    fake_tokenizer_init(&tok);
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
        fake_control_word(&tok, markers[i]);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        for (int stream = 0; stream < 2; stream++)
            check_answer(&answers[i], stream);
}

/* One limit under the names of several APIs: the reasoning is closed, and the answer goes on. */
static void reasoning_budgets(void **state) {
    (void)state;
    static const struct {
        const char *path, *field;
        int status;
    } cases[] = {
        {CHAT, "\"reasoning_budget\":3", 200},
        {CHAT, "\"thinking_budget_tokens\":3", 200},
        {CHAT, "\"reasoning_budget\":-1", 0},
        {"/v1/messages", "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":3}", 200},
        {"/v1/completions", "\"prompt\":\"x\",\"reasoning_budget\":3", 400},
    };
    static uint32_t script[64];
    char body[512];
    fake_tokenizer_init(&tok);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start(PLAIN("<tool_call> </think>", "<think>\n"));
        engine->binds = true;
        engine->n_script = encode("abcdefgh", script);
        engine->script = script;
        snprintf(body, sizeof body,
                 "{\"model\":\"test-model\",\"max_tokens\":20,"
                 "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}",
                 cases[i].field);
        struct reply r = client_post(cases[i].path, body);
        assert_int_equal(r.status, cases[i].status ? cases[i].status : 200);
        if (cases[i].status == 200 && !(strstr(r.body, "\"abc\"") && strstr(r.body, "\"defgh")))
            fail_msg("%s: %s", cases[i].field, r.body);
        if (!cases[i].status)
            assert_non_null(strstr(r.body, "\"abcdefgh\""));
        if (cases[i].status == 400)
            assert_non_null(strstr(r.body, "'reasoning_budget'"));
        reply_free(&r);
        stop();
    }
}

/* As the model writes it, with and without tools. */
static void raw_reasoning(void **state) {
    (void)state;
    static uint32_t script[64];
    fake_tokenizer_init(&tok);
    fake_control_word(&tok, "</think>");
    for (int with_tools = 0; with_tools < 2; with_tools++) {
        char reason[32] = "", body[1024];
        start(PLAIN("<tool_call> </think>", "<think>\n"));
        engine->n_script = encode("hm</think>hi", script);
        engine->script = script;
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                 "\"reasoning_format\":\"none\"%s%s}",
                 with_tools ? "," : "", with_tools ? TOOLS : "");
        struct reply r = client_post(CHAT, body);
        json_t *m = message_of(&r, false, reason);
        assert_string_equal(text_of(m, "content"), "hm</think>hi");
        assert_string_equal(text_of(m, "reasoning_content"), "");
        json_decref(m);
        reply_free(&r);
        stop();
    }
}

static void expect_told(const char *given, const char *want) {
    json_t *got = json_loads(given, 0, NULL), *wanted = json_loads(want, 0, NULL);
    assert_true(got && wanted && sl_tools_as_text(got, NULL, false));
    if (!json_equal(got, wanted))
        json_dumpf(got, stderr, 0);
    assert_true(json_equal(got, wanted));
    json_decref(got);
    json_decref(wanted);
}

#define ROLE(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define RESPONSE(text)   "<tool_response>\\n" text "\\n</tool_response>"
#define CALLING                                                                                    \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}"
#define CALLED                                                                                     \
    ROLE("assistant",                                                                              \
         "<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}\\n</tool_call>")

static void results_as_text(void **state) {
    (void)state;
    expect_told("[]", "[]");
    expect_told(
        "[" ROLE("user", "q") "," CALLING "," ROLE("tool", "a") "," ROLE("function", "b") "," ROLE(
            "user", "c") "," ROLE("user", "d") "," CALLING "," ROLE("tool", "e") "]",
        "[" ROLE("user", "q") "," CALLED
                              "," ROLE("user", RESPONSE("a") "\\n" RESPONSE("b") "\\nc") "," ROLE(
                                  "user", "d") "," CALLED "," ROLE("user", RESPONSE("e")) "]");
    expect_told("[" ROLE("tool", "a") "," ROLE("tool", "b") "," CALLING "," ROLE(
                    "tool", "") "," ROLE("user", "c") "," ROLE("tool", "d") "]",
                "[" ROLE("user", RESPONSE("a") "\\n" RESPONSE("b")) "," CALLED "," ROLE(
                    "user", RESPONSE("") "\\nc") "," ROLE("user", RESPONSE("d")) "]");

    /* Each may be copied a few times, not once for each that follows. */
    json_t *many = json_array();
    for (uint32_t i = 0; i < 400000; i++)
        json_array_append_new(many, json_pack("{s:s,s:s}", "role", "tool", "content", ""));
    assert_true(sl_tools_as_text(many, NULL, false));
    assert_int_equal(json_array_size(many), 1);
    assert_int_equal(json_string_length(json_object_get(json_array_get(many, 0), "content")),
                     400000 * (sizeof "<tool_response>\n\n</tool_response>\n" - 1) - 1);
    json_decref(many);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_templates), cmocka_unit_test(reasoning_budgets),
        cmocka_unit_test(raw_reasoning),       cmocka_unit_test(scripted_answers),
        cmocka_unit_test(results_as_text),
    };
    return cmocka_run_group_tests_name("tools", tests, NULL, NULL);
}
