/* llama.cpp's own API over sockets: whole, streamed, errors, clients that leave. */
#include "harness.h"

#define PATH "/completion"

static const uint32_t lines[] = {'a', 'b', '\n', 'c', FAKE_EOS};

static void expect_end(json_t *v, const char *stop_type, const char *word) {
    assert_true(json_is_true(at(v, "stop")));
    assert_string_equal(str_at(v, "stop_type"), stop_type);
    assert_string_equal(str_at(v, "stopping_word"), word);
    assert_true(json_is_false(at(v, "truncated")));
    assert_string_equal(str_at(v, "model"), "test-model");
    assert_string_equal(str_at(v, "prompt"), "xy");
    assert_int_equal(int_at(v, "tokens_evaluated"), 2);
    assert_int_equal(int_at(v, "generation_settings.seed"), 5);
    assert_true(at(v, "timings.predicted_n") != NULL);
}

static void expect_tokens(json_t *v, const uint32_t *want, size_t n) {
    assert_int_equal(json_array_size(at(v, "tokens")), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_integer_value(json_array_get(at(v, "tokens"), i)), want[i]);
}

static void test_whole(void **state) {
    (void)state;
    set_script(lines, 5, 0, 0);
    struct reply r = client_post(PATH, "{\"prompt\":\"xy\",\"seed\":5,\"return_tokens\":true}");
    json_t *v = parse(&r);
    assert_string_equal(str_at(v, "content"), "ab\nc");
    assert_true(json_is_true(at(v, "has_new_line")));
    expect_end(v, "eos", "");
    expect_tokens(v, lines, 5);
    assert_null(at(v, "completion_probabilities"));
    json_decref(v);
    reply_free(&r);

    r = client_post(PATH, "{\"prompt\":\"xy\",\"seed\":5,\"n_predict\":2,\"n_probs\":2}");
    v = parse(&r);
    assert_string_equal(str_at(v, "content"), "ab");
    assert_true(json_is_false(at(v, "has_new_line")));
    expect_end(v, "limit", "");
    expect_tokens(v, lines, 0);
    assert_int_equal(int_at(v, "generation_settings.n_predict"), 2);
    assert_int_equal(json_array_size(at(v, "completion_probabilities")), 2);
    assert_int_equal(int_at(v, "completion_probabilities.0.id"), 'a');
    assert_int_equal(json_array_size(at(v, "completion_probabilities.0.top_logprobs")), 2);
    json_decref(v);
    reply_free(&r);

    r = client_post(PATH, "{\"prompt\":\"xy\",\"seed\":5,\"stop\":[\"\\nc\"]}");
    v = parse(&r);
    assert_string_equal(str_at(v, "content"), "ab");
    expect_end(v, "word", "\nc");
    json_decref(v);
    reply_free(&r);

    r = client_post(PATH, "{\"prompt\":[\"xy\",[120,121]],\"seed\":5}");
    v = parse(&r);
    assert_int_equal(json_array_size(v), 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(int_at(json_array_get(v, i), "index"), i);
        expect_end(json_array_get(v, i), "eos", "");
    }
    json_decref(v);
    reply_free(&r);
    r = client_post(PATH, "{\"prompt\":\"xy\",\"seed\":5,\"response_fields\":[\"content\",\"none\","
                          "\"generation_settings/seed\",\"content/x\",\"\"]}");
    v = parse(&r);
    assert_int_equal(json_object_size(v), 2);
    assert_string_equal(str_at(v, "content"), "ab\nc");
    assert_int_equal(json_integer_value(json_object_get(v, "generation_settings/seed")), 5);
    json_decref(v);
    reply_free(&r);
    expect_error(client_post(PATH, "{\"prompt\":7}"), 400, BAD, "prompt", "a number");
}

static void test_stream(void **state) {
    (void)state;
    set_script(lines, 5, 0, 0);
    struct reply r = client_post(
        PATH, "{\"prompt\":\"xy\",\"seed\":5,\"stream\":true,\"n_probs\":1,\"n_predict\":4}");
    char text[64] = "";
    uint32_t n = 0, n_ids = 0;
    bool stopped = false;
    for (const char *p = r.body; (p = strstr(p, "data: ")) != NULL;) {
        const char *end = strstr(p, "\n\n");
        json_t *v = json_loadb(p + 6, (size_t)(end - p - 6), 0, NULL);
        assert_non_null(v);
        assert_false(stopped);
        strcat(text, str_at(v, "content"));
        stopped = json_is_true(at(v, "stop"));
        if (stopped) {
            expect_end(v, "limit", "");
            assert_true(json_is_true(at(v, "has_new_line")));
            assert_int_equal(int_at(v, "tokens_predicted"), 4);
        } else {
            size_t k = json_array_size(at(v, "tokens"));
            assert_true(k > 0);
            assert_int_equal(json_array_size(at(v, "completion_probabilities")), k);
            for (size_t i = 0; i < k; i++)
                assert_int_equal(json_integer_value(json_array_get(at(v, "tokens"), i)),
                                 lines[n_ids++]);
        }
        n++;
        json_decref(v);
        p = end;
    }
    assert_true(stopped && n >= 2 && n_ids == 4);
    assert_string_equal(text, "ab\nc");
    assert_null(strstr(r.body, "[DONE]"));
    reply_free(&r);

    pthread_mutex_lock(&engine->lock);
    engine->fail_at = 3;
    pthread_mutex_unlock(&engine->lock);
    r = client_post(PATH, "{\"prompt\":\"x\",\"stream\":true}");
    assert_non_null(strstr(r.body, "data: {\"error\":{\"message\":\"the fake engine"));
    reply_free(&r);
}

static void test_leaving(void **state) {
    (void)state;
    set_script(hello, 8, 0, 1000);
    int fd = client_begin(PATH, "{\"prompt\":\"x\",\"stream\":true,\"n_predict\":-1}");
    char text[512];
    assert_true(recv(fd, text, sizeof text, 0) > 0);
    close(fd);
    assert_true(wait_for(&engine->n_canceled, 1, 20000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        READY(test_whole),
        READY(test_stream),
        READY(test_leaving),
    };
    return cmocka_run_group_tests_name("native_answers", tests, NULL, NULL);
}
