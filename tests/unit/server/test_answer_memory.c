/* Answers that become larger than expected: what they hold is counted as it grows, and one for
 * which there is no room left ends with 503, whole or streamed. */
#include "harness.h"

#include "common/metrics.h"
#include "server/answer/splitter.h"

#define N_TOKENS 3000u

static char spaces_word[257];

static void restart(uint64_t max_replies_bytes) {
    if (server)
        sl_server_destroy(&server);
    config.max_replies_bytes = max_replies_bytes;
    start_empty();
    attach();
}

/* Nothing is counted any more: the last exchange is freed by the engine, a moment later. */
static void expect_nothing_held(void) {
    for (int i = 0; i < 60000 && atomic_load(&server->replies_bytes); i++)
        usleep(1000);
    assert_int_equal(atomic_load(&server->replies_bytes), 0);
}

/* Answers of tokens of 256 bytes, expected to have four. */
static void long_tokens(void **state) {
    (void)state;
    memset(spaces_word, 'w', 256);
    uint32_t script[] = {fake_word(&tok, spaces_word)};
    static const char body[] = "{\"prompt\":\"x\",\"max_tokens\":1000}";
    static const char two[] = "{\"prompt\":\"x\",\"max_tokens\":500,\"n\":2}";
    set_script(script, 1, 0, 0);
    /* 256000 bytes of text, four of memory each, and what is counted for each request. */
    int64_t outgrown = sl_metric(answers_outgrown_total);
    restart(900 << 10);
    expect_error(client_post(COMP, body), 503, "unavailable_error", NULL, "larger than expected");
    expect_nothing_held();
    expect_error(client_post(COMP, two), 503, "unavailable_error", NULL, "larger than expected");
    expect_nothing_held();
    assert_int_equal(sl_metric(answers_outgrown_total) - outgrown, 2);
    restart(1200 << 10);
    struct reply r = client_post(COMP, body);
    assert_int_equal(r.status, 200);
    json_t *v = parse(&r);
    assert_int_equal(strlen(str_at(v, "choices.0.text")), 256000);
    json_decref(v);
    reply_free(&r);
    expect_nothing_held();
    /* A stream holds none of it. */
    restart(200 << 10);
    r = client_post(COMP, "{\"prompt\":\"x\",\"max_tokens\":1000,\"stream\":true}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "[DONE]"));
    reply_free(&r);
    expect_nothing_held();
    assert_int_equal(sl_metric(answers_outgrown_total) - outgrown, 2);
}

/* Text whose JSON is six times as long. */
static void escaped_text(void **state) {
    (void)state;
    memset(spaces_word, '\x01', 256);
    uint32_t script[] = {fake_word(&tok, spaces_word)};
    static const char body[] = "{\"prompt\":\"x\",\"max_tokens\":100}";
    set_script(script, 1, 0, 0);
    restart(500 << 10);
    expect_error(client_post(COMP, body), 503, "unavailable_error", NULL, "larger than expected");
    expect_nothing_held();
    restart(800 << 10);
    struct reply r = client_post(COMP, body);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    expect_nothing_held();
}

/* A stream whose text waits, for it may be the beginning of a call, with its log-probabilities. */
static void held_logprobs(void **state) {
    (void)state;
    static const char begin[] = "<tool_call>{\"arguments\": {\"city\": \"";
    static const char body[] =
        "{\"stream\":true,\"max_tokens\":3000,\"logprobs\":true,\"top_logprobs\":2,\"tools\":[{"
        "\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
        "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    static uint32_t script[N_TOKENS];
    for (uint32_t i = 0; i < N_TOKENS; i++)
        script[i] = i < sizeof begin - 1 ? (unsigned char)begin[i] : 'a';
    set_script(script, N_TOKENS, 0, 0);
    /* 3000 entries of some 216 bytes in a buffer that doubles, and their JSON. */
    restart(700 << 10);
    struct reply r = client_post(CHAT, body);
    assert_int_equal(r.status, 200);
    const char *e = strstr(r.body, "data: {\"error\"");
    assert_non_null(e);
    assert_non_null(strstr(e, "larger than expected"));
    reply_free(&r);
    expect_nothing_held();
    restart(4 << 20);
    r = client_post(CHAT, body);
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.body, "\"error\""));
    uint32_t n = 0;
    for (const char *p = r.body; (p = strstr(p, "\"top_logprobs\"")); p++)
        n++;
    assert_int_equal(n, N_TOKENS); /* each token's, when its text came back as content */
    reply_free(&r);
    expect_nothing_held();
    /* Of plain text none wait. */
    for (uint32_t i = 0; i < N_TOKENS; i++)
        script[i] = 'a';
    restart(200 << 10);
    r = client_post(CHAT, body);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "[DONE]"));
    reply_free(&r);
    expect_nothing_held();
}

/* What the splitter of a stream holds is counted, too. */
static void held_text(void **state) {
    (void)state;
    static const char begin[] = "<tool_call>{\"x\": \"";
    static const char body[] = "{\"stream\":true,\"max_tokens\":1000,\"tools\":[{\"type\":"
                               "\"function\",\"function\":{\"name\":\"f\"}}],\"messages\":[{"
                               "\"role\":\"user\",\"content\":\"x\"}]}";
    static uint32_t script[1000];
    memset(spaces_word, 'v', 256);
    uint32_t word = fake_word(&tok, spaces_word);
    for (uint32_t i = 0; i < 1000; i++)
        script[i] = i < sizeof begin - 1 ? (unsigned char)begin[i] : word;
    set_script(script, 1000, 0, 0);
    restart(160 << 10);
    struct reply r = client_post(CHAT, body);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "larger than expected"));
    reply_free(&r);
    expect_nothing_held();
    restart(2 << 20);
    r = client_post(CHAT, body);
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.body, "\"error\""));
    assert_non_null(strstr(r.body, "vvvv"));
    reply_free(&r);
    expect_nothing_held();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(long_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(escaped_text, setup, teardown),
        cmocka_unit_test_setup_teardown(held_logprobs, setup, teardown),
        cmocka_unit_test_setup_teardown(held_text, setup, teardown),
    };
    return cmocka_run_group_tests_name("answers in memory", tests, NULL, NULL);
}
