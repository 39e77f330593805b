/* Memory that runs out: every allocation that the engine makes while it is created, while a request
 * is taken and while heat is saved fails once, and so does every mapping and every start of a
 * thread. Nothing is lost, the text says that it was memory, and the next attempt works. And none
 * is made for a token. */
#include "tests/fault/faulty.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

static atomic_long calls;   /* so far, of all kinds */
static atomic_long fail_at; /* the call that fails; -1: none */
static atomic_long live;    /* blocks that are held, and pages of mappings */
static atomic_bool was_hit;
static atomic_bool counting; /* what cmocka and the test hold is not counted */

static bool fails(void) {
    if (!atomic_load(&counting))
        return false;
    bool yes = atomic_fetch_add(&calls, 1) == atomic_load(&fail_at);
    if (yes)
        atomic_store(&was_hit, true);
    return yes;
}

static void *held(void *p) {
    if (p && atomic_load(&counting))
        atomic_fetch_add(&live, 1);
    return p;
}

static long pages(size_t bytes) {
    return (long)((bytes + 4095) / 4096);
}

static void *no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

#define DECLARE(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)
DECLARE(void *, malloc, size_t n);
DECLARE(void *, calloc, size_t n, size_t m);
DECLARE(void *, realloc, void *p, size_t n);
DECLARE(int, posix_memalign, void **out, size_t align, size_t n);
DECLARE(void *, aligned_alloc, size_t align, size_t n);
DECLARE(char *, strdup, const char *s);
DECLARE(void, free, void *p);
DECLARE(void *, mmap, void *at, size_t n, int prot, int flags, int fd, off_t offset);
DECLARE(int, munmap, void *at, size_t n);
DECLARE(int, pthread_create, pthread_t *out, const pthread_attr_t *attr, void *(*body)(void *),
        void *arg);

void *__wrap_malloc(size_t n) {
    return fails() ? no_memory() : held(__real_malloc(n));
}
void *__wrap_calloc(size_t n, size_t m) {
    return fails() ? no_memory() : held(__real_calloc(n, m));
}
void *__wrap_realloc(void *p, size_t n) {
    if (fails())
        return no_memory();
    void *q = __real_realloc(p, n);
    return p ? q : held(q);
}
int __wrap_posix_memalign(void **out, size_t align, size_t n) {
    if (fails())
        return ENOMEM;
    int rc = __real_posix_memalign(out, align, n);
    if (rc == 0)
        held(*out);
    return rc;
}
void *__wrap_aligned_alloc(size_t align, size_t n) {
    return fails() ? no_memory() : held(__real_aligned_alloc(align, n));
}
char *__wrap_strdup(const char *s) {
    return fails() ? no_memory() : held(__real_strdup(s));
}
void __wrap_free(void *p) {
    if (p && atomic_load(&counting))
        atomic_fetch_add(&live, -1);
    __real_free(p);
}
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    if (fails()) {
        no_memory();
        return MAP_FAILED;
    }
    void *p = __real_mmap(at, n, prot, flags, fd, offset);
    if (p != MAP_FAILED && atomic_load(&counting))
        atomic_fetch_add(&live, pages(n));
    return p;
}
int __wrap_munmap(void *at, size_t n) {
    if (atomic_load(&counting))
        atomic_fetch_add(&live, -pages(n));
    return __real_munmap(at, n);
}
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*body)(void *),
                          void *arg) {
    return fails() ? EAGAIN : __real_pthread_create(out, attr, body, arg);
}

static void start_counting(long at) {
    atomic_store(&calls, 0);
    atomic_store(&live, 0);
    atomic_store(&was_hit, false);
    atomic_store(&fail_at, at);
    atomic_store(&counting, true);
}

/* Nothing fails any more, but what is held is still counted. */
static bool stop_failing(void) {
    atomic_store(&fail_at, -1);
    return atomic_load(&was_hit);
}

static bool is_no_memory(enum sl_status status) {
    return status == SL_ERR_NOMEM || status == SL_ERR_DEVICE_OOM;
}

/* Every call of create in turn. What is optional (a mirror, kept heat, a second thread) may go
 * missing with a warning: then the answer is the same. */
