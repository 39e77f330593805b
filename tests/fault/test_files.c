/* Files that change under a serving engine: the model, its mirror, the heat file; and a block
 * device that really errs. The rule: a token that was computed from changed bytes is never pushed.
 */
#include "tests/fault/faulty.h"

#include "engine/engine.h"
#include "engine/schedule/schedule.h"

#include <errno.h>
#include <glob.h>
#include <linux/loop.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>

/* ---- a copy of the model that a test may spoil ---- */

struct place {
    char folder[64], path[128], mirror[128], heat[128];
    struct sl_model *model;
};

static void write_bytes(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void open_place(struct place *p) {
    snprintf(p->folder, sizeof p->folder, "/tmp/sluice-test-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof p->path, "%s/model.gguf", p->folder);
    snprintf(p->mirror, sizeof p->mirror, "%s/mirror.gguf", p->folder);
    snprintf(p->heat, sizeof p->heat, "%s/heat", p->folder);
    write_bytes(p->path, model_bytes, model_size);
    write_bytes(p->mirror, model_bytes, model_size);
    assert_ok(sl_model_open(p->path, &p->model, &test_err));
    usleep(20000); /* a change is told from what was there by its time, which goes in ticks */
}

static void close_place(struct place *p) {
    sl_model_close(&p->model);
    unlink(p->path);
    unlink(p->mirror);
    unlink(p->heat);
    rmdir(p->folder);
}

static struct sl_engine *engine_at(const struct place *p, struct sl_engine_config *c) {
    struct sl_engine *e;
    assert_ok(sl_engine_create(p->model, c, NULL, &e, &test_err));
    return e;
}

/* Other bytes in all experts, as another model of the same shape would have. */
static void spoil(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    static uint8_t junk[1 << 16];
    struct sl_rng rng = {99};
    for (uint32_t l = 0; l < layout.n_layer; l++)
        for (uint32_t x = 0; x < SL_EXPERT_EXTENTS; x++) {
            uint64_t at = layout.layers[l].extent[x].offset_bytes;
            uint64_t left = (uint64_t)layout.layers[l].extent[x].size_bytes * layout.n_expert;
            while (left) {
                size_t n = left < sizeof junk ? (size_t)left : sizeof junk;
                /* Sound scales, other weights: the wrong answer would be a plausible one. */
                memcpy(junk, model_bytes + at, n);
                for (size_t i = 0; i < n; i += 34)
                    for (size_t j = i + 2; j < i + 34 && j < n; j++)
                        junk[j] = (uint8_t)sl_rng_u64(&rng);
                assert_int_equal(pwrite(fd, junk, n, (off_t)at), n);
                at += n;
                left -= n;
            }
        }
    close(fd);
}

static void spoil_at_3(struct run *r) {
    if (r->n == 3)
        spoil(r->user);
}

static void cut_at_3(struct run *r) {
    if (r->n == 3)
        assert_int_equal(truncate(r->user, (off_t)(model_size / 3)), 0);
}

static bool ignore_logits(void *ctx, uint32_t pos, const float *logits) {
    (void)pos, (void)logits;
    *(bool *)ctx = true;
    return true;
}

/* Nothing works any more, and everything says why. */
static void expect_dead(struct sl_engine *e, const char *path) {
    struct sl_err why = {{0}};
    assert_true(sl_engine_failed(e, &why));
    assert_non_null(strstr(why.text, path));
    assert_non_null(strstr(why.text, "was changed while in use"));
    struct run *r = make_run(0);
    assert_int_equal(sl_engine_submit(e, &r->req, &test_err), SL_ERR_CORRUPT);
    assert_string_equal(test_err.text, why.text);
    bool handed = false;
    uint32_t id = 1;
    assert_int_equal(sl_engine_score(e, &id, 1, ignore_logits, &handed, &test_err), SL_ERR_CORRUPT);
    assert_false(handed);
    free_run(r);
}

/* ---- the model ---- */

/* Overwritten or cut in place while four generate: all that was pushed is right, the rest fails. */
static void a_changed_model_ends_service(void **state) {
    (void)state;
    static const enum sl_experts_io ios[] = {SL_EXPERTS_IO_AUTO, SL_EXPERTS_IO_PREAD};
    for (uint32_t turn = 0; turn < 6; turn++) {
        struct place p;
        open_place(&p);
        struct sl_engine_config c = streamed_config(0);
        c.io = ios[turn % 2];
        c.io_buffered = turn >= 4;
        set_budget(model.model, &c, turn == 3 ? 50 : 0);
        struct sl_engine *e = engine_at(&p, &c);
        struct run *r[N_RUNS], *queued[2];
        for (uint32_t i = 0; i < N_RUNS; i++) {
            r[i] = make_run(i);
            r[i]->user = p.path;
            if (i == 0)
                r[i]->on_token = turn < 2 ? cut_at_3 : spoil_at_3;
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < 2; i++) {
            queued[i] = make_run(i);
            submit(e, queued[i]);
        }
        for (uint32_t i = 0; i < N_RUNS; i++) {
            wait_run(r[i]);
            assert_failed(r[i], i, SL_ERR_CORRUPT, "was changed while in use");
            if (i == 0)
                assert_int_equal(r[i]->n, 3);
            free_run(r[i]);
        }
        for (uint32_t i = 0; i < 2; i++) {
            wait_run(queued[i]);
            assert_failed(queued[i], i, SL_ERR_CORRUPT, p.path);
            assert_int_equal(queued[i]->n, 0);
            free_run(queued[i]);
        }
        expect_dead(e, p.path);
        sl_engine_destroy(&e);
        close_place(&p);
    }
}

/* Changed while nothing runs: the first request notices. Scoring too. */
static void a_change_in_between_is_seen(void **state) {
    (void)state;
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct place p;
        open_place(&p);
        struct sl_engine_config c = streamed_config(turn == 2 ? 100 : 25);
        struct sl_engine *e = engine_at(&p, &c);
        expect_clean(e);
        spoil(p.path);
        double rate;
        if (turn == 2) /* reads what has changed into slots that were right */
            assert_ok(sl_engine_disk_speed(e, 0.02, &rate, &test_err));
        if (turn != 1) {
            struct run *r = run_one(e, 2);
            assert_failed(r, 2, SL_ERR_CORRUPT, "start again with the model as it is now");
            assert_int_equal(r->n, 0);
            free_run(r);
        } else {
            bool handed = false;
            assert_int_equal(
                sl_engine_score(e, clean[2]->prompt, 40, ignore_logits, &handed, &test_err),
                SL_ERR_CORRUPT);
            assert_false(handed);
        }
        expect_dead(e, p.path);
        sl_engine_destroy(&e);
        close_place(&p);
    }
}

/* What is in slots was read before: it serves on while nothing else is needed. */
static void what_is_in_slots_stays_right(void **state) {
    (void)state;
    struct place p;
    open_place(&p);
    struct sl_engine_config c = streamed_config(100);
    struct sl_engine *e = engine_at(&p, &c);
    struct run *r = run_one(e, 0);
    assert_clean(r, 0);
    free_run(r);
    spoil(p.path);
    r = run_one(e, 0);
    if (r->result.status == SL_OK)
        assert_clean(r, 0);
    else /* it had read ahead */
        assert_failed(r, 0, SL_ERR_CORRUPT, p.path);
    free_run(r);
    sl_engine_destroy(&e);
    close_place(&p);
}

/* A file put in its place, or removed: the one that is open is as it was. */
static void a_replaced_model_serves_on(void **state) {
    (void)state;
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct place p;
        open_place(&p);
        struct sl_engine_config c = streamed_config(0);
        struct sl_engine *e = engine_at(&p, &c);
        expect_clean(e);
        if (turn) {
            spoil(p.mirror);
            assert_int_equal(rename(p.mirror, p.path), 0);
        } else {
            unlink(p.path);
        }
        expect_clean(e);
        struct sl_err why;
        assert_false(sl_engine_failed(e, &why));
        sl_engine_destroy(&e);
        close_place(&p);
    }
}

