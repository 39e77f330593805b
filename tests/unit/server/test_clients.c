/* Clients that leave, read slowly, wait, and come in crowds. */
#include "harness.h"

/* -------------------------------------------------------------------------- clients that leave */

static void leave(const char *body, uint32_t prefill_steps) {
    set_script(hello, 8, prefill_steps, 5000);
    uint32_t before = engine->n_canceled, submitted = engine->n_submitted;
    int fd = client_begin(COMP, body);
    assert_true(wait_for(&engine->n_submitted, submitted + 1, 2000));
    usleep(50000);
    uint64_t start = sl_now_ns();
    close(fd);
    if (!wait_for(&engine->n_canceled, before + 1, 1000))
        fail_msg("not canceled within a second: %s", body);
    assert_true(sl_now_ns() - start < 1000000000u);
}

static void test_client_leaves(void **state) {
    (void)state;
    static const char whole[] = "{\"prompt\":\"x\",\"max_tokens\":100000}";
    static const char stream[] = "{\"prompt\":\"x\",\"max_tokens\":100000,\"stream\":true}";
    leave(whole, 10000); /* in prefill */
    leave(stream, 10000);
    leave(whole, 0); /* while it generates */
    leave(stream, 0);
}

/* A client that reads nothing: its session parks, others go on; when it reads, all comes in order.
 */
static void test_slow_reader(void **state) {
    (void)state;
    static uint32_t digits[1000];
    for (uint32_t i = 0; i < 1000; i++)
        digits[i] = i % 10 == 9 ? '\n' : '0' + i % 10;
    set_script(digits, 1000, 0, 20);
    int fd = client_connect(4096);
    client_begin_on(fd, "POST", COMP, "", "{\"prompt\":\"x\",\"max_tokens\":4000,\"stream\":true}");
    assert_true(wait_for(&engine->n_parked, 1, 10000));
    uint32_t pushed = engine->n_pushed;
    assert_true(pushed < 3000);

    struct reply r = client_post(COMP, "{\"prompt\":\"y\",\"max_tokens\":50}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    char byte;
    for (int i = 0; i < 20; i++) { /* a byte at a time frees nothing worth a wake-up */
        assert_int_equal(recv(fd, &byte, 1, 0), 1);
        usleep(10000);
    }
    assert_true(engine->n_pushed <= pushed + 50 + 40);

    size_t n;
    char *all = client_read_all(fd, &n);
    close(fd);
    const char *p = all;
    for (uint32_t i = 0; i < 4000; i++) {
        char want[32];
        sprintf(want, digits[i % 1000] == '\n' ? "\"text\":\"\\n\"" : "\"text\":\"%c\"",
                (char)digits[i % 1000]);
        p = strstr(p, "\"text\":\"");
        if (!p || strncmp(p, want, strlen(want)) != 0)
            fail_msg("token %u is lost", i);
        p += 8;
    }
    assert_non_null(strstr(p, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(p, "data: [DONE]"));
    free(all);
}

static void test_parked_client_leaves(void **state) {
    (void)state;
    set_script(hello, 8, 0, 20);
    int fd = client_connect(4096);
    client_begin_on(fd, "POST", COMP, "", "{\"prompt\":\"x\",\"max_tokens\":4000,\"stream\":true}");
    assert_true(wait_for(&engine->n_parked, 1, 10000));
    close(fd);
    assert_true(wait_for(&engine->n_canceled, 1, 1000));
}

static void test_keepalive(void **state) {
    (void)state;
    set_script(hello, 9, 260, 10000); /* 2.6 s of prefill */
    struct reply r = client_post(COMP, "{\"prompt\":\"x\",\"stream\":true}");
    int n;
    bool done;
    char *text = join_stream(&r, &n, &done);
    assert_string_equal(text, "Hello \xc3\xa9");
    assert_memory_equal(r.body, ": prompt ", 9);
    n = 0;
    for (const char *p = r.body; (p = strstr(p, ": prompt ")) != NULL; p++)
        n++;
    assert_true(n >= 2);
    free(text);
    reply_free(&r);

    /* An API with an event for it sends that too. */
    set_script(hello, 9, 140, 10000);
    r = client_post("/v1/messages", "{\"model\":\"test-model\",\"max_tokens\":9,\"stream\":true,"
                                    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    assert_memory_equal(r.body, ": prompt ", 9);
    const char *ping = strstr(r.body, "event: ping");
    assert_non_null(ping);
    assert_non_null(strstr(ping + 1, "event: ping"));
    assert_non_null(strstr(r.body, "event: message_stop"));
    reply_free(&r);
}

/* ---------------------------------------------------------------------------------------- many */

static void test_200_clients(void **state) {
    (void)state;
    set_script(hello, 9, 3, 1000);
    int fds[200];
    for (int i = 0; i < 200; i++)
        fds[i] = client_begin(CHAT, i % 2 ? "{\"stream\":true," MESSAGES "}" : "{" MESSAGES "}");
    for (int i = 0; i < 200; i++) {
        struct reply r = client_end(fds[i]);
        assert_int_equal(r.status, 200);
        if (i % 2) {
            int n;
            bool done;
            char *text = join_stream(&r, &n, &done);
            assert_string_equal(text, "Hello \xc3\xa9");
            assert_true(done);
            free(text);
        } else {
            json_t *v = parse(&r);
            assert_string_equal(str_at(v, "choices.0.message.content"), "Hello \xc3\xa9");
            json_decref(v);
        }
        reply_free(&r);
    }
    assert_int_equal(engine->n_finished, 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        READY(test_client_leaves), READY(test_slow_reader), READY(test_parked_client_leaves),
        READY(test_keepalive),     READY(test_200_clients),
    };
    return cmocka_run_group_tests_name("clients", tests, NULL, NULL);
}
