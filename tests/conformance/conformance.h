/* What the conformance programs share: the devices under test, the definition that they are held
 * to, inputs that reach the corners, and the comparison.
 *
 * Each program runs its op's cases through conf_case(): the op on the definition (CPU, plain C, one
 * thread), then on every target, the results compared: the CPU's instruction sets and thread counts
 * bit for bit, other backends within the tolerance that the case states (none: bit for bit as
 * well). A target that this machine lacks is a skipped test; when it was asked for by --backend, a
 * failed one.
 *
 * Memory of a target need not be visible to the host: inputs go up and results come down by
 * conf_put and conf_get. */
#ifndef SL_TESTS_CONFORMANCE_H
#define SL_TESTS_CONFORMANCE_H

#include "backends/backend.h"
#include "common/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct conf_target {
    const char *name; /* "avx2 x 3 threads" */
    enum sl_status (*open)(const struct conf_target *t, struct sl_device **out_device,
                           struct sl_err *err);
    int isa; /* for the CPU */
    uint32_t n_threads;
    bool same_bits; /* as the definition, in every op */
};

/* Runs all of tests on the definition alone, then on every target; the program's exit status. Every
 * device is configured with limits. Arguments: --backend NAME keeps to the targets whose name
 * starts with it. --reference fast has the CPU's best kernels stand for the definition, which is
 * slower: a run without it shows that they have its bits. */
struct conf_test {
    const char *name;
    void (*fn)(void);
};
int conf_main(int argc, char **argv, const char *op, const struct sl_device_limits *limits,
              const struct conf_test *tests, size_t n_tests);

/* One case of the running test; the same cases in the same order for every target. run() does the
 * op on d (the arrays that it uses come from conf_put) and leaves n values in out. y [n] receives
 * the target's own result, once it has been compared. */
enum conf_kind { CONF_F32, CONF_U32, CONF_U8 };
typedef void conf_run(struct sl_device *d, const void *ctx, void *out);
void conf_case(const char *what, conf_run *run, const void *ctx, enum conf_kind kind, size_t n,
               void *y);

/* From here to the end of the test, targets that need not have the definition's bits may be off by
 * relative times the largest finite |definition| of the case. What is not finite must be the
 * same. */
void conf_tolerance(float relative);

/* True while the definition itself is tested: the time to compare it with an independent reference.
 * The targets' runs need not repeat that. */
bool conf_checking(void);

/* True for a target that was just found to have the definition's bits, of which nothing more need
 * be asked. */
bool conf_same_bits(void);

/* The next case has weights of this type: a target that lacks it passes the case over, and the test
 * says how many there were. */
void conf_needs(enum sl_dtype dtype);
/* The same of a form of the op; has: conf_device() has it. */
void conf_needs_form(bool has);
/* Does the current target lack it? For what goes to conf_device() without a case. */
bool conf_lacks(enum sl_dtype dtype);

/* A GPU is among the targets: the time for shapes that are there for its blocks and tiles alone. */
bool conf_gpu(void);

/* Skips the rest of the test on a target whose backend has no kernel for the op yet. */
void conf_needs_op(enum sl_op op);

/* The device of the current target, for invariance checks: a row alone must equal the
 * row in a batch, whatever the device. */
struct sl_device *conf_device(void);

/* Device memory until the current case ends; src NULL: filled with 0xff, NaN to whoever reads it.
 * Small red zones around it are checked when the case ends, where the host can see them. */
void *conf_put(struct sl_device *d, const void *src, size_t bytes);
void conf_get(struct sl_device *d, void *dst, const void *src, size_t bytes);
/* The op's status must be SL_OK. */
void conf_ok(enum sl_status status);

/* Host memory until the current test ends. */
void *conf_host(size_t bytes);

/* Inputs. */
enum conf_fill {
    CONF_PLAIN,    /* uniform in [-1, 1] */
    CONF_WIDE,     /* magnitudes from 1e-6 to 1e6 */
    CONF_DENORMAL, /* many denormals and zeros of both signs among small numbers */
    CONF_SPIKES,   /* small, with a few large ones */
    CONF_EQUAL,    /* few distinct values: ties */
    CONF_N_FILL,
};
void conf_fill(struct sl_rng *rng, enum conf_fill fill, float *x, size_t n);

/* |y - ref| <= tol for all; says where not. */
void conf_near(const char *what, const float *y, const double *ref, const double *tol, size_t n);

#define CONF_COUNT(array) (sizeof(array) / sizeof(array)[0])

#endif
