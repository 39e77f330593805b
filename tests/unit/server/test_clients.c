/* Clients that leave, read slowly, wait, and come in crowds. */
#include "harness.h"

/* -------------------------------------------------------------------------- clients that leave */

static void leave(const char *body, uint32_t prefill_steps) {
    set_script(hello, 8, prefill_steps, 5000);
    uint32_t before = engine->n_canceled, submitted = engine->n_submitted;
    int fd = client_begin(COMP, body);
    assert_true(wait_for(&engine->n_submitted, submitted + 1, 30000));
    usleep(50000);
    close(fd);
    if (!wait_for(&engine->n_canceled, before + 1, 30000))
        fail_msg("not canceled: %s", body);
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
    /* On a busy machine the server's own threads fall behind and park it, too: until the sockets
     * are full it goes on. A session that never waited for its reader would come to its end here.
     */
    char drops[50 * 20];
    size_t n_drops = 0;
    uint32_t grown = 0;
    for (int round = 0; round < 50; round++) {
        uint32_t pushed = engine->n_pushed;
        struct reply r = client_post(COMP, "{\"prompt\":\"y\",\"max_tokens\":50}");
        assert_int_equal(r.status, 200);
        reply_free(&r);
        for (int i = 0; i < 20; i++) { /* a byte at a time frees nothing worth a wake-up */
            assert_int_equal(recv(fd, drops + n_drops, 1, 0), 1);
            n_drops++;
            usleep(10000);
        }
        grown = engine->n_pushed - pushed - 50;
        if (grown <= 40)
            break;
    }
    assert_in_range(grown, 0, 40);
    assert_true(engine->n_pushed < 3500);

    size_t n;
    char *rest = client_read_all(fd, &n);
    close(fd);
    char *all = malloc(n_drops + n + 1);
    assert_non_null(all);
    memcpy(all, drops, n_drops);
    memcpy(all + n_drops, rest, n);
    all[n_drops + n] = 0;
    free(rest);
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
    assert_true(wait_for(&engine->n_canceled, 1, 30000));
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
