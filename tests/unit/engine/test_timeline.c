/* The trace: whole JSON whenever the process stops, bounded, and true to what ran. */
#include "tests/unit/engine/fixture.h"

#include "common/metrics.h"
#include "engine/plan/memory_plan.h"
#include "engine/trace/timeline.h"

#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char path[64];

static int make_path(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/sluice-trace-%ld-XXXXXX", (long)getpid());
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int drop_path(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

/* The file's events; fails unless the file is JSON. */
static json_t *events(json_t **out_root) {
    json_error_t why;
    *out_root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!*out_root)
        fail_msg("%s: line %d: %s", path, why.line, why.text);
    json_t *list = json_object_get(*out_root, "traceEvents");
    assert_true(json_is_array(list));
    return list;
}

static double number(const json_t *e, const char *name) {
    const json_t *v = json_object_get(e, name);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static bool is(const json_t *e, const char *kind, const char *name) {
    return strcmp(json_string_value(json_object_get(e, "ph")), kind) == 0 &&
           (!name || strcmp(json_string_value(json_object_get(e, "name")), name) == 0);
}

static uint32_t count(const json_t *list, const char *kind, const char *name) {
    uint32_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        n += is(json_array_get(list, i), kind, name);
    return n;
}

static const struct sl_timeline_arg none[SL_TIMELINE_ARGS];

static void events_are_what_was_said(void **state) {
    (void)state;
    struct sl_timeline *t;
    assert_ok(sl_timeline_open(path, 1u << 20, &t, &test_err));
    uint64_t start = sl_now_ns();
    const struct sl_timeline_arg args[SL_TIMELINE_ARGS] = {{"rows", 7}, {"least", INT64_MIN}};
    sl_timeline_span(t, "step", start + 1234567, start + 3234568, args);
    sl_timeline_span(t, "before the start", 1, 2, none);
    sl_timeline_counter(t, "queue", start, args);
    sl_timeline_request(t, start, start + 10, args);
    uint16_t a = sl_timeline_read_track(t), b = sl_timeline_read_track(t);
    assert_int_not_equal(a, b);
    sl_timeline_read(t, b, "read", start, start + 1000, none);
    assert_int_equal(sl_timeline_read_track(t), b); /* free again, and the lowest */
    sl_timeline_read(t, b, "read", start, start + 1000, none);
    sl_timeline_read(t, SL_NO_READ_TRACK, "read", start, start + 1000, none);
    sl_timeline_close(&t);
    assert_null(t);

    json_t *root, *list = events(&root);
    assert_int_equal(count(list, "X", NULL), 4);
    assert_int_equal(count(list, "X", "read"), 2);
    assert_int_equal(count(list, "C", "queue"), 1);
    assert_int_equal(count(list, "b", "request"), 1);
    assert_int_equal(count(list, "e", "request"), 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        if (is(e, "X", "before the start"))
            assert_true(number(e, "ts") == 0);
        if (!is(e, "X", "step"))
            continue;
        assert_true(number(e, "dur") > 2000.0009 && number(e, "dur") < 2000.0011);
        const json_t *said = json_object_get(e, "args");
        assert_int_equal(json_object_size(said), 2);
        assert_int_equal(number(said, "rows"), 7);
        assert_true(json_integer_value(json_object_get(said, "least")) == INT64_MIN);
    }
    json_decref(root);
}

static void machines_have_lanes(void **state) {
    (void)state;
    struct sl_timeline *t;
    assert_ok(sl_timeline_open(path, 1u << 20, &t, &test_err));
    uint64_t start = sl_now_ns();
    char longest[200];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    sl_timeline_elsewhere(t, 1, "step", start, start + 1000, none); /* of no machine yet */
    sl_timeline_machine(t, 1, 0, "b\"\\\n:7070");
    sl_timeline_machine(t, 2, 0, "b\"\\\n:7070");
    sl_timeline_machine(t, 3, 1, longest);
    sl_timeline_machine(t, SL_TIMELINE_STAGES, 2, "beyond");
    sl_timeline_span(t, "step", start, start + 1000, none);
    for (uint32_t stage = 0; stage <= SL_TIMELINE_STAGES; stage++)
        sl_timeline_elsewhere(t, stage, "step", start + 1000 * stage, start + 9000, none);
    sl_timeline_close(&t);

    json_t *root, *list = events(&root);
    uint32_t steps[4] = {0};
    assert_int_equal(count(list, "X", "step"), 4);
    assert_int_equal(count(list, "M", "process_name"), 4);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        uint32_t lane = (uint32_t)number(e, "pid");
        assert_in_range(lane, 1, 3);
        steps[lane] += is(e, "X", "step");
        if (is(e, "M", "process_name") && lane == 2)
            assert_string_equal(
                json_string_value(json_object_get(json_object_get(e, "args"), "name")),
                "b___:7070");
    }
    assert_int_equal(steps[1], 1);
    assert_int_equal(steps[2], 2);
    assert_int_equal(steps[3], 1);
    json_decref(root);
}

static void a_full_trace_ends(void **state) {
    (void)state;
    struct sl_timeline *t;
    assert_int_equal(sl_timeline_open(path, 1000, &t, &test_err), SL_ERR_CONFIG);
    assert_ok(sl_timeline_open(path, 2u << 20, &t, &test_err));
    for (uint32_t i = 0; i < 100000; i++)
        sl_timeline_span(t, "step", sl_now_ns(), sl_now_ns(), none);
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_true(about.st_size <= 2 << 20 && about.st_size > (2 << 20) - 4096);
    json_t *root, *list = events(&root); /* whole already */
    uint32_t n = count(list, "X", "step");
    assert_true(n > 10000 && n < 100000);
    json_decref(root);
    sl_timeline_close(&t);
    list = events(&root);
    assert_int_equal(count(list, "X", "step"), n);
    json_decref(root);
}

static void whole_between_writes(void **state) {
    (void)state;
    struct sl_timeline *t;
    assert_ok(sl_timeline_open(path, 8u << 20, &t, &test_err));
    uint32_t n = 0, seen = 0;
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < 37 * round; i++, n++)
            sl_timeline_span(t, "step", sl_now_ns(), sl_now_ns(), none);
        sl_timeline_pause(t, round % 2);
        json_t *root, *list = events(&root);
        uint32_t have = count(list, "X", "step");
        assert_true(have >= seen && have <= n);
        if (round % 2)
            assert_int_equal(have, n);
        seen = have;
        json_decref(root);
    }
    sl_timeline_close(&t);
}

