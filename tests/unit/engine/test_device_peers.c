/* What one device takes from another: two threads, a card each, rows sent from one to the other
 * in turns; and that the cards are late enough to show a signal that was not followed. */
#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "backends/null/null.h"
#include "tests/support/card.h"
#include "tests/support/device_memory.h"

#include <stdatomic.h>

#define ROWS     2000u
#define CHANNELS 3u
#define BYTES    256u

static struct card_source source;

static void open_two(struct card_config config, struct sl_device *out[2]) {
    config.n_threads = 1;
    config.n_cards = 2;
    card_source_init(&source, &config);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(source.source.open(&source.source, i, &out[i], &test_err));
}

static void close_two(struct sl_device *d[2]) {
    sl_device_close(&d[0]);
    sl_device_close(&d[1]);
    assert_int_equal(source.n_open, 0);
    assert_int_equal(source.stats.n_signals, 0);
}

/* A ring of channels between two threads: each has a buffer on the sender's card. */
struct ring {
    struct sl_device *from, *to;
    struct sl_signal *sent[CHANNELS], *taken[CHANNELS];
    void *buffer[CHANNELS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_sent, n_taken;
    atomic_bool failed;
};

static void wait_until(struct ring *r, const uint32_t *n, uint32_t least) {
    pthread_mutex_lock(&r->lock);
    while (*n < least && !r->failed)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

static void advance(struct ring *r, uint32_t *n, enum sl_status status) {
    pthread_mutex_lock(&r->lock);
    if (status != SL_OK)
        r->failed = true;
    ++*n;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void *send_rows(void *arg) {
    struct ring *r = arg;
    uint8_t row[BYTES];
    for (uint32_t i = 0; i < ROWS && !r->failed; i++) {
        uint32_t channel = i % CHANNELS;
        wait_until(r, &r->n_taken, i < CHANNELS ? 0 : i - CHANNELS + 1);
        enum sl_status status = sl_signal_follow(r->from, r->to, r->taken[channel]);
        memset(row, (int)(i % 251), sizeof row);
        if (status == SL_OK)
            status = mem_upload(r->from, r->buffer[channel], row, sizeof row);
        if (status == SL_OK)
            status = sl_signal_raise(r->from, r->sent[channel]);
        advance(r, &r->n_sent, status);
    }
    return NULL;
}

static void hand_over(struct ring *r) {
    pthread_t sender;
    void *mine[CHANNELS];
    uint32_t wrong = 0;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    assert_int_equal(sl_device_peer_open(r->to, r->from), SL_OK);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        assert_int_equal(sl_signal_create(r->from, &r->sent[i]), SL_OK);
        assert_int_equal(sl_signal_create(r->to, &r->taken[i]), SL_OK);
        assert_int_equal(mem_alloc(r->from, BYTES, &r->buffer[i]), SL_OK);
        assert_int_equal(mem_alloc(r->to, BYTES, &mine[i]), SL_OK);
    }
    assert_int_equal(pthread_create(&sender, NULL, send_rows, r), 0);
    for (uint32_t i = 0; i < ROWS && !r->failed; i++) {
        uint32_t channel = i % CHANNELS;
        uint8_t got[BYTES];
        wait_until(r, &r->n_sent, i + 1);
        enum sl_status status = sl_signal_follow(r->to, r->from, r->sent[channel]);
        if (status == SL_OK)
            status = mem_copy_from(r->to, mine[channel], r->from, r->buffer[channel], BYTES);
        if (status == SL_OK)
            status = sl_signal_raise(r->to, r->taken[channel]);
        advance(r, &r->n_taken, status);
        if (status == SL_OK && i % 7 == 0) { /* else only later rows make it run */
            status = mem_download(r->to, got, mine[channel], BYTES);
            for (uint32_t k = 0; k < BYTES && status == SL_OK; k++)
                wrong += got[k] != i % 251;
        }
    }
    pthread_join(sender, NULL);
    assert_int_equal(wrong, 0);
    (void)!sl_device_sync(r->to);
    (void)!sl_device_sync(r->from);
    for (uint32_t i = 0; i < CHANNELS; i++) {
        mem_free(r->from, r->buffer[i]);
        mem_free(r->to, mine[i]);
        sl_signal_free(r->from, &r->sent[i]);
        sl_signal_free(r->to, &r->taken[i]);
        assert_null(r->sent[i]);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

static void two_threads(void **state) {
    (void)state;
    struct sl_device *d[2];
    open_two((struct card_config){0}, d);
    struct ring r = {.from = d[0], .to = d[1]};
    hand_over(&r);
    assert_false(r.failed);
    assert_int_equal(source.stats.n_peer_copies, ROWS);
    close_two(d);
}

static void who_does_not_follow_sees_nothing(void **state) {
    (void)state;
    struct sl_device *d[2];
    struct sl_signal *s;
    void *a, *b;
    uint8_t row[16], got[16];
    open_two((struct card_config){0}, d);
    memset(row, 7, sizeof row);
    assert_int_equal(mem_alloc(d[0], sizeof row, &a), SL_OK);
    assert_int_equal(mem_alloc(d[1], sizeof row, &b), SL_OK);
    assert_int_equal(sl_signal_create(d[0], &s), SL_OK);
    for (int follows = 0; follows < 2; follows++) {
        if (follows) /* one that was never raised holds nobody up */
            assert_int_equal(sl_signal_follow(d[1], d[0], s), SL_OK);
        assert_int_equal(mem_upload(d[0], a, row, sizeof row), SL_OK);
        assert_int_equal(sl_signal_raise(d[0], s), SL_OK);
        if (follows)
            assert_int_equal(sl_signal_follow(d[1], d[0], s), SL_OK);
        assert_int_equal(mem_copy_from(d[1], b, d[0], a, sizeof row), SL_OK);
        assert_int_equal(mem_download(d[1], got, b, sizeof got), SL_OK);
        assert_int_equal(got[0], follows ? 7 : 0xdb);
    }
    mem_free(d[0], a);
    mem_free(d[1], b);
    sl_signal_free(d[0], &s);
    close_two(d);
}

static void failures(void **state) {
    (void)state;
    struct sl_device *d[2];
    open_two((struct card_config){.fail_peer = 700, .fail_card = 2}, d);
    struct ring r = {.from = d[0], .to = d[1]};
    hand_over(&r);
    assert_true(r.failed);
    assert_int_equal(sl_device_sync(d[1]), SL_ERR_DEVICE_LOST);
    /* The other one waits for what will not come, and is told so. */
    assert_int_equal(sl_device_sync(d[0]), SL_ERR_DEVICE_LOST);
    close_two(d);
    open_two((struct card_config){.no_peers = true}, d);
    assert_int_equal(sl_device_peer_open(d[1], d[0]), SL_ERR_UNSUPPORTED);
    close_two(d);
}

/* Devices that execute at once, and what the front refuses. */
static void others(void **state) {
    (void)state;
    struct sl_device *cpu[2], *null, *card[2];
    struct sl_signal *s;
    void *a, *b;
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(sl_cpu_open(&(struct sl_cpu_config){1, SL_CPU_BEST, 0}, &cpu[i], &test_err));
    assert_ok(sl_null_open(&null, &test_err));
    struct ring r = {.from = cpu[0], .to = cpu[1]};
    hand_over(&r);
    assert_false(r.failed);
    assert_int_equal(sl_signal_create(cpu[0], &s), SL_OK);
    assert_int_equal(mem_alloc(cpu[0], 8, &a), SL_OK);
    assert_int_equal(mem_alloc(cpu[1], 8, &b), SL_OK);
    strcpy(a, "hidden");
    assert_int_equal(mem_copy_from(cpu[1], b, cpu[0], a, 8), SL_OK);
    assert_string_equal(b, "hidden");
    assert_int_equal(sl_device_peer_open(cpu[0], null), SL_ERR_UNSUPPORTED);
    assert_int_equal(mem_copy_from(null, b, cpu[0], a, 1), SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_signal_follow(null, cpu[0], s), SL_ERR_UNSUPPORTED);
    assert_int_equal(mem_copy_from(cpu[1], NULL, cpu[0], a, 1), SL_ERR_INVALID);
    /* Each side is a buffer of the device that is said to have it. */
    assert_int_equal(
        sl_device_copy_from(cpu[1], mem_span(cpu[1], b, 8), cpu[0], mem_span(cpu[1], b, 8)),
        SL_ERR_INVALID);
    mem_free(cpu[0], a);
    mem_free(cpu[1], b);
    sl_signal_free(cpu[0], &s);
    sl_signal_free(cpu[0], &s);
    for (uint32_t i = 0; i < 2; i++)
        sl_device_close(&cpu[i]);
    sl_device_close(&null);
    open_two((struct card_config){0}, card);
    assert_int_equal(sl_signal_create(card[0], &s), SL_OK);
    assert_int_equal(sl_device_record(card[0]), SL_OK);
    assert_int_equal(sl_signal_raise(card[0], s), SL_ERR_INVALID);
    assert_int_equal(mem_copy_from(card[0], b, card[1], a, 1), SL_ERR_INVALID);
    assert_int_equal(sl_device_recorded(card[0], NULL), SL_OK);
    sl_signal_free(card[0], &s);
    close_two(card);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads),
        cmocka_unit_test(who_does_not_follow_sees_nothing),
        cmocka_unit_test(failures),
        cmocka_unit_test(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
