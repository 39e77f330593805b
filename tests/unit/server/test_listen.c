/* How many connections are taken, also when libmicrohttpd loses some. */
#include "fake_engine.c"

#include "common/clock.h"
#include "common/log.h"
#include "server/internal.h"

#include "client.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { MAX_CONNECTIONS = 4 };

static _Atomic uint32_t lose; /* so many of the next connections */

/* In place of libmicrohttpd's: says yes and drops the connection later, without a word, as that
 * does when it has no memory for it. */
enum MHD_Result MHD_add_connection(struct MHD_Daemon *daemon, MHD_socket fd,
                                   const struct sockaddr *addr, socklen_t len) {
    enum MHD_Result (*add)(struct MHD_Daemon *, MHD_socket, const struct sockaddr *, socklen_t);
    *(void **)&add = dlsym(RTLD_NEXT, "MHD_add_connection");
    if (!atomic_load(&lose))
        return add(daemon, fd, addr, len);
    atomic_fetch_sub(&lose, 1);
    close(fd);
    return MHD_YES;
}

static struct sl_server *server;

static int setup(void **state) {
    (void)state;
    sl_log_set_level(SL_LOG_ERROR);
    struct sl_err err;
    struct sl_server_config config = {.max_connections = MAX_CONNECTIONS};
    if (sl_server_create(&config, &server, &err) != SL_OK)
        fail_msg("%s", err.text);
    client_port = sl_server_port(server);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    sl_server_destroy(&server);
    return 0;
}

/* Whether an answer has come within so long. */
static bool answers(int fd, int ms) {
    struct timeval limit = {ms / 1000, ms % 1000 * 1000};
    char byte;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return recv(fd, &byte, 1, MSG_PEEK) == 1;
}

static int ask(void) {
    return client_begin_on(client_connect(0), "GET", "/health", "", NULL);
}

static void waits_while_all_are_taken(void **state) {
    (void)state;
    int held[MAX_CONNECTIONS];
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        held[i] = client_connect(0);
    while (atomic_load(&server->listen.n_open) < MAX_CONNECTIONS)
        usleep(1000);
    int fd = ask();
    assert_false(answers(fd, 2500)); /* longer than lost ones are waited for */
    close(held[0]);
    assert_true(answers(fd, 10000));
    close(fd);
    for (int i = 1; i < MAX_CONNECTIONS; i++)
        close(held[i]);
}

static void forgets_what_was_lost(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        atomic_store(&lose, MAX_CONNECTIONS);
        for (int i = 0; i < MAX_CONNECTIONS; i++) {
            int fd = ask();
            assert_false(answers(fd, 10000));
            close(fd);
        }
        assert_int_equal(atomic_load(&lose), 0);
        int fd = ask();
        assert_true(answers(fd, 10000));
        struct reply r = client_end(fd);
        assert_int_equal(r.status, 503); /* no model is loaded */
        reply_free(&r);
    }
    assert_true(atomic_load(&server->listen.n_handed) <= 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(waits_while_all_are_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(forgets_what_was_lost, setup, teardown),
    };
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
