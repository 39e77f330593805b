/* The CPU backend: the plain-C definition of every op, and SIMD kernels chosen at run time that
 * give the same bits.
 *
 * Arithmetic is canonical, so that C, AVX2, AVX-512 and any number of threads agree bit for bit:
 *
 *  - f32 sums over n elements (norms, F32/F16/BF16 dot products, q.k): 16 partial sums, element i
 *    into partial i % 16 by fused multiply-add in ascending i; then the partials are added as a
 * tree (8 apart, 4, 2, 1). A tail shorter than 16 goes to the low partials.
 *  - quantised dot products: the input row is quantised first, per 256 elements for the 256-element
 *    types and per 32 for the 32-element types (int8, f32 scale = max|x| / 127, round to nearest
 *    even), then per block the products are summed exactly in int32, including the type's integer
 *    sub-scales, and the block joins the row's one f32 sum in ascending block order:
 *        sum = fma(d_w * d_x, (float)isum, sum)            and for types with minima
 *        sum = fma(-(dmin_w * d_x), (float)imin, sum)
 *    (formats.h says isum and imin for each type).
 *  - exp and the functions derived from it use one polynomial, sl_expf in math.h, the same
 * operations in C and SIMD.
 */
#ifndef SL_BACKENDS_CPU_CPU_H
#define SL_BACKENDS_CPU_CPU_H

#include "backends/backend_entry.h"
#include "backends/cpu/host/isa.h"

/* caps.arithmetic: raise it with every change of these definitions that can change a bit. */
#define SL_CPU_ARITHMETIC 2u

#define SL_CPU_MAX_THREADS SL_DEVICE_MAX_THREADS

struct sl_cpu_config {
    uint32_t n_threads;  /* 0 = the CPUs this process may run on, at most SL_CPU_MAX_THREADS */
    enum sl_cpu_isa isa; /* SL_ERR_UNSUPPORTED if the machine lacks it */
    uint64_t awake_ns;   /* as in struct sl_device_options */
};

extern const struct sl_backend sl_cpu_backend;

/* Opens the CPU as a device. Its threads start here and sleep while no op runs. */
enum sl_status sl_cpu_open(const struct sl_cpu_config *config, struct sl_device **out_device,
                           struct sl_err *err) SL_MUST_CHECK;

#endif