/* A file system that is full: as if, by a limit on the size of files. */
static void a_full_disk_ends_it(void **state) {
    (void)state;
    struct rlimit was, little;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    little = was;
    little.rlim_cur = 700u << 10;
    signal(SIGXFSZ, SIG_IGN);
    struct sl_timeline *t;
    assert_ok(sl_timeline_open(path, 8u << 20, &t, &test_err));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    for (uint32_t i = 0; i < 40000; i++)
        sl_timeline_span(t, "step", sl_now_ns(), sl_now_ns(), none);
    sl_timeline_close(&t);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    json_t *root, *list = events(&root);
    assert_true(count(list, "X", "step") > 1000);
    json_decref(root);
    assert_int_equal(sl_timeline_open("/dev/full", 8u << 20, &t, &test_err), SL_ERR_IO);
    assert_int_equal(sl_timeline_open("/nowhere/trace", 8u << 20, &t, &test_err), SL_ERR_IO);
    assert_non_null(strstr(test_err.text, "/nowhere/trace"));
}

static void read_tracks_run_out(void **state) {
    (void)state;
    struct sl_timeline *t;
    assert_ok(sl_timeline_open(path, 8u << 20, &t, &test_err));
    for (uint32_t i = 0; i < SL_TIMELINE_READ_TRACKS; i++)
        assert_int_equal(sl_timeline_read_track(t), i);
    assert_int_equal(sl_timeline_read_track(t), SL_NO_READ_TRACK);
    sl_timeline_read(t, 77, "read", sl_now_ns(), sl_now_ns(), none);
    assert_int_equal(sl_timeline_read_track(t), 77);
    sl_timeline_close(&t);
}

