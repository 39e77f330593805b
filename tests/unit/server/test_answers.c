/* Answers of OpenAI's chat and completions, and of the small endpoints, over sockets. */
#include "harness.h"

/* ------------------------------------------------------------------------------------ answers */

static void test_chat(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    struct reply r = client_post(
        CHAT, "{\"model\":\"test-model\",\"seed\":7,\"temperature\":0.5,\"messages\":[{\"role\":"
              "\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
              "\"text\":\"b\"}]}]}");
    assert_int_equal(r.status, 200);
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "object"), "chat.completion");
    assert_string_equal(str_at(v, "model"), "test-model");
    assert_memory_equal(str_at(v, "id"), "chatcmpl-", 9);
    assert_string_equal(str_at(v, "system_fingerprint"), "fp_3456789abc");
    assert_string_equal(str_at(v, "choices.0.message.role"), "assistant");
    assert_string_equal(str_at(v, "choices.0.message.content"), "Hello \xc3\xa9");
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "stop");
    assert_true(json_is_null(at(v, "choices.0.logprobs")));
    /* <|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n */
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 1 + 5 + 3 + 1 + 1 + 1 + 10);
    assert_int_equal(int_at(v, "usage.completion_tokens"), 9);
    assert_int_equal(int_at(v, "usage.total_tokens"), 22 + 9);
    assert_int_equal(int_at(v, "usage.prompt_tokens_details.cached_tokens"), 0);
    assert_int_equal(int_at(v, "timings.predicted_n"), 9);
    assert_int_equal(int_at(v, "timings.expert_hits"), 54);
    assert_int_equal(int_at(v, "timings.expert_late"), 9);
    assert_int_equal(int_at(v, "timings.expert_misses"), 27);
    assert_true(json_real_value(at(v, "timings.expert_hit_share")) == 0.6);
    assert_int_equal(int_at(v, "timings.disk_read_bytes"), 9000);
    assert_true(json_real_value(at(v, "timings.expert_stall_ms")) == 4.5);
    assert_int_equal(engine->last_prompt[0], FAKE_IM_START);
    assert_int_equal(engine->last_prompt[9], FAKE_IM_END);
    assert_true(engine->last.sampling.seed == 7);
    assert_true(engine->last.sampling.temperature == 0.5f);
    json_decref(v);
    reply_free(&r);
}

static void test_stream(void **state) {
    (void)state;
    set_script(hello, 9, 2, 0);
    struct reply r = client_post(
        CHAT, "{\"stream\":true,\"stream_options\":{\"include_usage\":true},\"messages\":[{"
              "\"role\":\"user\",\"content\":\"x\"}]}");
    assert_int_equal(r.status, 200);
    assert_non_null(strcasestr(r.head, "Content-Type: text/event-stream"));
    int n;
    bool done;
    char *text = join_stream(&r, &n, &done);
    assert_string_equal(text, "Hello \xc3\xa9");
    assert_true(done);
    /* role, 6 characters and one of two bytes, finish, usage, [DONE] */
    assert_int_equal(n, 1 + 7 + 1 + 1 + 1);
    assert_non_null(strstr(r.body, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"));
    assert_non_null(strstr(r.body, "\"finish_reason\":\"stop\"}],\"timings\""));
    assert_non_null(strstr(r.body, "\"usage\":null"));
    assert_non_null(strstr(r.body, "\"choices\":[],\"usage\":{\"prompt_tokens\":"));
    free(text);
    reply_free(&r);
}

static void test_completions(void **state) {
    (void)state;
    tok.add_bos = true;
    sl_server_destroy(&server);
    start_empty();
    attach(); /* with BOS */
    set_script(NULL, 0, 0, 0);
    struct reply r = client_post(COMP, "{\"prompt\":\"abc\",\"echo\":true}");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "object"), "text_completion");
    assert_string_equal(str_at(v, "choices.0.text"), "abcabc");
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 4);
    assert_int_equal(engine->last_prompt[0], FAKE_BOS);
    assert_int_equal(engine->last.max_tokens, 16);
    json_decref(v);
    reply_free(&r);
    r = client_post(COMP, "{\"prompt\":[[97,98],[99]],\"max_tokens\":1,\"n\":2}");
    v = parse(&r);
    assert_int_equal(json_array_size(at(v, "choices")), 4);
    assert_string_equal(str_at(v, "choices.1.text"), "a");
    assert_string_equal(str_at(v, "choices.2.text"), "c");
    assert_int_equal(int_at(v, "choices.3.index"), 3);
    assert_string_equal(str_at(v, "choices.3.finish_reason"), "length");
    assert_int_equal(int_at(v, "usage.prompt_tokens"), 3);
    assert_int_equal(int_at(v, "usage.completion_tokens"), 4);
    json_decref(v);
    reply_free(&r);
    r = client_post(COMP, "{\"prompt\":\"abc\",\"stream\":true,\"echo\":true}");
    int n;
    bool done;
    char *text = join_stream(&r, &n, &done);
    assert_string_equal(text, "abcabc");
    assert_true(done);
    free(text);
    reply_free(&r);
}

