/* Fills memory that nobody else has yet.
 *
 * What is large is taken in huge pages, since page by page takes several times as long. And
 * memset() under TSan looks at what threads know of each word, and writes it down: of memory that
 * was just allocated that is known, and it costs more than all else that some tests do. */
#ifndef SL_TESTS_SUPPORT_QUIET_FILL_H
#define SL_TESTS_SUPPORT_QUIET_FILL_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread"))) static inline void fill_words(void *at, uint8_t byte,
                                                                     size_t n) {
    uint64_t *word = at, eight = byte * UINT64_C(0x0101010101010101);
    for (size_t i = 0; i < n / 8; i++)
        word[i] = eight;
    for (size_t i = n / 8 * 8; i < n; i++)
        ((uint8_t *)at)[i] = byte;
}
#else
#define fill_words memset
#endif

static inline void quiet_fill(void *at, uint8_t byte, size_t n) {
    const size_t huge = (size_t)2 << 20;
    size_t before = -(uintptr_t)at & (huge - 1);
    if (n >= before + huge)
        madvise((char *)at + before, (n - before) & ~(huge - 1), MADV_HUGEPAGE);
    fill_words(at, byte, n);
}

#endif
