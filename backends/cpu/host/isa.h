/* Instruction sets that kernels are compiled for, and what this machine's CPU is. */
#ifndef SL_BACKENDS_CPU_HOST_ISA_H
#define SL_BACKENDS_CPU_HOST_ISA_H

#include <stddef.h>

enum sl_cpu_isa {
    SL_CPU_C,      /* the definition: plain C */
    SL_CPU_AVX2,   /* AVX2 + FMA + F16C */
    SL_CPU_AVX512, /* F, BW, DQ, VL */
    SL_CPU_VNNI,   /* AVX512 + VNNI + VBMI + BF16 */
    SL_CPU_BEST,   /* the best that this machine supports */
};

/* In the enum's order, to SL_CPU_VNNI; NULL at the end. */
extern const char *const sl_cpu_isa_names[];
const char *sl_cpu_isa_name(enum sl_cpu_isa isa);

/* The best set that this machine supports; at least SL_CPU_C. */
enum sl_cpu_isa sl_cpu_best_isa(void);

/* The CPU's name without its vendor's decoration; never empty. */
void sl_cpu_brand(char *out, size_t size_bytes);

#endif