/* The prompt's tokens come with the answer's: what evaluation harnesses ask for. */
static void test_echo_with_logprobs(void **state) {
    (void)state;
    tok.add_bos = true;
    sl_server_destroy(&server);
    start_empty();
    attach();
    set_script(NULL, 0, 0, 0);
    struct reply r = client_post(COMP, "{\"prompt\":\"a\\u00e9b\",\"echo\":true,\"logprobs\":2,"
                                       "\"max_tokens\":0}");
    json_t *v = parse(&r);
    assert_int_equal(r.status, 200);
    assert_string_equal(str_at(v, "choices.0.text"), "a\xc3\xa9"
                                                     "b");
    assert_string_equal(str_at(v, "choices.0.finish_reason"), "length");
    assert_int_equal(int_at(v, "usage.completion_tokens"), 0);
    /* BOS, a, two bytes, b: the BOS is a token, but no text of the client's */
    assert_int_equal(json_array_size(at(v, "choices.0.logprobs.tokens")), 5);
    assert_string_equal(str_at(v, "choices.0.logprobs.tokens.0"), "<s>");
    assert_string_equal(str_at(v, "choices.0.logprobs.tokens.4"), "b");
    assert_true(json_is_null(at(v, "choices.0.logprobs.token_logprobs.0")));
    assert_true(json_is_null(at(v, "choices.0.logprobs.top_logprobs.0")));
    for (uint32_t i = 1; i < 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "choices.0.logprobs.token_logprobs.%u", i);
        assert_true(json_number_value(at(v, path)) == -0.25 * i);
    }
    assert_int_equal(json_object_size(at(v, "choices.0.logprobs.top_logprobs.1")), 2);
    assert_int_equal(int_at(v, "choices.0.logprobs.text_offset.0"), 0);
    assert_int_equal(int_at(v, "choices.0.logprobs.text_offset.1"), 0);
    assert_int_equal(int_at(v, "choices.0.logprobs.text_offset.4"), 2);
    json_decref(v);
    reply_free(&r);
    /* Then the answer's: two choices of each prompt, all with their own. */
    r = client_post(COMP, "{\"prompt\":[[97,98],[99]],\"echo\":true,\"logprobs\":0,"
                          "\"max_tokens\":1,\"n\":2}");
    v = parse(&r);
    assert_int_equal(json_array_size(at(v, "choices")), 4);
    assert_string_equal(str_at(v, "choices.1.text"), "aba");
    assert_int_equal(json_array_size(at(v, "choices.1.logprobs.tokens")), 3);
    assert_true(json_number_value(at(v, "choices.1.logprobs.token_logprobs.1")) == -0.25);
    assert_true(json_number_value(at(v, "choices.1.logprobs.token_logprobs.2")) == -0.5);
    assert_int_equal(int_at(v, "choices.1.logprobs.text_offset.2"), 2);
    assert_string_equal(str_at(v, "choices.3.text"), "cc");
    json_decref(v);
    reply_free(&r);
    /* In a stream the echo's event has the prompt's, and no other has them again. */
    r = client_post(COMP, "{\"prompt\":\"ab\",\"echo\":true,\"logprobs\":1,\"max_tokens\":2,"
                          "\"stream\":true}");
    assert_non_null(strstr(r.body, "\"text\":\"ab\",\"logprobs\":{\"tokens\":[\"<s>\",\"a\",\"b\"],"
                                   "\"token_logprobs\":[null,-0.25,-0.5]"));
    assert_null(strstr(strstr(r.body, "-0.25") + 1, "-0.25"));
    int n;
    bool done;
    char *text = join_stream(&r, &n, &done);
    assert_true(done);
    assert_int_equal(strncmp(text, "ab", 2), 0);
    free(text);
    reply_free(&r);
}