struct meddler {
    struct sl_progress base;
    const char *path;
};

static bool spoil_once(struct sl_progress *p, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    struct meddler *m = (struct meddler *)p;
    if (m->path)
        spoil(m->path);
    m->path = NULL;
    return true;
}

static void a_change_while_loading_is_refused(void **state) {
    (void)state;
    struct place p;
    open_place(&p);
    struct sl_engine_config c = streamed_config(50);
    struct meddler m = {{spoil_once}, p.path};
    struct sl_engine *e = NULL;
    assert_int_equal(sl_engine_create(p.model, &c, &m.base, &e, &test_err), SL_ERR_CORRUPT);
    assert_null(e);
    assert_non_null(strstr(test_err.text, "was changed while in use"));
    close_place(&p);
}

/* ---- the mirror ---- */

/* One of two copies is changed or cut under four requests: what came from it is read again. */
static void a_changed_copy_does_not_show(void **state) {
    (void)state;
    for (uint32_t turn = 0; turn < 8; turn++) {
        struct place p;
        open_place(&p);
        struct sl_engine_config c = streamed_config(turn % 4 == 3 ? 50 : 0);
        c.mirrors = (const char *const[]){p.mirror};
        c.n_mirrors = 1;
        struct sl_engine *e = engine_at(&p, &c);
        uint64_t dropped = (uint64_t)sl_metric(disk_dropped_copies_total);
        struct run *r[N_RUNS];
        for (uint32_t i = 0; i < N_RUNS; i++) {
            r[i] = make_run(i);
            r[i]->user = turn % 2 ? p.mirror : p.path;
            if (i == 1)
                r[i]->on_token = turn < 6 ? spoil_at_3 : cut_at_3;
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < N_RUNS; i++) {
            wait_run(r[i]);
            assert_clean(r[i], i);
            free_run(r[i]);
        }
        assert_int_equal(sl_metric(disk_dropped_copies_total), dropped + 1);
        expect_clean(e);
        /* The other one too: now nothing is left to read. */
        spoil(turn % 2 ? p.path : p.mirror);
        struct run *last = run_one(e, 2);
        assert_failed(last, 2, SL_ERR_CORRUPT, "was changed while in use");
        free_run(last);
        expect_dead(e, turn % 2 ? p.path : p.mirror);
        sl_engine_destroy(&e);
        close_place(&p);
    }
}

