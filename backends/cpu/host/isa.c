/* What this machine's CPU can do, straight from CPUID and XCR0 (compilers differ in the names that
 * their built-ins know). */
#include "backends/cpu/host/isa.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

const char *const sl_cpu_isa_names[] = {"c", "avx2", "avx512", "vnni", NULL};

const char *sl_cpu_isa_name(enum sl_cpu_isa isa) {
    if (isa == SL_CPU_BEST)
        return "best";
    return (unsigned)isa < SL_CPU_BEST ? sl_cpu_isa_names[isa] : "unknown";
}

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t xcr0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool bit(uint32_t word, unsigned n) {
    return word >> n & 1;
}

enum sl_cpu_isa sl_cpu_best_isa(void) {
    uint32_t a, b1, c1, d1, b7 = 0, c7 = 0, d7 = 0, a71 = 0, b71, c71, d71;
    if (!__get_cpuid(1, &a, &b1, &c1, &d1) || !bit(c1, 27 /* OSXSAVE */))
        return SL_CPU_C;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return SL_CPU_C;
    if (a >= 1)
        __get_cpuid_count(7, 1, &a71, &b71, &c71, &d71);
    uint64_t os = xcr0();
    bool ymm = (os & 0x6) == 0x6, zmm = (os & 0xe6) == 0xe6;
    bool avx2 = ymm && bit(c1, 28 /* AVX */) && bit(c1, 12 /* FMA */) && bit(c1, 29 /* F16C */) &&
                bit(b7, 5 /* AVX2 */) && bit(b7, 8 /* BMI2 */);
    bool avx512 = avx2 && zmm && bit(b7, 16 /* F */) && bit(b7, 17 /* DQ */) &&
                  bit(b7, 30 /* BW */) && bit(b7, 31 /* VL */);
    bool vnni = avx512 && bit(c7, 11 /* VNNI */) && bit(c7, 1 /* VBMI */) && bit(a71, 5 /* BF16 */);
    return vnni ? SL_CPU_VNNI : avx512 ? SL_CPU_AVX512 : avx2 ? SL_CPU_AVX2 : SL_CPU_C;
}

void sl_cpu_brand(char *out, size_t size_bytes) {
    union {
        uint32_t word[12];
        char text[49];
    } u;
    memset(&u, 0, sizeof u);
    uint32_t a, b, c, d;
    if (__get_cpuid(0x80000000u, &a, &b, &c, &d) && a >= 0x80000004u)
        for (uint32_t i = 0; i < 3; i++)
            __get_cpuid(0x80000002u + i, &u.word[4 * i], &u.word[4 * i + 1], &u.word[4 * i + 2],
                        &u.word[4 * i + 3]);
    /* Vendors pad with blanks and say the obvious. */
    size_t n = 0;
    for (const char *s = u.text; *s && n + 1 < size_bytes;) {
        static const char *const noise[] = {"(R)", "(TM)", " Processor", " CPU"};
        size_t skip = 0;
        for (size_t i = 0; i < sizeof noise / sizeof noise[0]; i++)
            if (strncmp(s, noise[i], strlen(noise[i])) == 0)
                skip = strlen(noise[i]);
        if (*s == ' ' && (n == 0 || s[1] == ' ' || !s[1]))
            skip = 1;
        if (skip)
            s += skip;
        else
            out[n++] = *s++;
    }
    out[n] = 0;
    if (!n)
        snprintf(out, size_bytes, "x86-64");
}
#else
enum sl_cpu_isa sl_cpu_best_isa(void) {
    return SL_CPU_C;
}

void sl_cpu_brand(char *out, size_t size_bytes) {
    snprintf(out, size_bytes, "unknown");
}
#endif