static void test_stop_strings(void **state) {
    (void)state;
    static uint32_t script[4];
    pthread_mutex_lock(&engine->lock);
    script[0] = fake_word(&tok, "one S");
    script[1] = fake_word(&tok, "TO");
    script[2] = fake_word(&tok, "P and more");
    script[3] = 'x';
    pthread_mutex_unlock(&engine->lock);
    set_script(script, 4, 0, 0);
    for (int stream = 0; stream < 2; stream++) {
        char body[200];
        sprintf(body,
                "{\"prompt\":\"p\",\"max_tokens\":1000,\"stop\":[\"never\",\"STOP\"],"
                "\"stream\":%s%s}",
                stream ? "true" : "false",
                stream ? ",\"stream_options\":{\"include_usage\":true}" : "");
        struct reply r = client_post(COMP, body);
        assert_int_equal(r.status, 200);
        if (stream) {
            int n;
            bool done;
            char *text = join_stream(&r, &n, &done);
            assert_string_equal(text, "one ");
            assert_true(done);
            free(text);
            assert_non_null(strstr(r.body, "\"finish_reason\":\"stop\""));
            assert_non_null(strstr(r.body, "\"completion_tokens\":3,"));
        } else {
            json_t *v = parse(&r);
            assert_string_equal(str_at(v, "choices.0.text"), "one ");
            assert_string_equal(str_at(v, "choices.0.finish_reason"), "stop");
            assert_int_equal(int_at(v, "usage.completion_tokens"), 3);
            assert_true(int_at(v, "timings.expert_hits") >= 3 * 6);
            json_decref(v);
        }
        reply_free(&r);
    }
    assert_true(wait_for(&engine->n_canceled, 2, 30000)); /* 1000 tokens were asked for */
}

static void test_logprobs_and_n(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    struct reply r = client_post(CHAT, "{\"n\":3,\"seed\":10,\"logprobs\":true,\"top_logprobs\":2,"
                                       "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    json_t *v = parse(&r);
    assert_int_equal(json_array_size(at(v, "choices")), 3);
    for (int i = 0; i < 3; i++) {
        json_t *c = json_array_get(at(v, "choices"), (size_t)i);
        assert_int_equal(int_at(c, "index"), i);
        assert_int_equal(json_array_size(at(c, "logprobs.content")), 8); /* EOS is not shown */
        assert_string_equal(str_at(c, "logprobs.content.0.token"), "H");
        assert_true(json_number_value(at(c, "logprobs.content.0.logprob")) == -0.5);
        assert_int_equal(int_at(c, "logprobs.content.0.bytes.0"), 'H');
        assert_int_equal(json_array_size(at(c, "logprobs.content.0.top_logprobs")), 2);
        assert_string_equal(str_at(c, "logprobs.content.0.top_logprobs.1.token"), "b");
        assert_int_equal(int_at(c, "logprobs.content.6.bytes.0"), 0xc3); /* half a character */
        assert_string_equal(str_at(c, "logprobs.content.6.token"), "\xef\xbf\xbd");
    }
    assert_int_equal(int_at(v, "usage.completion_tokens"), 27);
    json_decref(v);
    reply_free(&r);
    assert_true(engine->last.sampling.seed == 12);

    /* Streamed, the entries of all chunks are the same ones. */
    r = client_post(CHAT, "{\"stream\":true,\"logprobs\":true,"
                          "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    int n = 0;
    for (const char *p = r.body; (p = strstr(p, "\"top_logprobs\":[]")) != NULL; p++)
        n++;
    assert_int_equal(n, 8);
    reply_free(&r);

    /* Text completions have their own shape; a stop string cuts them too. */
    r = client_post(COMP, "{\"prompt\":\"p\",\"logprobs\":1,\"stop\":\"lo\"}");
    v = parse(&r);
    assert_string_equal(str_at(v, "choices.0.text"), "Hel");
    assert_int_equal(json_array_size(at(v, "choices.0.logprobs.tokens")), 3);
    assert_int_equal(json_array_size(at(v, "choices.0.logprobs.token_logprobs")), 3);
    assert_int_equal(int_at(v, "choices.0.logprobs.text_offset.2"), 2);
    assert_true(json_number_value(at(v, "choices.0.logprobs.top_logprobs.0.H")) == -0.5);
    json_decref(v);
    reply_free(&r);
}

static void test_special_text_stays_text(void **state) {
    (void)state;
    set_script(hello, 9, 0, 0);
    struct reply r = client_post(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":"
                                       "\"x<|im_end|>y<|im_start|>\"}]}");
    assert_int_equal(r.status, 200);
    uint32_t n_start = 0, n_end = 0;
    for (uint32_t i = 0; i < engine->last.n_prompt; i++) {
        n_start += engine->last_prompt[i] == FAKE_IM_START;
        n_end += engine->last_prompt[i] == FAKE_IM_END;
    }
    assert_int_equal(n_start, 2); /* the template's own */
    assert_int_equal(n_end, 1);
    assert_int_equal(engine->last.n_prompt, 1 + 5 + 1 + 10 + 1 + 12 + 1 + 1 + 1 + 10);
    reply_free(&r);
    r = client_post("/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":"
                                       "\"x<|im_end|>y\"}]}");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "prompt"), "<|im_start|>user\nx<|im_end|>y<|im_end|>\n"
                                             "<|im_start|>assistant\n");
    json_decref(v);
    reply_free(&r);
}

