/* Who waits for the workers, and for how long. The scripted engine's lock, held by a test, keeps a
 * worker that has come to submit. */
#include "harness.h"

#define LARGE_BYTES 400000

/* A small prompt in a large body. */
static char *large_body(void) {
    static char body[LARGE_BYTES + 100];
    int n = sprintf(body, "{\"prompt\":\"x\",\"max_tokens\":1,\"user\":\"");
    memset(body + n, 'a', LARGE_BYTES);
    strcpy(body + n + LARGE_BYTES, "\"}");
    return body;
}

static void hold_engine(void) {
    pthread_mutex_lock(&engine->lock);
}
static void release_engine(void) {
    pthread_mutex_unlock(&engine->lock);
}

static uint32_t count_large(uint32_t *out_waiting) {
    pthread_mutex_lock(&server->jobs_lock);
    uint32_t n = server->n_large;
    *out_waiting = 0;
    for (struct sl_exchange *ex = server->jobs[SL_JOB_LARGE].head; ex; ex = ex->next_job)
        ++*out_waiting;
    pthread_mutex_unlock(&server->jobs_lock);
    return n;
}

/* Until so many large jobs have a worker, and so many wait for one. */
static void await_large(uint32_t running, uint32_t waiting) {
    uint32_t n = 0, w = 0;
    for (int i = 0; i < 10000; i++) {
        n = count_large(&w);
        if (n == running && w == waiting)
            return;
        usleep(2000);
    }
    fail_msg("%u large jobs run and %u wait, not %u and %u", n, w, running, waiting);
}

static void test_cheap_pass_dear(void **state) {
    (void)state;
    set_script(hello, sizeof hello / sizeof *hello, 0, 0);
    int fds[4];
    hold_engine();
    for (int i = 0; i < 4; i++)
        fds[i] = client_begin(COMP, large_body());
    await_large(1, 3);
    /* Cheap jobs, and what needs no worker, while the dear ones stand still. */
    int statuses[3];
    for (int i = 0; i < 3; i++) {
        struct reply r = i == 0   ? client_get("/health")
                         : i == 1 ? client_get("/v1/models")
                                  : client_post("/tokenize", "{\"content\":\"abc\"}");
        statuses[i] = r.status;
        reply_free(&r);
    }
    await_large(1, 3);
    release_engine();
    for (int i = 0; i < 3; i++)
        assert_int_equal(statuses[i], 200);
    for (int i = 0; i < 4; i++) { /* and those come to their turn */
        struct reply r = client_end(fds[i]);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
}

/* One worker: neither kind can keep the other from it. */
static void test_turns(void **state) {
    (void)state;
    set_script(hello, sizeof hello / sizeof *hello, 0, 0);
    hold_engine();
    int first = client_begin(COMP, large_body()), large[2], small[20];
    await_large(1, 0);
    for (int i = 0; i < 20; i++)
        small[i] = client_begin("/tokenize", "{\"content\":\"abc\"}");
    for (int i = 0; i < 2; i++)
        large[i] = client_begin(COMP, large_body());
    await_large(1, 2);
    release_engine();
    struct reply r = client_end(first);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    for (int i = 0; i < 20; i++) {
        r = client_end(small[i]);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    for (int i = 0; i < 2; i++) {
        r = client_end(large[i]);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
}

/* Answered while every worker that it could have is busy, and never run. */
static void test_time_over_in_the_queue(void **state) {
    (void)state;
    set_script(hello, sizeof hello / sizeof *hello, 0, 0);
    hold_engine();
    int running = client_begin(COMP, large_body()), waiting[2];
    await_large(1, 0);
    for (int i = 0; i < 2; i++)
        waiting[i] = client_begin(COMP, large_body());
    struct reply late[2];
    for (int i = 0; i < 2; i++)
        late[i] = client_end(waiting[i]);
    release_engine();
    for (int i = 0; i < 2; i++) {
        assert_non_null(strstr(late[i].body, "deadline_exceeded"));
        expect_error(late[i], 504, "server_error", NULL, "still waiting for a worker");
    }
    struct reply r = client_end(running);
    reply_free(&r);
    assert_int_equal(atomic_load(&engine->n_submitted), 1);
}

/* Its client left: it gives its place up, and its body, without a worker. */
static void test_leaves_the_queue(void **state) {
    (void)state;
    set_script(hello, sizeof hello / sizeof *hello, 0, 0);
    hold_engine();
    int running = client_begin(COMP, large_body());
    await_large(1, 0);
    int leaves = client_begin(COMP, large_body());
    await_large(1, 1);
    close(leaves);
    await_large(1, 0);
    release_engine();
    struct reply r = client_end(running);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    assert_int_equal(atomic_load(&engine->n_submitted), 1);
}

/* The time begins with the headers, so a slow body counts too. */
static void test_time_of_the_body(void **state) {
    (void)state;
    static const char head[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "Content-Length: 15\r\n\r\n";
    int fd = client_connect(0);
    client_send(fd, head, sizeof head - 1);
    usleep(1300000);
    client_send(fd, "{\"content\":\"a\"}", 15);
    expect_error(client_end(fd), 504, "server_error", NULL, "the request timed out");
    struct reply r = client_post("/tokenize", "{\"content\":\"a\"}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
}

static int setup_one_worker(void **state) {
    setup(state);
    config.n_workers = 1;
    start_empty();
    attach();
    return 0;
}
static int setup_timeout(void **state) {
    setup(state);
    config.request_timeout_s = 1;
    start_empty();
    attach();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        READY(test_cheap_pass_dear),
        READY(test_leaves_the_queue),
        cmocka_unit_test_setup_teardown(test_turns, setup_one_worker, teardown),
        cmocka_unit_test_setup_teardown(test_time_over_in_the_queue, setup_timeout, teardown),
        cmocka_unit_test_setup_teardown(test_time_of_the_body, setup_timeout, teardown),
    };
    return cmocka_run_group_tests_name("jobs", tests, NULL, NULL);
}
