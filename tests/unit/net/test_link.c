/* Links over sockets of this machine: frames arrive whole and in order, and who goes, lies or keeps
 * silent is noticed. */
#include "tests/unit/net/link_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>

static void echo(bool keyed, bool tcp) {
    static const size_t sizes[] = {0, 1, 31, 32, 33, 4095, 16384, 16385, 70001, MAX_SENT};
    uint32_t n = BY_BUILD(200, 60, 40), sent = 0;
    uint64_t sum = 0;
    struct room r;
    room_init(&r, keyed, tcp);
    r.far.echoes = true;
    room_join(&r);
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = sizes[i % (sizeof sizes / sizeof *sizes)];
        enum sl_status status;
        while ((status = send_one(r.near.link, i, bytes)) == SL_AGAIN)
            usleep(100); /* the queue is full: nothing was sent */
        assert_int_equal(status, SL_OK);
        sum += bytes;
        sent++;
    }
    wait_for(&r.far, sent);
    wait_for(&r.near, sent);
    assert_int_equal(r.far.n_frames, sent);
    assert_int_equal(r.near.n_frames, sent);
    assert_int_equal(r.near.sum, sum);
    assert_int_equal(times_lost(&r.far) + times_lost(&r.near), 0);
    struct sl_link_stats s = sl_link_stats(r.near.link);
    assert_true(s.sent_frames >= sent && s.received_frames >= sent);
    assert_true(keyed ? s.received_bytes > sum : s.received_bytes > sum);
    room_release(&r);
}

static void frames_come_back(void **state) {
    (void)state;
    echo(false, false);
    echo(false, true);
    echo(true, false);
    echo(true, true);
}

/* Heartbeats measure the way and the other's clock, which is ours here. */
static void clocks_are_compared(void **state) {
    (void)state;
    struct room r;
    struct sl_link_stats s = {0};
    room_init(&r, true, true);
    room_join(&r);
    for (uint64_t until = sl_now_ns() + LONG_NS; !s.round_trip_ns && sl_now_ns() < until;) {
        usleep(1000);
        s = sl_link_stats(r.near.link);
    }
    assert_true(s.round_trip_ns > 0);
    int64_t off = s.clock_offset_ns < 0 ? -s.clock_offset_ns : s.clock_offset_ns;
    assert_true((uint64_t)off <= s.round_trip_ns + 1000000000u);
    room_release(&r);
}

/* ---- what they take ---- */