static void every_allocation_of(const struct sl_engine_config *c) {
    uint32_t n_refused = 0, n_served = 0;
    for (long at = 0;; at++) {
        struct sl_engine *e = NULL;
        struct sl_err err = {{0}};
        start_counting(at);
        enum sl_status status = sl_engine_create(model.model, c, NULL, &e, &err);
        bool hit = stop_failing();
        if (status == SL_OK) {
            struct run *r = run_one(e, 0);
            assert_clean(r, 0);
            sl_engine_destroy(&e);
            atomic_store(&counting, false);
            free_run(r);
            /* The run itself was made by the test while counting. */
            assert_int_equal(atomic_load(&live), 1);
            n_served++;
        } else {
            atomic_store(&counting, false);
            if (!is_no_memory(status) || !err.text[0])
                fail_msg("call %ld: %s: '%s'", at, sl_status_text(status), err.text);
            assert_null(e);
            if (atomic_load(&live) != 0)
                fail_msg("call %ld (%s): %ld blocks or pages were lost", at, err.text,
                         atomic_load(&live));
            n_refused++;
        }
        if (!hit) {
            assert_int_equal(status, SL_OK);
            break;
        }
    }
    print_message("figure: %u failing calls refused, %u got along without\n", n_refused,
                  n_served - 1);
    assert_true(n_refused > 20);
}

static void create_resident(void **state) {
    (void)state;
    struct sl_engine_config c = {.n_threads = 2,
                                 .ctx_tokens = N_CTX,
                                 .experts = SL_EXPERTS_RESIDENT,
                                 .ram_bytes = AMPLE_BYTES};
    every_allocation_of(&c);
}

static void create_streamed(void **state) {
    (void)state;
    static const enum sl_experts_io ios[] = {SL_EXPERTS_IO_AUTO, SL_EXPERTS_IO_PREAD};
    char mirror[] = "/tmp/sluice-test-XXXXXX", copy[128], heat[128];
    assert_non_null(mkdtemp(mirror));
    snprintf(copy, sizeof copy, "%s%s", mirror, strrchr(model.path, '/'));
    snprintf(heat, sizeof heat, "%s/heat", mirror);
    int fd = open(copy, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, model_bytes, model_size), model_size);
    close(fd);
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_engine_config c = streamed_config(50);
        c.io = ios[i];
        set_budget(model.model, &c, 50);
        c.mirrors = (const char *const[]){mirror};
        c.n_mirrors = 1;
        c.heat_file = heat;
        every_allocation_of(&c);
    }
    unlink(copy);
    unlink(heat);
    rmdir(mirror);
}

static void submit_and_run(void **state) {
    (void)state;
    struct sl_engine_config c = streamed_config(0);
    struct sl_engine *e = new_engine(&model, &c);
    uint32_t n_refused = 0;
    for (long at = 0;; at++) {
        struct run *r = make_run(2);
        struct sl_err err = {{0}};
        r->engine = e;
        start_counting(at);
        enum sl_status status = sl_engine_submit(e, &r->req, &err);
        long n_submit = atomic_load(&calls);
        bool hit = stop_failing();
        if (status != SL_OK) {
            atomic_store(&counting, false);
            assert_int_equal(status, SL_ERR_NOMEM);
            assert_true(hit && err.text[0]);
            assert_int_equal(r->n_finish, 0);
            assert_int_equal(atomic_load(&live), 0);
            n_refused++;
            free_run(r);
            continue;
        }
        wait_run(r);
        atomic_store(&counting, false);
        assert_false(hit);
        assert_clean(r, 2);
        assert_int_equal(atomic_load(&live), 0);
        /* 12 tokens and 40 of prompt, all experts from disk, have taken no memory. */
        assert_true(n_submit > 0);
        assert_true(atomic_load(&calls) <= n_submit + 1); /* submit's own last call may be late */
        free_run(r);
        break;
    }
    assert_true(n_refused > 0);
    expect_clean(e);
    sl_engine_destroy(&e);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    alarm(500);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_resident),
        cmocka_unit_test(create_streamed),
        cmocka_unit_test(submit_and_run),
    };
    return cmocka_run_group_tests(tests, setup_model, teardown_model);
}
