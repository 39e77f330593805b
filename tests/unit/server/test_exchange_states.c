/* The states of an exchange: the table, and what a client that leaves, a deadline, a server that
 * drains and one that ends do to a request in each state. */
#include "harness.h"

#include <sys/wait.h>

#define RECEIVING  SL_EXCHANGE_RECEIVING
#define ANSWERING  SL_EXCHANGE_ANSWERING
#define QUEUED     SL_EXCHANGE_QUEUED
#define WORKING    SL_EXCHANGE_WORKING
#define GENERATING SL_EXCHANGE_GENERATING
#define STREAMING  SL_EXCHANGE_STREAMING
#define SENDING    SL_EXCHANGE_SENDING
#define DROPPED    SL_EXCHANGE_DROPPED
#define LEFT       SL_EXCHANGE_LEFT
#define ORPHANED   SL_EXCHANGE_ORPHANED
#define CLOSED     SL_EXCHANGE_CLOSED

/* ----------------------------------------------------------------------------------- the table */

/* Written down a second time, by event: what is not here must be refused. */
static const struct {
    enum sl_exchange_event event;
    enum sl_exchange_state from, to;
} allowed[] = {
    {SL_EVENT_RECEIVED, RECEIVING, ANSWERING},

    {SL_EVENT_QUEUED, ANSWERING, QUEUED},

    {SL_EVENT_TAKEN, QUEUED, WORKING},
    {SL_EVENT_TAKEN, DROPPED, DROPPED},
    {SL_EVENT_TAKEN, ORPHANED, ORPHANED},

    {SL_EVENT_DONE, QUEUED, ANSWERING},
    {SL_EVENT_DONE, WORKING, ANSWERING},
    {SL_EVENT_DONE, DROPPED, LEFT},
    {SL_EVENT_DONE, ORPHANED, CLOSED},

    {SL_EVENT_GENERATES, WORKING, GENERATING},
    {SL_EVENT_GENERATES, DROPPED, LEFT},
    {SL_EVENT_GENERATES, ORPHANED, CLOSED},

    {SL_EVENT_STREAM_BEGUN, GENERATING, STREAMING},
    {SL_EVENT_STREAM_BEGUN, LEFT, LEFT},

    {SL_EVENT_ANSWERED, ANSWERING, SENDING},
    {SL_EVENT_ANSWERED, GENERATING, SENDING},
    {SL_EVENT_ANSWERED, LEFT, LEFT},

    {SL_EVENT_CLIENT_LEFT, RECEIVING, RECEIVING},
    {SL_EVENT_CLIENT_LEFT, ANSWERING, ANSWERING},
    {SL_EVENT_CLIENT_LEFT, QUEUED, DROPPED},
    {SL_EVENT_CLIENT_LEFT, WORKING, DROPPED},
    {SL_EVENT_CLIENT_LEFT, GENERATING, LEFT},
    {SL_EVENT_CLIENT_LEFT, STREAMING, LEFT},
    {SL_EVENT_CLIENT_LEFT, SENDING, SENDING},
    {SL_EVENT_CLIENT_LEFT, DROPPED, DROPPED},
    {SL_EVENT_CLIENT_LEFT, LEFT, LEFT},

    {SL_EVENT_CONNECTION_OVER, RECEIVING, CLOSED},
    {SL_EVENT_CONNECTION_OVER, ANSWERING, CLOSED},
    {SL_EVENT_CONNECTION_OVER, QUEUED, ORPHANED},
    {SL_EVENT_CONNECTION_OVER, WORKING, ORPHANED},
    {SL_EVENT_CONNECTION_OVER, GENERATING, CLOSED},
    {SL_EVENT_CONNECTION_OVER, STREAMING, CLOSED},
    {SL_EVENT_CONNECTION_OVER, SENDING, CLOSED},
    {SL_EVENT_CONNECTION_OVER, DROPPED, ORPHANED},
    {SL_EVENT_CONNECTION_OVER, LEFT, CLOSED},
};
#define N_ALLOWED (sizeof allowed / sizeof *allowed)

static bool is_allowed(unsigned from, unsigned event, enum sl_exchange_state *out_to) {
    for (size_t i = 0; i < N_ALLOWED; i++)
        if (allowed[i].from == from && allowed[i].event == event) {
            *out_to = allowed[i].to;
            return true;
        }
    return false;
}