static size_t allocated(void) {
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* All that links and strangers have allocated is in what is stated of them, which is not much more.
 */
static void they_take_what_is_stated(void **state) {
    (void)state;
    if (SLOW_BUILD) /* whose allocators say nothing */
        skip();
    for (uint32_t keyed = 0; keyed < 2; keyed++) {
        enum { PAIRS = 8, STRANGERS = 40, FRAME = 60000 };
        struct room rooms[PAIRS];
        int fds[STRANGERS];
        size_t before = allocated();
        for (uint32_t i = 0; i < PAIRS; i++) {
            room_init(&rooms[i], keyed, true);
            sl_listener_close(rooms[i].listener);
            rooms[i].config.max_payload_bytes = FRAME;
            rooms[i].config.queue_bytes = 2 * FRAME;
            struct sl_err err;
            assert_int_equal(sl_listener_open("127.0.0.1:0", &rooms[i].config, &rooms[i].owner,
                                              &rooms[i].listener, &err),
                             SL_OK);
            room_join(&rooms[i]);
        }
        for (uint32_t i = 0; i < PAIRS; i++) { /* TLS has had its largest records by then */
            assert_int_equal(send_one(rooms[i].near.link, 0, FRAME), SL_OK);
            wait_for(&rooms[i].far, 1);
        }
        size_t own = FRAME + 1 + 2 * FRAME, took = (allocated() - before) / PAIRS;
        size_t stated = 2 * (sl_link_bytes(keyed) + own) + sl_listener_bytes(keyed);
        assert_true(took <= stated);
        /* Strangers that there are not aside. */
        assert_true(took >= (stated - sl_listener_bytes(keyed)) * 3 / 4);
        before = allocated();
        for (uint32_t i = 0; i < STRANGERS; i++) {
            fds[i] = connect_raw(&rooms[0]);
            static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
            (void)!send(fds[i], hello, sizeof hello - 1, MSG_NOSIGNAL);
        }
        usleep(50000); /* those that come later count as well */
        assert_true(allocated() - before <= sl_listener_bytes(keyed));
        for (uint32_t i = 0; i < STRANGERS; i++)
            close(fds[i]);
        for (uint32_t i = 0; i < PAIRS; i++)
            room_release(&rooms[i]);
    }
}

/* ---- who goes ---- */

static void who_goes_is_noticed_once(void **state) {
    (void)state;
    for (uint32_t keyed = 0; keyed < 2; keyed++) {
        struct room r;
        room_init(&r, keyed, true);
        room_join(&r);
        sl_link_close(r.far.link, 0);
        r.far.link = NULL;
        wait_for(&r.near, UINT32_MAX);
        assert_int_equal(times_lost(&r.near), 1);
        assert_int_equal(r.near.lost, SL_ERR_PEER_LOST);
        assert_int_equal(send_one(r.near.link, 0, 10), SL_ERR_PEER_LOST);
        room_release(&r);
        assert_int_equal(times_lost(&r.near), 1);
    }
}

static void who_makes_no_sense_is_left(void **state) {
    (void)state;
    struct room r;
    room_init(&r, true, false);
    r.far.refuses = true;
    room_join(&r);
    assert_int_equal(send_one(r.near.link, 0, 10), SL_OK);
    wait_for(&r.far, UINT32_MAX);
    assert_int_equal(r.far.lost, SL_ERR_PROTOCOL);
    assert_non_null(strstr(r.far.why.text, "no sense"));
    room_release(&r);
}

static void what_does_not_fit_is_not_sent(void **state) {
    (void)state;
    struct room r;
    room_init(&r, false, false);
    room_join(&r);
    assert_int_equal(send_one(r.near.link, 0, 3 * MAX_SENT), SL_AGAIN);
    assert_int_equal(sl_link_set_max_payload(r.far.link, 4 * MAX_SENT, 0), SL_OK);
    assert_int_equal(sl_link_set_max_payload(r.near.link, MAX_SENT, 4 * MAX_SENT), SL_OK);
    assert_int_equal(send_one(r.near.link, 0, 3 * MAX_SENT), SL_OK);
    wait_for(&r.far, 1);
    assert_int_equal(r.far.sum, 3 * MAX_SENT);
    room_release(&r);
}

static void lies_end_the_link(void **state) {
    (void)state;
    static const struct sl_frame_head lies[] = {{SL_FRAME_CALL, 0, 2, 0},
                                                {SL_FRAME_CALL, 0, 1, (uint64_t)1 << 63},
                                                {SL_FRAME_CALL, 0, 1, UINT64_MAX},
                                                {SL_FRAME_CALL, 0, 1, MAX_SENT + 2},
                                                {SL_FRAME_TYPES, 0, 1, 0},
                                                {SL_FRAME_HEARTBEAT, 0, 1, 7},
                                                {SL_FRAME_HEARTBEAT_ANSWER, 0, 1, 16}};
    size_t n_lies = sizeof lies / sizeof *lies;
    for (size_t i = 0; i < 2 * n_lies; i++) {
        uint8_t bytes[SL_FRAME_HEAD_BYTES + 16];
        struct room r;
        struct sl_err err;
        size_t n = 0;
        memset(bytes, 0xff, sizeof bytes);
        room_init(&r, i >= n_lies, i % 2);
        struct sl_transport *t = connect_proven(&r);
        sl_frame_put_head(&lies[i % n_lies], bytes);
        assert_int_equal(sl_transport_write(t, bytes, sizeof bytes, &n, &err), SL_OK);
        assert_int_equal(n, sizeof bytes);
        wait_for(&r.far, UINT32_MAX);
        assert_int_equal(r.far.lost, SL_ERR_PROTOCOL);
        assert_int_equal(r.far.n_frames, 0);
        sl_transport_close(&t);
        room_release(&r);
    }
}

static void silence_is_a_loss(void **state) {
    (void)state;
    struct room r;
    room_init(&r, false, false);
    sl_listener_close(r.listener);
    r.config.silence_ns = 50000000;
    struct sl_err err;
    char address[128];
    snprintf(address, sizeof address, "unix:%s/s", r.folder);
    assert_int_equal(sl_listener_open(address, &r.config, &r.owner, &r.listener, &err), SL_OK);
    int fd = connect_raw(&r);
    wait_for(&r.far, UINT32_MAX);
    assert_int_equal(r.far.lost, SL_ERR_PEER_LOST);
    assert_non_null(strstr(r.far.why.text, "nothing has come"));
    close(fd);
    room_release(&r);
}
/* ---- addresses and keys ---- */

static void only_this_machine_without_a_key(void **state) {
    (void)state;
    const struct sl_link_config plain = {.connect_ns = LONG_NS};
    struct sl_listener_owner owner = {NULL};
    struct sl_listener *l;
    struct sl_link *link;
    struct sl_err err;
    assert_int_equal(sl_listener_open("0.0.0.0:0", &plain, &owner, &l, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "not on this machine"));
    assert_int_equal(sl_link_connect("192.0.2.1:7070", &plain, NULL, NULL, &link, &err),
                     SL_ERR_CONFIG);
    static const char *const bad[] = {
        "", ":", "host", "host:", "host:x", "1:2:3", "host:123456", "unix:"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_link_connect(bad[i], &plain, NULL, NULL, &link, &err), SL_ERR_CONFIG);
}

/* "two" is a machine with two addresses; all else is a number. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out) {
    static const char *const two[] = {"127.0.0.2", "127.0.0.1"};
    bool both = node && strcmp(node, "two") == 0;
    (void)hints;
    *out = NULL;
    for (uint32_t i = both ? 2 : 1; i-- > 0;) {
        struct addrinfo *a = calloc(1, sizeof *a + sizeof(struct sockaddr_in));
        assert_non_null(a);
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)(a + 1);
        const char *host = both ? two[i] : node ? node : "0.0.0.0";
        *in =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(service))};
        if (inet_pton(AF_INET, host, &in->sin_addr) != 1) {
            free(a);
            return EAI_NONAME;
        }
        *a = (struct addrinfo){.ai_family = AF_INET,
                               .ai_addr = (struct sockaddr *)(void *)in,
                               .ai_addrlen = sizeof *in,
                               .ai_next = *out};
        *out = a;
    }
    return 0;
}

void freeaddrinfo(struct addrinfo *list) {
    while (list) {
        struct addrinfo *a = list;
        list = a->ai_next;
        free(a);
    }
}

/* The first address of a machine takes connections from nobody, without a word: the second has its
 * time. */
static void an_address_that_is_dead_is_passed_over(void **state) {
    (void)state;
    struct room r;
    struct sl_err err;
    struct sockaddr_in dead = {.sin_family = AF_INET};
    char address[64];
    room_init(&r, true, true);
    int port = atoi(strrchr(sl_listener_address(r.listener), ':') + 1), crowd[8];
    dead.sin_port = htons((uint16_t)port);
    dead.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    int full = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(full, (struct sockaddr *)(void *)&dead, sizeof dead), 0);
    assert_int_equal(listen(full, 0), 0);
    for (size_t i = 0; i < sizeof crowd / sizeof *crowd; i++) { /* it has room for few */
        crowd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(crowd[i], (struct sockaddr *)(void *)&dead, sizeof dead);
    }
    snprintf(address, sizeof address, "127.0.0.2:%d", port);
    r.config.connect_ns = 200000000u;
    assert_int_equal(sl_link_connect(address, &r.config, &r.near.owner, NULL, &r.near.link, &err),
                     SL_ERR_PEER_LOST);
    assert_non_null(strstr(err.text, "does not answer"));
    snprintf(address, sizeof address, "two:%d", port);
    r.config.connect_ns = 4000000000u;
    room_join_by(&r, address);
    close(full);
    for (size_t i = 0; i < sizeof crowd / sizeof *crowd; i++)
        close(crowd[i]);
    room_release(&r);
}

