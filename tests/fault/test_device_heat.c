/* The disk under --heat-file hangs while layers are divided over devices: the start waits for it
 * once, divides without, and runs. */
#include "tests/support/card.h"
#include "tests/unit/engine/fixture.h"

#include <stdatomic.h>
#include <sys/stat.h>

#define MIB     ((uint64_t)1 << 20)
#define HELD    "-held"
#define N_LAYER 4u

int __real_stat(const char *name, struct stat *about);
int __wrap_stat(const char *name, struct stat *about);

static atomic_bool hold;   /* until the test lets go */
static atomic_uint n_held; /* calls that wait, or have waited */

int __wrap_stat(const char *name, struct stat *about) {
    size_t n = strlen(name), tail = sizeof HELD - 1;
    if (n > tail && strcmp(name + n - tail, HELD) == 0 && atomic_load(&hold)) {
        atomic_fetch_add(&n_held, 1);
        while (atomic_load(&hold))
            usleep(1000);
    }
    return __real_stat(name, about);
}

static void a_split_on_a_disk_that_hangs(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    struct card_source source;
    char path[64];
    sc.n_layer = N_LAYER;
    sc.n_embd = 256;
    sc.n_ff_expert = 256;
    sc.n_expert = 64;
    open_model(&m, &sc);
    snprintf(path, sizeof path, "/tmp/sluice-heat-%ld" HELD, (long)getpid());
    unlink(path);
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 2});
    struct sl_engine_config c = {.ctx_tokens = 128,
                                 .parallel = 1,
                                 .batch_tokens = 8,
                                 .n_threads = 1,
                                 .ram_bytes = 1024 * MIB,
                                 .vram_bytes = 12 * MIB,
                                 .heat_file = path,
                                 .no_warm_up = true,
                                 .device_source = &source.source};
    atomic_store(&hold, true);
    uint64_t began = sl_now_ns();
    struct sl_engine *e = new_engine(&m, &c);
    assert_in_range(sl_now_ns() - began, 4900000000u, 15000000000u);
    assert_int_equal(atomic_load(&n_held), 1); /* nobody asked again, to keep heat there or else */
    struct sl_engine_info info;
    sl_engine_info(e, &info);
    assert_true(info.streaming);
    assert_int_equal(info.n_stages, 2);
    assert_int_equal(info.stages[0].n_layer, N_LAYER / 2);
    struct run *r = new_run(1, 20, m.model->hp.n_vocab, 8);
    r->req.ignore_eog = true;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    free_run(r);
    began = sl_now_ns();
    sl_engine_destroy(&e); /* nothing is saved, and nobody waited for */
    assert_in_range(sl_now_ns() - began, 0, 4000000000u);
    atomic_store(&hold, false);
    usleep(50000); /* the thread ends, and releases what it has */
    assert_int_not_equal(access(path, F_OK), 0);
    close_model(&m);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_split_on_a_disk_that_hangs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