/* ---- the heat file ---- */

static struct sl_engine_config with_heat(const char *path) {
    struct sl_engine_config c = streamed_config(50);
    c.heat_file = path;
    c.no_warm_up = false;
    return c;
}

static size_t file_bytes(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

/* A heat file of a sound run; returns its size. */
static size_t make_heat(const struct place *p, uint8_t *out, size_t max) {
    struct sl_engine_config c = with_heat(p->heat);
    struct sl_engine *e = engine_at(p, &c);
    expect_clean(e);
    sl_engine_destroy(&e);
    size_t n = file_bytes(p->heat);
    assert_true(n > 0 && n <= max);
    int fd = open(p->heat, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, out, n), n);
    close(fd);
    return n;
}

static uint8_t good_heat[1 << 16], seen_heat[1 << 16];

static void damaged_heat_costs_nothing_but_heat(void **state) {
    (void)state;
    struct place p;
    open_place(&p);
    size_t n = make_heat(&p, good_heat, sizeof good_heat);
    struct sl_rng rng = {5};
    for (uint32_t turn = 0; turn < 20; turn++) {
        static uint8_t bad[1 << 16];
        size_t bytes = n;
        memcpy(bad, good_heat, n);
        if (turn < 8) /* cut, to nothing at first */
            bytes = turn ? sl_rng_below(&rng, (uint32_t)n) : 0;
        else /* a bit, of what follows the mark */
            bad[SL_HEAT_MARK_BYTES + sl_rng_below(&rng, (uint32_t)n - SL_HEAT_MARK_BYTES)] ^=
                (uint8_t)(1u << sl_rng_below(&rng, 8));
        write_bytes(p.heat, bad, bytes);
        struct sl_engine_config c = with_heat(p.heat);
        struct sl_engine *e = engine_at(&p, &c);
        expect_clean(e);
        sl_engine_destroy(&e);
        /* A sound one took its place: it warms the next start. */
        uint64_t before = (uint64_t)sl_metric(expert_warmups_total);
        e = engine_at(&p, &c);
        for (uint32_t i = 0; i < 60000 && (uint64_t)sl_metric(expert_warmups_total) == before; i++)
            usleep(1000);
        assert_true((uint64_t)sl_metric(expert_warmups_total) > before);
        expect_clean(e);
        sl_engine_destroy(&e);
    }
    /* A folder in its place, and a place that cannot be made. */
    unlink(p.heat);
    write_bytes(p.heat, "x", 1);
    char below[160];
    snprintf(below, sizeof below, "%s/below/it", p.heat);
    struct sl_engine_config c = with_heat(below);
    struct sl_engine *e = engine_at(&p, &c);
    expect_clean(e);
    sl_engine_destroy(&e);
    close_place(&p);
}