static void test_small_endpoints(void **state) {
    (void)state;
    struct reply r = client_get("/v1/models");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "data.0.id"), "test-model");
    assert_string_equal(str_at(v, "data.0.object"), "model");
    assert_int_equal(int_at(v, "data.0.max_model_len"), 4096);
    json_decref(v);
    reply_free(&r);
    r = client_get("/v1/models/test-model");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    expect_error(client_get("/v1/models/other"), 404, "not_found_error", "model", "other");
    r = client_get("/props");
    v = parse(&r);
    assert_string_equal(str_at(v, "chat_template"), chatml_template);
    assert_int_equal(int_at(v, "total_slots"), 4);
    assert_int_equal(int_at(v, "default_generation_settings.n_ctx"), 4096);
    assert_true(json_number_value(at(v, "default_generation_settings.params.temperature")) == 1);
    json_decref(v);
    reply_free(&r);
    r = client_get("/slots");
    v = parse(&r);
    assert_int_equal(json_array_size(v), 4);
    assert_string_equal(str_at(v, "0.state"), "idle");
    assert_null(at(v, "0.id_task"));
    assert_string_equal(str_at(v, "1.state"), "decode");
    assert_int_equal(int_at(v, "1.id_task"), 7);
    assert_int_equal(int_at(v, "1.n_remain"), 60);
    assert_true(json_number_value(at(v, "1.prompt_per_second")) == 100);
    assert_true(json_number_value(at(v, "1.predicted_per_second")) == 14.5);
    json_decref(v);
    reply_free(&r);
    r = client_get("/metrics");
    assert_non_null(
        strstr(r.body, "\nsluice_http_requests_total{endpoint=\"/slots\",status=\"200\"} "));
    assert_non_null(
        strstr(r.body, "\nsluice_http_requests_total{endpoint=\"/v1/models/*\",status=\"404\"} "));
    assert_non_null(strstr(r.body, "\nprocess_resident_memory_bytes "));
    assert_non_null(strstr(r.body, "\nprocess_open_fds "));
    reply_free(&r);
    r = client_request("HEAD", "/slots", "", NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body_len, 0);
    reply_free(&r);
    r = client_post("/tokenize", "{\"content\":\"a<|im_end|>\",\"with_pieces\":true}");
    v = parse(&r);
    assert_int_equal(int_at(v, "tokens.1.id"), FAKE_IM_END);
    assert_string_equal(str_at(v, "tokens.0.piece"), "a");
    json_decref(v);
    reply_free(&r);
    r = client_post("/tokenize", "{\"content\":\"a<|im_end|>\",\"parse_special\":false}");
    v = parse(&r);
    assert_int_equal(json_array_size(at(v, "tokens")), 11);
    json_decref(v);
    reply_free(&r);
    r = client_post("/detokenize", "{\"tokens\":[97,98,259]}");
    v = parse(&r);
    assert_string_equal(str_at(v, "content"), "ab<|im_end|>");
    json_decref(v);
    reply_free(&r);
    expect_error(client_post("/detokenize", "{\"tokens\":[97,100000]}"), 400, BAD, "tokens",
                 "token ids");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        READY(test_chat),
        READY(test_stream),
        READY(test_completions),
        READY(test_echo_with_logprobs),
        READY(test_stop_strings),
        READY(test_logprobs_and_n),
        READY(test_special_text_stays_text),
        READY(test_small_endpoints),
    };
    return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
}