static void test_table(void **state) {
    (void)state;
    uint32_t n = 0;
    for (unsigned s = 0; s < SL_EXCHANGE_STATES; s++)
        for (unsigned e = 0; e < SL_EXCHANGE_EVENTS; e++) {
            const enum sl_exchange_state untouched = (enum sl_exchange_state)77;
            enum sl_exchange_state want = untouched, got = untouched;
            bool may = is_allowed(s, e, &want);
            if (sl_exchange_next((enum sl_exchange_state)s, (enum sl_exchange_event)e, &got) !=
                    may ||
                got != want)
                fail_msg("'%s' while %s", sl_exchange_event_name((enum sl_exchange_event)e),
                         sl_exchange_state_name((enum sl_exchange_state)s));
            n += may;
        }
    assert_int_equal(n, N_ALLOWED);
    enum sl_exchange_state to;
    assert_false(sl_exchange_next(SL_EXCHANGE_STATES, SL_EVENT_DONE, &to));
    assert_false(sl_exchange_next(WORKING, SL_EXCHANGE_EVENTS, &to));
}

/* Each state can be come to; from each the end can; nothing follows the end. */
static void test_every_way_ends(void **state) {
    (void)state;
    unsigned from_start = 1u << RECEIVING, to_end = 1u << CLOSED;
    for (int round = 0; round < SL_EXCHANGE_STATES; round++)
        for (size_t i = 0; i < N_ALLOWED; i++) {
            if (from_start >> allowed[i].from & 1)
                from_start |= 1u << allowed[i].to;
            if (to_end >> allowed[i].to & 1)
                to_end |= 1u << allowed[i].from;
            assert_true(allowed[i].from != CLOSED);
        }
    assert_int_equal(from_start, (1u << SL_EXCHANGE_STATES) - 1);
    assert_int_equal(to_end, (1u << SL_EXCHANGE_STATES) - 1);
    for (unsigned s = 0; s < SL_EXCHANGE_STATES; s++) {
        assert_string_not_equal(sl_exchange_state_name((enum sl_exchange_state)s), "unknown");
        for (unsigned other = 0; other < s; other++)
            assert_string_not_equal(sl_exchange_state_name((enum sl_exchange_state)s),
                                    sl_exchange_state_name((enum sl_exchange_state)other));
    }
    for (unsigned e = 0; e < SL_EXCHANGE_EVENTS; e++)
        assert_string_not_equal(sl_exchange_event_name((enum sl_exchange_event)e), "unknown");
}

/* Our mistakes: the end of a test program; in a release the request is canceled, no more. */
static void test_what_cannot_be(void **state) {
    (void)state;
    for (unsigned s = 0; s < SL_EXCHANGE_STATES; s++)
        for (unsigned e = 0; e < SL_EXCHANGE_EVENTS; e++) {
            enum sl_exchange_state to;
            if (is_allowed(s, e, &to))
                continue;
            struct sl_exchange ex = {.state = (enum sl_exchange_state)s};
#ifdef SL_STRICT
            if (e != s % SL_EXCHANGE_EVENTS) /* one of each state: every one is a process */
                continue;
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                signal(SIGABRT, SIG_DFL);
                assert_non_null(freopen("/dev/null", "w", stderr));
                (void)sl_exchange_step_locked(&ex, (enum sl_exchange_event)e);
                _exit(0);
            }
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
            assert_false(sl_exchange_step_locked(&ex, (enum sl_exchange_event)e));
            assert_int_equal(ex.state, s);
            assert_true(atomic_load(&ex.canceled));
#endif
        }
}

/* ---------------------------------------------------------------------------- requests in states
 */

static void hold_engine(void) {
    pthread_mutex_lock(&engine->lock);
}
static void release_engine(void) {
    pthread_mutex_unlock(&engine->lock);
}

/* Exchanges in that state. */
static uint32_t count(enum sl_exchange_state which, uint32_t *out_all) {
    uint32_t n = 0;
    *out_all = 0;
    pthread_mutex_lock(&server->list_lock);
    for (struct sl_exchange *ex = server->exchanges; ex; ex = ex->next) {
        n += sl_exchange_state(ex) == which;
        ++*out_all;
    }
    pthread_mutex_unlock(&server->list_lock);
    return n;
}
static void await(enum sl_exchange_state which) {
    uint32_t all;
    for (int i = 0; i < 30000; i++, usleep(2000))
        if (count(which, &all))
            return;
    fail_msg("no exchange came to be %s", sl_exchange_state_name(which));
}
static void await_none(void) {
    uint32_t all = 1;
    for (int i = 0; i < 30000 && all; i++, usleep(2000))
        (void)count(CLOSED, &all);
    assert_int_equal(all, 0);
}

/* Of a text whose ids, of four bytes each, are more than sockets hold: twice the most that this
 * machine lets one keep. */
