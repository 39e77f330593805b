/* Inside the CPU backend: the device struct and what its parts offer one another. */
#ifndef SL_BACKENDS_CPU_CPU_INTERNAL_H
#define SL_BACKENDS_CPU_CPU_INTERNAL_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/pool.h"

struct sl_cpu {
    struct sl_device base; /* first: a struct sl_device * is a struct sl_cpu * */
    struct sl_pool *pool;
    enum sl_cpu_isa isa;
    /* Shared by all ops, one of which runs at a time; 64-byte aligned; large enough for every call
     * within base.limits. */
    void *scratch;
    size_t scratch_bytes;
};

/* matmul.c, moe.c: quantised and float products. Arguments were checked by the front. */
enum sl_status sl_cpu_embed(struct sl_device *d, const struct sl_op_embed *a);
enum sl_status sl_cpu_matmul(struct sl_device *d, const struct sl_op_matmul *a);
enum sl_status sl_cpu_moe(struct sl_device *d, const struct sl_op_moe *a);
uint64_t sl_cpu_matmul_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads);
uint64_t sl_cpu_moe_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads);

#endif
