/* Streamed tables on disks that err: the engine over the fake reader, whose faults are scripted. A
 * row that can be read again is; one that cannot fails the requests whose tokens need it, with a
 * text that names it, and no others; and when the disk is sound again, so is everything. */
#include "tests/fault/faulty_disk.h"

#include "backends/cpu/cpu.h"

#define SECOND_NS 1000000000u

static const struct sl_gguf_tensor *table;

/* Rows of 16 KiB, so that a fault can lie within one. */
static int setup(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("gemma4");
    sc.n_layer = 4;
    sc.n_embd_layer = 2048;
    sc.n_expert = sc.n_expert_used = 0;
    sc.tied = true;
    sc.embd = SL_DTYPE_F16;
    open_model(&model, &sc);
    read_model();
    table = model.model->global[SL_G_LAYER_EMBD];
    assert_int_equal(table->size_bytes / table->ne[1], 16384);
    struct sl_engine_config c = {
        .n_threads = 1, .ctx_tokens = N_CTX, .parallel = 1, .ram_bytes = AMPLE_BYTES};
    struct sl_engine *e = new_engine(&model, &c);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        clean[i] = run_one(e, i);
        assert_int_equal(clean[i]->n, N_ANSWER);
    }
    sl_engine_destroy(&e);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(clean[i]);
    free(model_bytes);
    close_model(&model);
    return 0;
}

static struct sl_engine_config tables_config(const struct sl_reader_source *disk,
                                             uint64_t cache_bytes) {
    return (struct sl_engine_config){.n_threads = 1,
                                     .ctx_tokens = N_CTX,
                                     .parallel = N_RUNS,
                                     .batch_tokens = 32,
                                     .ram_bytes = AMPLE_BYTES,
                                     .tables = SL_TABLES_STREAMED,
                                     .table_cache_bytes = cache_bytes,
                                     .reader_source = disk};
}

static struct sl_engine *tables_on(struct disk *d, uint64_t cache_bytes) {
    struct sl_engine_config c = tables_config(&d->base, cache_bytes);
    return new_engine(&model, &c);
}

static struct sl_fake_fault at_row(uint32_t token) {
    uint64_t first = table->offset_bytes + (uint64_t)token * 16384;
    return (struct sl_fake_fault){
        .first_byte = first + 8192, .last_byte = first + 8192, .error = EIO};
}

static void passing_faults_do_not_show(void **state) {
    (void)state;
    for (uint32_t kind = 0; kind < 5; kind++) {
        struct disk d = new_disk();
        struct sl_fake_fault *f = &d.faults[d.n_faults++];
        *f = everywhere();
        switch (kind) {
        case 0: /* twice in a row */
            f->error = EIO;
            f->times = 2;
            break;
        case 1: /* never more than a block at once */
            f->cut_short = true;
            f->short_bytes = 4096;
            break;
        case 2: /* slow starts */
            f->delay_ns = 2ull * SECOND_NS;
            f->times = 5;
            break;
        case 3: /* interrupted */
            f->error = EINTR;
            f->times = 20;
            break;
        case 4: /* in any order, one of them late */
            d.reorder_seed = 9;
            *f = at_row(clean[2]->prompt[3]);
            f->error = 0;
            f->delay_ns = 2ull * SECOND_NS;
            break;
        }
        struct sl_engine *e = tables_on(&d, kind % 2 ? 1 : 200000);
        expect_clean(e);
        expect_clean(e);
        sl_engine_destroy(&e);
    }
}

static bool has(const struct run *r, uint32_t token, uint32_t n_answer) {
    for (uint32_t i = 0; i < r->req.n_prompt; i++)
        if (r->prompt[i] == token)
            return true;
    for (uint32_t i = 0; i < n_answer; i++)
        if (r->tokens[i].id == token)
            return true;
    return false;
}

/* Runs with the fault: each fails if and only if one of its tokens has that row; the last token of
 * an answer is not read. */