#define LARGEST_CONTENT (6u << 20)
static size_t large_content(void) {
    unsigned long least, usual, most = 2 * LARGEST_CONTENT;
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_wmem", "r");
    if (f && fscanf(f, "%lu %lu %lu", &least, &usual, &most) != 3)
        most = 2 * LARGEST_CONTENT;
    if (f)
        fclose(f);
    most = most < 1u << 20 ? 1u << 20 : most;
    return most / 2 < LARGEST_CONTENT ? most / 2 : LARGEST_CONTENT;
}

static const char *const half = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                                "Connection: close\r\nContent-Length: 15\r\n\r\n{\"conten";

/* A request that comes to that state and stays there, until let_go(). */
static int busy_fd = -1;
static int put(enum sl_exchange_state in) {
    set_script(hello, 8, in == GENERATING || in == STREAMING ? 1u << 30 : 0, 1000);
    int fd = client_connect(in == SENDING ? 4096 : 0);
    if (in == RECEIVING) {
        client_send(fd, half, strlen(half));
    } else if (in == ANSWERING) { /* the connection's thread waits in /slots */
        hold_engine();
        client_begin_on(fd, "GET", "/slots", "", NULL);
    } else if (in == QUEUED) { /* the only worker is busy */
        hold_engine();
        busy_fd = client_begin(COMP, "{\"prompt\":\"x\",\"max_tokens\":1}");
        await(WORKING);
        client_begin_on(fd, "POST", "/tokenize", "", "{\"content\":\"abc\"}");
    } else if (in == WORKING) {
        hold_engine();
        client_begin_on(fd, "POST", COMP, "", "{\"prompt\":\"x\",\"max_tokens\":3}");
    } else if (in == GENERATING) {
        client_begin_on(fd, "POST", COMP, "", "{\"prompt\":\"x\",\"max_tokens\":3}");
    } else if (in == STREAMING) {
        client_begin_on(fd, "POST", COMP, "",
                        "{\"prompt\":\"x\",\"max_tokens\":3,\"stream\":true}");
    } else {
        size_t len = large_content();
        char *body = malloc(len + 100);
        size_t n = (size_t)sprintf(body, "{\"content\":\"");
        memset(body + n, 'z', len);
        strcpy(body + n + len, "\"}");
        client_begin_on(fd, "POST", "/tokenize", "", body);
        free(body);
    }
    await(in);
    return fd;
}

static bool holds_engine(enum sl_exchange_state in) {
    return in == ANSWERING || in == QUEUED || in == WORKING;
}

/* It may go on to its end. */
static void let_go(enum sl_exchange_state in, int fd) {
    if (holds_engine(in))
        release_engine();
    else if (in == RECEIVING)
        client_send(fd, "t\":\"a\"}", 7);
    engine->prefill_steps = 0;
    if (in == QUEUED) {
        struct reply r = client_end(busy_fd);
        reply_free(&r);
    }
}

static const enum sl_exchange_state held[] = {RECEIVING,  ANSWERING, QUEUED, WORKING,
                                              GENERATING, STREAMING, SENDING};
#define N_HELD (sizeof held / sizeof *held)

static int setup_one(void **state) {
    setup(state);
    config.n_workers = 1;
    config.max_body_bytes = 8u << 20;
    start_empty();
    attach();
    return 0;
}

static void test_client_leaves(void **state) {
    (void)state;
    for (size_t i = 0; i < N_HELD; i++) {
        uint32_t submitted = engine->n_submitted, canceled = engine->n_canceled;
        int fd = put(held[i]);
        close(fd);
        if (held[i] == QUEUED) /* without the worker, who is still busy */
            for (uint32_t all = 2; all != 1; usleep(2000))
                (void)count(QUEUED, &all);
        if (held[i] == WORKING)
            await(DROPPED);
        if (holds_engine(held[i]))
            let_go(held[i], -1);
        await_none();
        bool ran = held[i] == GENERATING || held[i] == STREAMING || held[i] == WORKING;
        assert_int_equal(engine->n_submitted - submitted, ran || held[i] == QUEUED);
        assert_true(wait_for(&engine->n_canceled, canceled + ran, 20000));
        while (atomic_load(&engine->n_finished) < atomic_load(&engine->n_submitted))
            usleep(1000);
    }
}

/* The deadline of the one in that state is over. Its readers are ordered by these locks. */
static void make_late(enum sl_exchange_state in) {
    atomic_store(&engine->late, true);
    pthread_mutex_lock(&server->list_lock);
    pthread_mutex_lock(&server->jobs_lock);
    for (struct sl_exchange *ex = server->exchanges; ex; ex = ex->next) {
        pthread_mutex_lock(&ex->lock);
        if (ex->state == in)
            ex->deadline_ns = 1;
        pthread_mutex_unlock(&ex->lock);
    }
    pthread_mutex_unlock(&server->jobs_lock);
    pthread_mutex_unlock(&server->list_lock);
}

