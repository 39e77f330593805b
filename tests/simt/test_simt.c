/* Does the emulator of GPUs (tests/support/simt/simt.h) find what it says it finds? Kernels with
 * one mistake each, and some without. */
#include "tests/support/simt/simt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef SIMT_HIP
#define IS_HIP 1
#else
#define IS_HIP 0
#endif
#define N      256u
#define ROUNDS 8u
#define PAGE   4096u

struct wrong_args {
    float *y;
    const float *x;
    uint32_t n;
};

#define KERNELS(X)                                                                                 \
    X(right_reverse)                                                                               \
    X(no_barrier)                                                                                  \
    X(no_second_barrier)                                                                           \
    X(right_copies)                                                                                \
    X(copies_not_waited_for)                                                                       \
    X(ended_lanes)                                                                                 \
    X(one_half_elsewhere)                                                                          \
    X(barrier_for_more)                                                                            \
    X(reads_beyond)                                                                                \
    X(misaligned)                                                                                  \
    X(more_shared_than_asked)                                                                      \
    X(waits_apart)                                                                                 \
    X(never_waits)                                                                                 \
    X(last_block_wins)                                                                             \
    X(reads_what_others_wrote)                                                                     \
    X(right_mma)                                                                                   \
    X(right_meets)                                                                                 \
    X(right_votes)                                                                                 \
    X(barrier_in_each_half)                                                                        \
    X(half_waits_for_half)

#define DECLARE(name)                                                                              \
    void sl_k_##name(const struct wrong_args a);                                                   \
    static void run_##name(const void *a) {                                                        \
        sl_k_##name(*(const struct wrong_args *)a);                                                \
    }
KERNELS(DECLARE)
#define ROW(name) {#name, run_##name, sizeof(struct wrong_args)},
const struct simt_kernel simt_kernels[] = {KERNELS(ROW)};
const size_t simt_n_kernels = sizeof simt_kernels / sizeof simt_kernels[0];

static const struct simt_kernel *named(const char *name) {
    for (size_t i = 0; i < simt_n_kernels; i++)
        if (strcmp(simt_kernels[i].name, name) == 0)
            return &simt_kernels[i];
    fail_msg("no kernel %s", name);
    return NULL;
}

/* x ends where a page does, and nothing follows. */
static float *input(void) {
    char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + PAGE, PAGE, PROT_NONE), 0);
    float *x = (float *)(void *)(map + PAGE) - N;
    for (uint32_t i = 0; i < N; i++)
        x[i] = (float)(i + 1);
    return x;
}

static void launch(const char *name, unsigned blocks, float *y, const float *x) {
    struct wrong_args a = {y, x, N};
    simt_launch(named(name), (struct simt_dim){blocks, 1, 1},
                (struct simt_dim){strcmp(name, "right_mma") ? N : 32, 1, 1}, N * sizeof(float), &a);
}

static uint32_t times_reversed(const char *name) {
    static float y[N];
    float *x = input();
    uint32_t right = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        bool all = true;
        launch(name, 1, y, x);
        for (uint32_t i = 0; i < N; i++)
            all = all && y[i] == x[N - 1 - i];
        right += all;
    }
    return right;
}

static void sound_kernels(void **state) {
    (void)state;
    assert_int_equal(times_reversed("right_reverse"), ROUNDS);
    assert_int_equal(times_reversed("right_copies"), ROUNDS);
    assert_int_equal(times_reversed("right_meets"), ROUNDS);
    assert_int_equal(times_reversed("right_votes"), ROUNDS);
}

static void missing_barriers(void **state) {
    (void)state;
    assert_int_equal(times_reversed("no_barrier"), 0);
    assert_int_equal(times_reversed("no_second_barrier"), 0);
    if (!IS_HIP) /* which has no copies that go on */
        assert_int_equal(times_reversed("copies_not_waited_for"), 0);
}

/* Which parts of it a kernel uses is known from its second launch on. */
static void memory_of_other_blocks(void **state) {
    (void)state;
    static float y[N];
    float *x = input();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        memset(y, 0, sizeof y);
        launch("reads_what_others_wrote", 8, y, x);
        for (uint32_t i = 0; round && i < N; i++)
            assert_true(isnan(y[i]));
    }
}

static void order_of_blocks(void **state) {
    (void)state;
    static float y[N];
    float *x = input(), first = -1;
    bool other = false;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        launch("last_block_wins", 64, y, x);
        first = first < 0 ? y[0] : first;
        other = other || y[0] != first;
    }
    assert_true(other);
}

static void fragments(void **state) {
    (void)state;
    float y[16 * 8];
    launch("right_mma", 1, y, input());
    for (uint32_t row = 0; row < 16; row++)
        for (uint32_t col = 0; col < 8; col++) {
            uint32_t sum = 0;
            for (uint32_t k = 0; k < 32; k++)
                sum += (row * 32 + k) % 7 * ((k + 3 * col) % 5);
            assert_true(y[row * 8 + col] == (float)sum);
        }
}

/* The program ends there, and says so. */
static void faults(const char *name, const char *says) {
    static float y[N];
    float *x = input();
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        dup2(ends[1], 2);
        launch(name, 1, y, x);
        _exit(0);
    }
    close(ends[1]);
    char text[2048];
    size_t n = 0;
    ssize_t got;
    while (n + 1 < sizeof text && (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || !strstr(text, name) || !strstr(text, says))
        fail_msg("%s: not \"%s\", but status %x and \"%s\"", name, says, (unsigned)status, text);
}

static void mistakes(void **state) {
    (void)state;
    faults("ended_lanes", "ended");
    faults("one_half_elsewhere", "lanes");
    faults("barrier_for_more", "nobody can go on: 256 of 256 threads");
    faults("reads_beyond", "an address that is no memory");
    faults("misaligned", "misaligned");
    faults("more_shared_than_asked", "it wrote to byte 1024 of shared memory, and has 1024");
}

/* HIP has nothing of the kind: a kernel starts when those before it have ended. */
#if !IS_HIP
static void starting_early(void **state) {
    (void)state;
    faults("never_waits", "without sl_grid_wait()");
    assert_int_equal(times_reversed("waits_apart"), ROUNDS);
    setenv("SIMT_MEET", "1", 1);
    faults("waits_apart", "threads of its block at");
    assert_int_equal(times_reversed("right_reverse"), ROUNDS);
    unsetenv("SIMT_MEET");
}
#endif

/* What a wave of 64 cannot do and two of 32 can. */
static void halves_of_waves(void **state) {
    (void)state;
    if (IS_HIP) {
        faults("barrier_in_each_half", "others of its wave");
        faults("half_waits_for_half", "the other warp of its wave waits in a loop until");
    }
    setenv("SIMT_WAVE", "32", 1);
    assert_int_equal(times_reversed("right_meets"), ROUNDS);
    assert_int_equal(times_reversed("right_votes"), ROUNDS);
    assert_int_equal(times_reversed("barrier_in_each_half"), ROUNDS);
    assert_int_equal(times_reversed("half_waits_for_half"), ROUNDS);
    unsetenv("SIMT_WAVE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_kernels),
        cmocka_unit_test(missing_barriers),
        cmocka_unit_test(memory_of_other_blocks),
        cmocka_unit_test(order_of_blocks),
        cmocka_unit_test(fragments),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(halves_of_waves),
#if !IS_HIP
        cmocka_unit_test(starting_early),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