/* Files whose names begin with path, the file itself left out. */
static uint32_t n_next_to(const char *path) {
    char pattern[256];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s?*", path);
    uint32_t n = glob(pattern, 0, NULL, &found) == 0 ? (uint32_t)found.gl_pathc : 0;
    globfree(&found);
    return n;
}

static void expect_bytes(const char *path, const char *bytes) {
    char now[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, now, sizeof now - 1), strlen(bytes));
    close(fd);
    assert_string_equal(now, bytes);
}

/* What is no heat file is neither read into anything nor replaced, whatever names it. */
static void a_foreign_file_is_left_alone(void **state) {
    (void)state;
    struct place p;
    struct sl_engine *e = NULL;
    struct stat about;
    char folder[160], in_folder[200], other[160];
    open_place(&p);
    snprintf(other, sizeof other, "%s/other", p.folder);
    snprintf(folder, sizeof folder, "%s/heats", p.folder);
    /* Named as the heat file: refused before anything is computed. */
    struct sl_engine_config c = with_heat(p.mirror);
    assert_int_equal(sl_engine_create(p.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, p.mirror));
    assert_non_null(strstr(test_err.text, "it was left as it is"));
    assert_int_equal(stat(p.mirror, &about), 0);
    assert_int_equal(about.st_size, model_size);
    write_bytes(other, "letters", 7);
    c = with_heat(other);
    assert_int_equal(sl_engine_create(p.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    c = with_heat("/dev/null");
    assert_int_equal(sl_engine_create(p.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    assert_int_equal(symlink("nowhere", p.heat), 0);
    c = with_heat(p.heat);
    assert_int_equal(sl_engine_create(p.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    unlink(p.heat);
    expect_bytes(other, "letters");
    /* In the place of the model's file in a folder: not kept, and no more than a warning. */
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(in_folder, sizeof in_folder, "%s/%016llx.heat", folder,
             (unsigned long long)sl_model_fingerprint(p.model));
    write_bytes(in_folder, "letters", 7);
    c = with_heat(folder);
    e = engine_at(&p, &c);
    expect_clean(e);
    sl_engine_destroy(&e);
    expect_bytes(in_folder, "letters");
    unlink(in_folder);
    /* Put there while the engine runs, as a file and as a link to one. */
    for (uint32_t as_link = 0; as_link < 2; as_link++) {
        c = with_heat(p.heat);
        e = engine_at(&p, &c);
        expect_clean(e);
        unlink(p.heat); /* it may have been saved */
        if (as_link)
            assert_int_equal(symlink(other, p.heat), 0);
        else
            write_bytes(p.heat, "letters", 7);
        sl_engine_destroy(&e);
        expect_bytes(p.heat, "letters");
        assert_int_equal(n_next_to(p.heat), 1); /* the folder heats/ */
        unlink(p.heat);
    }
    unlink(other);
    rmdir(folder);
    close_place(&p);
}

/* A link to a heat file stays a link, and what a process left that died while it wrote goes, if it
 * is one of ours. */
static void links_and_left_overs(void **state) {
    (void)state;
    struct place p;
    char kept[100], left[160], busy[160], foreign[160];
    struct stat about;
    open_place(&p);
    size_t n = make_heat(&p, good_heat, sizeof good_heat);
    snprintf(kept, sizeof kept, "%s/kept", p.folder);
    snprintf(left, sizeof left, "%s.sluice-aB3dE9", kept);
    snprintf(busy, sizeof busy, "%s.sluice-Busy00", kept);
    snprintf(foreign, sizeof foreign, "%s.sluice-alien0", kept);
    assert_int_equal(rename(p.heat, kept), 0);
    assert_int_equal(symlink("kept", p.heat), 0);
    write_bytes(left, good_heat, n / 2);
    write_bytes(busy, good_heat, n / 2);
    write_bytes(foreign, "letters", 7);
    int held = open(busy, O_RDONLY | O_CLOEXEC); /* somebody is writing it */
    assert_int_equal(flock(held, LOCK_EX), 0);
    struct sl_engine_config c = with_heat(p.heat);
    struct sl_engine *e = engine_at(&p, &c);
    expect_clean(e);
    sl_engine_destroy(&e);
    assert_int_equal(lstat(p.heat, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(kept, &about), 0);
    assert_int_equal(about.st_size, n);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(busy, F_OK), 0);
    expect_bytes(foreign, "letters");
    close(held);
    unlink(busy);
    unlink(foreign);
    unlink(kept);
    close_place(&p);
}

/* Leaves the old file as it was, and nothing beside it. */
static void expect_old_heat(const char *heat, size_t n) {
    assert_int_equal(n_next_to(heat), 0);
    int fd = open(heat, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, seen_heat, sizeof seen_heat), n);
    assert_memory_equal(seen_heat, good_heat, n);
    close(fd);
}

static void a_limit_on_file_sizes_keeps_the_old_heat(void **state) {
    (void)state;
    struct place p;
    open_place(&p);
    size_t n = make_heat(&p, good_heat, sizeof good_heat);
    struct rlimit was, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = n / 2;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct sl_engine_config c = with_heat(p.heat);
    struct sl_engine *e = engine_at(&p, &c);
    expect_clean(e);
    sl_engine_destroy(&e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, handler);
    expect_old_heat(p.heat, n);
    close_place(&p);
}

static void a_full_disk_keeps_the_old_heat(void **state) {
    (void)state;
    struct place p;
    open_place(&p);
    size_t n = make_heat(&p, good_heat, sizeof good_heat);
    char folder[160], heat[200], room[64];
    snprintf(folder, sizeof folder, "%s/full", p.folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    /* Room for the old file, and a page less than for a second one. */
    size_t pages = (n + 4095) / 4096;
    snprintf(room, sizeof room, "size=%zuk,mode=0700", (2 * pages - 1) * 4);
    if (mount("tmpfs", folder, "tmpfs", 0, room) != 0) {
        print_message("no file system can be mounted here: %s\n", strerror(errno));
        rmdir(folder);
        close_place(&p);
        skip();
    }
    snprintf(heat, sizeof heat, "%s/heat", folder);
    write_bytes(heat, good_heat, n);
    struct sl_engine_config c = with_heat(heat);
    struct sl_engine *e = engine_at(&p, &c);
    expect_clean(e);
    sl_engine_destroy(&e);
    expect_old_heat(heat, n);
    assert_int_equal(umount2(folder, MNT_DETACH), 0);
    rmdir(folder);
    close_place(&p);
}

static bool heat_seen; /* the scheduler thread's until the run has finished */

static void look_for_heat(struct run *r) {
    heat_seen = heat_seen || access(r->user, F_OK) == 0;
    if (!heat_seen)
        usleep(20000);
}

/* Heat is not kept for the end alone: a crash should cost minutes of it. */
static void heat_is_saved_on_the_way(void **state) {
    (void)state;
    struct place p;
    open_place(&p);
    struct sl_engine_config c = with_heat(p.heat);
    /* When nothing has run for a while... */
    struct sl_engine *e = engine_at(&p, &c);
    expect_clean(e);
    for (uint32_t i = 0; i < 2000 && !file_bytes(p.heat); i++)
        usleep(10000);
    assert_true(file_bytes(p.heat) > 0);
    sl_engine_destroy(&e);
    unlink(p.heat);
    /* ... and while something runs all the time. */
    e = engine_at(&p, &c);
    e->heat_busy_ns = 1;
    /* The file is written while steps run: a short run may end before it is there. */
    for (uint32_t i = 0; i < 100 && !heat_seen; i++) {
        struct run *r = make_run(0);
        r->req.max_tokens = 150;
        r->user = p.heat;
        r->on_progress = look_for_heat;
        r->on_token = look_for_heat;
        submit(e, r);
        wait_run(r);
        assert_int_equal(r->result.status, SL_OK);
        free_run(r);
    }
    assert_true(heat_seen);
    sl_engine_destroy(&e);
    close_place(&p);
}

/* ---- a block device that errs ---- */

struct device_source {
    struct sl_reader_source base;
    const char *path;
};

static enum sl_status open_device(const struct sl_reader_source *source,
                                  const struct sl_reader_config *config,
                                  struct sl_reader **out_reader, struct sl_err *err) {
    const struct device_source *d = (const struct device_source *)source;
    enum sl_status status = sl_reader_open(config, out_reader, err);
    uint32_t file;
    return status == SL_OK ? sl_reader_add_file(*out_reader, d->path, &file, err) : status;
}

/* A loop device with direct I/O over a copy of the model that is then cut: the kernel answers EIO
 * behind the end. */
static void a_real_device_errs(void **state) {
    (void)state;
    struct place p;
    open_place(&p);
    char device[32];
    uint64_t whole = (model_size + 4095) / 4096 * 4096;
    assert_int_equal(truncate(p.mirror, (off_t)whole), 0);
    int file = open(p.mirror, O_RDWR | O_CLOEXEC), loop = -1;
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = control >= 0 ? ioctl(control, LOOP_CTL_GET_FREE) : -1;
    snprintf(device, sizeof device, "/dev/loop%d", number);
    if (number >= 0)
        loop = open(device, O_RDWR | O_CLOEXEC);
    bool bound = loop >= 0 && ioctl(loop, LOOP_SET_FD, file) == 0;
    if (!bound || ioctl(loop, LOOP_SET_DIRECT_IO, 1ul) != 0) {
        print_message("no loop device can be made here: %s\n", strerror(errno));
        if (bound)
            ioctl(loop, LOOP_CLR_FD, 0);
        if (loop >= 0)
            close(loop);
        if (control >= 0)
            close(control);
        close(file);
        close_place(&p);
        skip();
    }
    static const enum sl_experts_io ios[] = {SL_EXPERTS_IO_AUTO, SL_EXPERTS_IO_PREAD};
    for (uint32_t k = 0; k < 2; k++) {
        struct device_source source = {{open_device}, device};
        struct sl_engine_config c = streamed_config(0);
        c.io = ios[k];
        c.reader_source = &source.base;
        set_budget(model.model, &c, 0);
        struct sl_engine *e = engine_at(&p, &c);
        expect_clean(e);
        /* The last layer's experts are gone. */
        assert_int_equal(ftruncate(file, (off_t)(layout.layers[layout.n_layer - 1]
                                                     .extent[SL_EXPERT_EXTENTS - 1]
                                                     .offset_bytes /
                                                 4096 * 4096)),
                         0);
        struct run *r[N_RUNS];
        for (uint32_t i = 0; i < N_RUNS; i++) {
            r[i] = make_run(i);
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < N_RUNS; i++) {
            wait_run(r[i]);
            assert_failed(r[i], i, SL_ERR_IO, "check the drive");
            assert_non_null(strstr(r[i]->result.err.text, device));
            free_run(r[i]);
        }
        assert_int_equal(pwrite(file, model_bytes, model_size, 0), model_size);
        assert_int_equal(ftruncate(file, (off_t)whole), 0);
        expect_clean(e);
        sl_engine_destroy(&e);
    }
    ioctl(loop, LOOP_CLR_FD, 0);
    close(loop);
    close(control);
    close(file);
    close_place(&p);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    alarm(500);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_changed_model_ends_service),
        cmocka_unit_test(a_change_in_between_is_seen),
        cmocka_unit_test(what_is_in_slots_stays_right),
        cmocka_unit_test(a_replaced_model_serves_on),
        cmocka_unit_test(a_change_while_loading_is_refused),
        cmocka_unit_test(a_changed_copy_does_not_show),
        cmocka_unit_test(a_foreign_file_is_left_alone),
        cmocka_unit_test(links_and_left_overs),
        cmocka_unit_test(damaged_heat_costs_nothing_but_heat),
        cmocka_unit_test(a_limit_on_file_sizes_keeps_the_old_heat),
        cmocka_unit_test(a_full_disk_keeps_the_old_heat),
        cmocka_unit_test(heat_is_saved_on_the_way),
        cmocka_unit_test(a_real_device_errs),
    };
    return cmocka_run_group_tests(tests, setup_model, teardown_model);
}