static void stopped_by_a_signal(void **state) {
    (void)state;
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sl_timeline *t;
        if (sl_timeline_open(path, 64u << 20, &t, NULL) != SL_OK)
            _exit(1);
        for (uint32_t i = 0;; i++) {
            sl_timeline_span(t, "step", sl_now_ns(), sl_now_ns(), none);
            if (i % 64 == 0)
                sl_timeline_pause(t, i % 512 == 0);
            if (i == 20000 && write(pipe_fd[1], "x", 1) != 1)
                _exit(1);
            if (i > 20000)
                usleep(100);
        }
    }
    char x;
    assert_int_equal(read(pipe_fd[0], &x, 1), 1);
    kill(child, SIGTERM);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    json_t *root, *list = events(&root);
    assert_true(count(list, "X", "step") >= 20000 - 512);
    json_decref(root);
}

/* ---- an engine's trace ---- */

struct span {
    double start, end;
};

static int by_start(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->end > y->end ? -1 : x->end < y->end;
}

/* Spans of one track lie in each other or apart: viewers cannot draw others. */
static void assert_nested(const json_t *list, double track) {
    size_t n = 0, depth = 0, all = json_array_size(list);
    struct span *s = calloc(all, sizeof *s), *open_spans = calloc(all, sizeof *s);
    assert_non_null(s);
    assert_non_null(open_spans);
    for (size_t i = 0; i < all; i++) {
        const json_t *e = json_array_get(list, i);
        if (is(e, "X", NULL) && number(e, "tid") == track)
            s[n++] = (struct span){number(e, "ts"), number(e, "ts") + number(e, "dur")};
    }
    qsort(s, n, sizeof *s, by_start);
    for (size_t i = 0; i < n; i++) {
        while (depth && open_spans[depth - 1].end <= s[i].start + 1e-6)
            depth--;
        if (depth)
            assert_true(s[i].end <= open_spans[depth - 1].end + 1e-3);
        open_spans[depth++] = s[i];
    }
    free(s);
    free(open_spans);
}

static void an_engine_draws_itself(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen2moe");
    sc.n_expert = 16;
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = 256,
                                 .parallel = 1,
                                 .batch_tokens = 64,
                                 .experts = SL_EXPERTS_STREAMED,
                                 .ram_bytes = UINT64_MAX / 2,
                                 .trace_file = path};
    struct sl_memory_plan p;
    assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
    c.ram_bytes = p.total_bytes - p.slot_bytes / 2;
    int64_t steps = sl_metric(steps_total), reads = sl_metric(disk_reads_total);
    struct sl_engine *e = new_engine(&m, &c);
    struct run *r = new_run(1, 100, 512, 20);
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    free_run(r);
    sl_engine_destroy(&e);
    steps = sl_metric(steps_total) - steps;
    reads = sl_metric(disk_reads_total) - reads;

    json_t *root, *list = events(&root);
    assert_int_equal(count(list, "X", "step"), steps);
    assert_int_equal(count(list, "X", "layer"), 3 * steps);
    assert_int_equal(count(list, "b", "request"), 1);
    uint32_t drawn = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!is(v, "X", NULL) || number(v, "tid") < 100)
            continue;
        const json_t *args = json_object_get(v, "args");
        assert_true(number(args, "layer") < 3 && number(args, "expert") < 16);
        assert_true(number(args, "bytes") > 0);
        drawn += number(args, "status") == SL_OK;
    }
    assert_true(reads > 0);
    assert_int_equal(drawn, reads);
    assert_nested(list, 1);
    for (uint32_t read_track = 0; read_track < 50; read_track++)
        assert_nested(list, 100 + read_track);
    json_decref(root);
    close_model(&m);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_are_what_was_said, make_path, drop_path),
        cmocka_unit_test_setup_teardown(machines_have_lanes, make_path, drop_path),
        cmocka_unit_test_setup_teardown(a_full_trace_ends, make_path, drop_path),
        cmocka_unit_test_setup_teardown(whole_between_writes, make_path, drop_path),
        cmocka_unit_test_setup_teardown(a_full_disk_ends_it, make_path, drop_path),
        cmocka_unit_test_setup_teardown(read_tracks_run_out, make_path, drop_path),
        cmocka_unit_test_setup_teardown(stopped_by_a_signal, make_path, drop_path),
        cmocka_unit_test_setup_teardown(an_engine_draws_itself, make_path, drop_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
