/* Whoever has no key gets nowhere, and is in nobody's way. */
#include "tests/unit/net/link_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>

static void another_key_is_refused(void **state) {
    (void)state;
    struct room r;
    struct sl_err err;
    struct sl_link *link;
    room_init(&r, true, true);
    struct sl_net_key *other = new_key();
    struct sl_link_config c = r.config;
    c.key = other;
    assert_int_equal(
        sl_link_connect(sl_listener_address(r.listener), &c, &r.near.owner, NULL, &link, &err),
        SL_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "another key"));
    sl_net_key_free(&other);
    room_join(&r); /* who has it is served */
    room_release(&r);
}

/* Whether the other side has closed it, or does so within ms. */
static bool is_closed(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    char rest[4096];
    while (poll(&p, 1, ms) > 0) {
        ssize_t n = recv(fd, rest, sizeof rest, MSG_DONTWAIT);
        if (n <= 0)
            return n == 0 || errno != EAGAIN;
    }
    return false;
}

/* More of them than there are places, and somebody with the key behind them: who comes is accepted
 * in order, so that all but 64 have lost their places by then. */
static void strangers_are_in_nobodys_way(void **state) {
    (void)state;
    enum { N = 1000, PLACES = 64 };
    struct room r;
    struct rlimit files;
    int fds[N], n_open = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    struct rlimit more = files;
    if (more.rlim_cur < N + 200)
        more.rlim_cur = N + 200;
    if (setrlimit(RLIMIT_NOFILE, &more) != 0)
        skip();
    room_init(&r, true, true);
    for (int i = 0; i < N; i++) {
        fds[i] = connect_raw(&r);
        static const char garbage[] = "GET / HTTP/1.1\r\n\r\n\x16\x03\x01\xff\xff\x01";
        if (i % 4 == 1) /* which may have lost its place */
            (void)!send(fds[i], garbage, sizeof garbage, MSG_NOSIGNAL);
    }
    room_join(&r);
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    wait_for(&r.far, 1);
    assert_int_equal(r.far.n_frames, 1);
    for (int i = 0; i < N; i++) {
        n_open += !is_closed(fds[i], 0);
        close(fds[i]);
    }
    assert_in_range(n_open, 0, PLACES);
    room_release(&r);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

/* Between the two, with both sides' bytes and no key. */
struct relay {
    const struct room *room;
    char address[64];
    int fd; /* where it listens */
    pthread_t thread;
    atomic_bool stop, repeat;
    int n_crowd;              /* who come, and say nothing, before the first answer is passed on */
    size_t most_back, n_back; /* it ends when so many bytes have gone back; 0: never */
    bool resets;              /* ... as a cut does, and not as who closes */
    atomic_size_t n;
    size_t last;             /* where the bytes that came last begin */
    uint8_t bytes[64 << 10]; /* [n] from who connected, the first of them */
};

static void write_all(int fd, const uint8_t *bytes, size_t n) {
    while (n) {
        ssize_t done = send(fd, bytes, n, MSG_NOSIGNAL);
        if (done <= 0)
            return;
        bytes += done;
        n -= (size_t)done;
    }
}

/* They all come, which the first of them sees: it has lost its place. */
static void let_crowd_come(struct relay *y) {
    int fds[256], n = y->n_crowd;
    y->n_crowd = 0;
    for (int i = 0; i < n; i++)
        fds[i] = connect_raw(y->room);
    assert_true(n == 0 || is_closed(fds[0], 60000));
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

static void *relay_main(void *arg) {
    struct relay *y = arg;
    uint8_t bytes[4096];
    int from = accept(y->fd, NULL, NULL), to = connect_raw(y->room);
    assert_true(from >= 0);
    for (bool open = true; open && !atomic_load(&y->stop);) {
        struct pollfd fds[] = {{from, POLLIN, 0}, {to, POLLIN, 0}};
        (void)!poll(fds, 2, 1);
        if (atomic_exchange(&y->repeat, false))
            write_all(to, y->bytes + y->last, atomic_load(&y->n) - y->last);
        for (int i = 0; i < 2; i++) {
            ssize_t n = fds[i].revents ? recv(fds[i].fd, bytes, sizeof bytes, 0) : 1;
            open &= n > 0;
            if (!fds[i].revents || n <= 0)
                continue;
            if (i)
                let_crowd_come(y);
            if (i && y->most_back && (size_t)n >= y->most_back - y->n_back) {
                write_all(from, bytes, y->most_back - y->n_back);
                y->n_back = y->most_back;
                open = false;
                break;
            }
            write_all(i ? from : to, bytes, (size_t)n);
            y->n_back += i ? (size_t)n : 0;
            size_t had = atomic_load(&y->n);
            if (i || had + (size_t)n > sizeof y->bytes)
                continue;
            memcpy(y->bytes + had, bytes, (size_t)n);
            y->last = had;
            atomic_store(&y->n, had + (size_t)n);
        }
    }
    const struct linger reset = {.l_onoff = 1};
    if (y->resets)
        assert_int_equal(setsockopt(from, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    close(from);
    close(to);
    return NULL;
}

static void relay_start(struct relay *y, const struct room *r) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    memset(y, 0, sizeof *y);
    y->room = r;
    y->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(y->fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(y->fd, 1), 0);
    assert_int_equal(getsockname(y->fd, (struct sockaddr *)&at, &n), 0);
    snprintf(y->address, sizeof y->address, "127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&y->thread, NULL, relay_main, y), 0);
}

static void relay_end(struct relay *y) {
    atomic_store(&y->stop, true);
    pthread_join(y->thread, NULL);
    close(y->fd);
}

/* Whose handshake takes its time keeps its place. */
static void silence_makes_way(void **state) {
    (void)state;
    struct room r;
    static struct relay y;
    room_init(&r, true, true);
    relay_start(&y, &r);
    y.n_crowd = 200;
    room_join_by(&r, y.address);
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    wait_for(&r.far, 1);
    assert_int_equal(r.far.n_frames, 1);
    room_release(&r);
    relay_end(&y);
}

/* So many bytes of the answer come, then the connection ends: how it went with who connects, and
 * how many have come. */
static enum sl_status cut_after(struct room *r, size_t most, bool resets, size_t *out_n,
                                struct sl_err *err) {
    static struct relay y;
    relay_start(&y, r);
    y.most_back = most;
    y.resets = resets;
    enum sl_status status =
        sl_link_connect(y.address, &r->config, &r->near.owner, NULL, &r->near.link, err);
    if (status == SL_OK)
        sl_link_close(r->near.link, 0);
    r->near.link = NULL;
    relay_end(&y);
    *out_n = y.n_back;
    return status;
}

/* It says nothing of keys, wherever it is cut: that can be tried again. */
static void a_cut_handshake_is_a_loss(void **state) {
    (void)state;
    struct sl_err err = {""};
    struct room r;
    size_t whole, n;
    room_init_quiet(&r, true, true);
    r.n_accepted = 1; /* who is accepted is left at once, and has not said a word */
    assert_int_equal(cut_after(&r, 0, false, &whole, &err), SL_OK);
    assert_true(whole > 100);
    for (size_t i = 0; i < 48; i++) {
        size_t k = i / 2, most = k < 6 ? k + 1 : k == 23 ? whole - 1 : whole * k / 24;
        bool resets = i % 2;
        enum sl_status status = cut_after(&r, most, resets, &n, &err);
        assert_int_equal(n, most);
        /* What has come is still read before a reset is seen, or is not. */
        if (status != SL_ERR_PEER_LOST || !strstr(err.text, "in the handshake") ||
            (resets && !strstr(err.text, strerror(ECONNRESET))))
            fail_msg("%zu of %zu bytes, %d: %d %s", most, whole, resets, status, err.text);
    }
    room_release(&r);
}

/* Nor does a cut in the middle of a record look like a record that cannot be read. */
static void a_cut_record_is_a_loss(void **state) {
    (void)state;
    struct sl_err err = {""};
    struct room r;
    size_t handshake, n;
    room_init_quiet(&r, true, true);
    r.n_accepted = 1;
    assert_int_equal(cut_after(&r, 0, false, &handshake, &err), SL_OK);
    room_release(&r);
    for (size_t i = 0; i < 16; i++) {
        static struct relay y;
        room_init_quiet(&r, true, true);
        relay_start(&y, &r);
        y.most_back = handshake + 3 + 40 * i;
        y.resets = i % 2;
        room_join_by(&r, y.address);
        (void)send_one(r.far.link, 0, 1000); /* which may know of the cut already */
        wait_for(&r.near, UINT32_MAX);
        assert_int_equal(times_lost(&r.near), 1);
        relay_end(&y);
        n = y.n_back;
        const char *why = r.near.why.text;
        if (n != y.most_back || r.near.lost != SL_ERR_PEER_LOST || r.near.n_frames ||
            (!strstr(why, "closed the connection") && !strstr(why, strerror(ECONNRESET))))
            fail_msg("%zu of %zu bytes: %s", n, y.most_back, why);
        room_release(&r);
    }
}

/* What was recorded of somebody with the key lets nobody in: not the whole of it, and no part. */
static void recordings_are_refused(void **state) {
    (void)state;
    struct room r;
    static struct relay y;
    room_init(&r, true, true);
    relay_start(&y, &r);
    room_join_by(&r, y.address);
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    wait_for(&r.far, 1);
    size_t n = atomic_load(&y.n);
    assert_true(n > 200);
    for (size_t i = 0; i < 24; i++) { /* cut handshakes, and the last is whole */
        size_t cut = i == 23 ? n : i < 8 ? i + 1 : n * i / 24;
        int fd = connect_raw(&r);
        write_all(fd, y.bytes, cut);
        const struct linger reset = {.l_onoff = 1};
        if (i % 3 == 1)
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
        else if (i % 3 == 2 && i < 23)
            (void)!shutdown(fd, SHUT_WR);
        if (i % 3 == 2) /* the whole recording too */
            assert_true(is_closed(fd, 60000));
        close(fd);
    }
    assert_int_equal(send_one(r.near.link, 1, 100), SL_OK); /* others are served meanwhile */
    wait_for(&r.far, 2);
    assert_int_equal(r.far.n_frames, 2);
    assert_int_equal(times_lost(&r.far), 0);
    pthread_mutex_lock(&r.lock);
    assert_int_equal(r.n_accepted, 1);
    pthread_mutex_unlock(&r.lock);
    room_release(&r);
    relay_end(&y);
}

/* Nor is a record believed twice within its connection. */
static void what_comes_twice_ends_the_link(void **state) {
    (void)state;
    struct room r;
    static struct relay y;
    room_init(&r, true, true);
    relay_start(&y, &r);
    room_join_by(&r, y.address);
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    wait_for(&r.far, 1);
    atomic_store(&y.repeat, true);
    wait_for(&r.far, UINT32_MAX);
    assert_int_equal(times_lost(&r.far), 1);
    assert_int_equal(r.far.lost, SL_ERR_PEER_LOST);
    assert_int_equal(r.far.n_frames, 1);
    room_release(&r);
    relay_end(&y);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(strangers_are_in_nobodys_way),
        cmocka_unit_test(silence_makes_way),
        cmocka_unit_test(a_cut_handshake_is_a_loss),
        cmocka_unit_test(a_cut_record_is_a_loss),
        cmocka_unit_test(recordings_are_refused),
        cmocka_unit_test(what_comes_twice_ends_the_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