static void test_deadline(void **state) {
    (void)state;
    for (size_t i = 0; i < N_HELD; i++) {
        int fd = put(held[i]);
        make_late(held[i]);
        struct reply r;
        if (held[i] == QUEUED || held[i] == GENERATING || held[i] == STREAMING) {
            r = client_end(fd); /* with nobody's help */
            let_go(held[i], fd);
        } else {
            let_go(held[i], fd);
            r = client_end(fd);
        }
        if (held[i] == STREAMING) { /* its status is out */
            assert_int_equal(r.status, 200);
            assert_non_null(strstr(r.body, "deadline_exceeded"));
        } else if (held[i] == ANSWERING || held[i] == SENDING) { /* no work that takes time */
            assert_int_equal(r.status, 200);
        } else {
            assert_int_equal(r.status, 504);
            assert_non_null(strstr(r.body, "deadline_exceeded"));
        }
        if (held[i] == SENDING)
            assert_true(r.body_len > 2 * large_content());
        reply_free(&r);
        await_none();
        atomic_store(&engine->late, false);
    }
}

/* What was begun is finished; what comes after is refused. */
static void drain(enum sl_exchange_state in) {
    int fd = put(in);
    sl_server_drain(server);
    let_go(in, fd);
    struct reply r = client_end(fd);
    assert_int_equal(r.status, in == RECEIVING ? 503 : 200);
    if (in == RECEIVING)
        assert_non_null(strstr(r.body, "shutting down"));
    if (in == STREAMING)
        assert_non_null(strstr(r.body, "data: [DONE]"));
    if (in == SENDING)
        assert_true(r.body_len > 2 * large_content());
    reply_free(&r);
    await_none();
    assert_int_equal(engine->n_canceled, 0);
}

static void *destroy(void *arg) {
    (void)arg;
    sl_server_destroy(&server);
    return NULL;
}

/* The time to finish is over. Nothing holds up the end, whatever the state. */
static void end(enum sl_exchange_state in) {
    int fd = put(in);
    struct sl_server *s = server;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroy, NULL), 0);
    if (holds_engine(in)) { /* it would wait for ever for the test's own lock */
        while (!atomic_load(&s->draining))
            usleep(1000);
        usleep(30000); /* some rounds of canceling */
        release_engine();
    }
    pthread_join(thread, NULL);
    assert_null(server);
    struct reply r = in == SENDING ? (struct reply){0} : client_end(fd);
    if (in == SENDING)
        close(fd);
    if (in == RECEIVING || in == SENDING) /* not for those who neither write nor read */
        assert_int_equal(r.status, 0);
    else if (in == STREAMING)
        assert_non_null(strstr(r.body, "data: {\"error\""));
    else if (in != ANSWERING)
        assert_int_equal(r.status, 503);
    if (in == QUEUED)
        close(busy_fd);
    reply_free(&r);
}

#define IN_EACH(f)                                                                                 \
    static void f##_receiving(void **s) {                                                          \
        (void)s, f(RECEIVING);                                                                     \
    }                                                                                              \
    static void f##_answering(void **s) {                                                          \
        (void)s, f(ANSWERING);                                                                     \
    }                                                                                              \
    static void f##_queued(void **s) {                                                             \
        (void)s, f(QUEUED);                                                                        \
    }                                                                                              \
    static void f##_working(void **s) {                                                            \
        (void)s, f(WORKING);                                                                       \
    }                                                                                              \
    static void f##_generating(void **s) {                                                         \
        (void)s, f(GENERATING);                                                                    \
    }                                                                                              \
    static void f##_streaming(void **s) {                                                          \
        (void)s, f(STREAMING);                                                                     \
    }                                                                                              \
    static void f##_sending(void **s) {                                                            \
        (void)s, f(SENDING);                                                                       \
    }
IN_EACH(drain)
IN_EACH(end)

#define ONE(f) cmocka_unit_test_setup_teardown(f, setup_one, teardown)
#define EACH(f)                                                                                    \
    ONE(f##_receiving), ONE(f##_answering), ONE(f##_queued), ONE(f##_working),                     \
        ONE(f##_generating), ONE(f##_streaming), ONE(f##_sending)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_every_way_ends),
        cmocka_unit_test(test_what_cannot_be),
        ONE(test_client_leaves),
        ONE(test_deadline),
        EACH(drain),
        EACH(end),
    };
    return cmocka_run_group_tests_name("exchange_states", tests, NULL, NULL);
}