static void keys_are_read_with_care(void **state) {
    (void)state;
    struct sl_net_key *key = NULL;
    struct sl_err err;
    char text[SL_NET_KEY_TEXT_BYTES], other[SL_NET_KEY_TEXT_BYTES];
    assert_int_equal(sl_net_key_generate(text, &err), SL_OK);
    assert_int_equal(sl_net_key_generate(other, &err), SL_OK);
    assert_string_not_equal(text, other);
    assert_int_equal(strlen(text), strlen("sluice-key-1:") + 64);
    static const size_t wrong[] = {0, 12, 13, 40, 76};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(other, sizeof other, "%s", text);
        other[wrong[i]] = 'G';
        assert_int_equal(sl_net_key_parse(other, "x", &key, &err), SL_ERR_CONFIG);
        assert_null(strstr(err.text, text + 20)); /* never shown */
    }
    other[0] = 0;
    assert_int_equal(sl_net_key_parse(other, "x", &key, &err), SL_ERR_CONFIG);
    char padded[128];
    snprintf(padded, sizeof padded, " \n%s\r\n", text);
    assert_int_equal(sl_net_key_parse(padded, "x", &key, &err), SL_OK);
    sl_net_key_free(&key);
    assert_int_equal(sl_net_key_read("/", &key, &err), SL_ERR_CONFIG);
    assert_int_equal(sl_net_key_read("/no/such/file", &key, &err), SL_ERR_CONFIG);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_back),
        cmocka_unit_test(clocks_are_compared),
        cmocka_unit_test(they_take_what_is_stated),
        cmocka_unit_test(who_goes_is_noticed_once),
        cmocka_unit_test(who_makes_no_sense_is_left),
        cmocka_unit_test(what_does_not_fit_is_not_sent),
        cmocka_unit_test(lies_end_the_link),
        cmocka_unit_test(silence_is_a_loss),
        cmocka_unit_test(only_this_machine_without_a_key),
        cmocka_unit_test(an_address_that_is_dead_is_passed_over),
        cmocka_unit_test(keys_are_read_with_care),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