static uint32_t check_row(uint32_t token, uint64_t cache_bytes) {
    struct disk d = new_disk();
    char says[64];
    struct run *r[N_RUNS];
    uint32_t n_failed = 0;
    d.faults[d.n_faults++] = at_row(token);
    snprintf(says, sizeof says, "row %u of tensor 'per_layer_token_embd.weight'", token);
    struct sl_engine *e = tables_on(&d, cache_bytes);
    uint64_t before = (uint64_t)sl_metric(table_rows_failed_total);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        r[i] = make_run(i);
        submit(e, r[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        wait_run(r[i]);
        if (!has(clean[i], token, N_ANSWER - 1)) {
            assert_clean(r[i], i);
            free_run(r[i]);
            continue;
        }
        assert_failed(r[i], i, SL_ERR_IO, says);
        n_failed++;
        free_run(r[i]);
    }
    assert_true((uint64_t)sl_metric(table_rows_failed_total) >= before + (n_failed > 0));
    struct run *last = make_run(0); /* heals on the thread that reads */
    last->user = &d;
    last->on_token = heal;
    submit(e, last);
    wait_run(last);
    if (!has(clean[0], token, N_ANSWER - 1)) {
        assert_clean(last, 0);
        expect_clean(e);
    }
    free_run(last);
    sl_engine_destroy(&e);
    return n_failed;
}

static void an_unreadable_row_ends_its_requests(void **state) {
    (void)state;
    static const uint64_t caches[] = {1, 100000, 1 << 20};
    uint32_t n_failed = 0, n_alone = 0;
    for (uint32_t k = 0; k < 3; k++) {
        /* Of a prompt in one slice, of the second slice of another, of an answer's second token. */
        const uint32_t tokens[] = {clean[0]->prompt[1], clean[2]->prompt[5], clean[2]->prompt[39],
                                   clean[1]->tokens[1].id, clean[3]->tokens[4].id};
        for (uint32_t i = 0; i < 5; i++) {
            uint32_t n = check_row(tokens[i], caches[k]);
            n_failed += n;
            n_alone += n == 1;
        }
    }
    assert_true(n_failed >= 15 && n_alone > 0);
}

/* Two stages, each with a disk and a clock of its own. */
struct disks {
    struct sl_reader_source base; /* first */
    struct disk each[2];
    uint32_t n;
};

static enum sl_status open_next(const struct sl_reader_source *source,
                                const struct sl_reader_config *config,
                                struct sl_reader **out_reader, struct sl_err *err) {
    struct disks *d = (struct disks *)(uintptr_t)source;
    assert_true(d->n < 2);
    return open_disk(&d->each[d->n++].base, config, out_reader, err);
}

static enum sl_status open_cpu(const struct sl_device_source *source, uint32_t index,
                               struct sl_device **out_device, struct sl_err *err) {
    (void)source, (void)index;
    return sl_cpu_open(&(struct sl_cpu_config){.n_threads = 1, .isa = SL_CPU_BEST}, out_device,
                       err);
}

/* A row of which only one stage's part cannot be read, on both of their disks: of the first, which
 * has layers 0 and 1, or the second. */
static void so_it_does_at_a_later_stage(void **state) {
    (void)state;
    static const struct sl_device_source cpus = {open_cpu, 2};
    for (uint32_t stage = 0; stage < 2; stage++) {
        struct disks d = {.base = {open_next}, .each = {new_disk(), new_disk()}};
        uint32_t token = clean[1]->tokens[1].id, n_failed = 0;
        uint64_t at = table->offset_bytes + (uint64_t)token * 16384 + 4096 + 8192 * stage;
        for (uint32_t i = 0; i < 2; i++)
            d.each[i].faults[d.each[i].n_faults++] =
                (struct sl_fake_fault){.first_byte = at, .last_byte = at, .error = EIO};
        struct sl_engine_config c = tables_config(&d.base, 100000);
        c.device_source = &cpus;
        c.split = "2,2";
        struct sl_engine *e = new_engine(&model, &c);
        assert_int_equal(d.n, 2);
        uint64_t before = (uint64_t)sl_metric(table_rows_failed_total);
        for (uint32_t again = 0; again < 2; again++) {
            struct run *r[N_RUNS];
            char says[64];
            snprintf(says, sizeof says, "row %u of tensor 'per_layer_token_embd.weight'", token);
            for (uint32_t i = 0; i < N_RUNS; i++) {
                r[i] = make_run(i);
                submit(e, r[i]);
            }
            for (uint32_t i = 0; i < N_RUNS; i++) {
                wait_run(r[i]);
                if (has(clean[i], token, N_ANSWER - 1)) {
                    assert_failed(r[i], i, SL_ERR_IO, says);
                    n_failed++;
                } else {
                    assert_clean(r[i], i);
                }
                free_run(r[i]);
            }
        }
        assert_true(n_failed > 0);
        assert_true((uint64_t)sl_metric(table_rows_failed_total) > before);
        sl_engine_destroy(&e);
    }
}

/* Nothing can be read: every request ends, and is answered when the disk is there again. */
static void a_dead_disk_ends_requests(void **state) {
    (void)state;
    struct disk d = new_disk();
    d.faults[d.n_faults] = everywhere();
    d.faults[d.n_faults++].error = EIO;
    struct sl_engine *e = tables_on(&d, 100000);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        struct run *r = run_one(e, i);
        assert_failed(r, i, SL_ERR_IO, "cannot read");
        assert_int_equal(r->n, 0);
        free_run(r);
    }
    sl_engine_destroy(&e);
}

static void an_absent_disk_is_told(void **state) {
    (void)state;
    struct disk d = new_disk();
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = N_CTX,
                                 .ram_bytes = AMPLE_BYTES,
                                 .tables = SL_TABLES_STREAMED,
                                 .reader_source = &d.base};
    struct sl_engine *e = NULL;
    d.absent = true;
    assert_int_equal(sl_engine_create(model.model, &c, NULL, &e, &test_err), SL_ERR_IO);
    assert_non_null(strstr(test_err.text, "absent"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passing_faults_do_not_show),
        cmocka_unit_test(an_unreadable_row_ends_its_requests),
        cmocka_unit_test(so_it_does_at_a_later_stage),
        cmocka_unit_test(a_dead_disk_ends_requests),
        cmocka_unit_test(an_absent_disk_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
