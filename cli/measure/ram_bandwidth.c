#include "cli/measure/ram_bandwidth.h"

#include "common/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BUFFER_BYTES (1u << 30)
#define MAX_THREADS  256u

typedef uint64_t (*read_fn)(const char *p, size_t n);

static uint64_t read_plain(const char *p, size_t n) {
    uint64_t acc[8] = {0};
    for (size_t i = 0; i < n; i += 64)
        for (uint32_t j = 0; j < 8; j++) {
            uint64_t v;
            memcpy(&v, p + i + 8 * j, 8);
            acc[j] ^= v;
        }
    return acc[0] ^ acc[1] ^ acc[2] ^ acc[3] ^ acc[4] ^ acc[5] ^ acc[6] ^ acc[7];
}

#if defined(__x86_64__)
/* Four streams a thread keep more lines in flight than one hardware prefetcher does. */
__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *p, size_t n) {
    size_t quarter = n / 4;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < quarter; i += 64) {
        _mm_prefetch(p + i + 512, _MM_HINT_T0);
        _mm_prefetch(p + quarter + i + 512, _MM_HINT_T0);
        _mm_prefetch(p + 2 * quarter + i + 512, _MM_HINT_T0);
        _mm_prefetch(p + 3 * quarter + i + 512, _MM_HINT_T0);
        a = _mm512_xor_si512(a, _mm512_load_si512((const void *)(p + i)));
        b = _mm512_xor_si512(b, _mm512_load_si512((const void *)(p + quarter + i)));
        c = _mm512_xor_si512(c, _mm512_load_si512((const void *)(p + 2 * quarter + i)));
        d = _mm512_xor_si512(d, _mm512_load_si512((const void *)(p + 3 * quarter + i)));
    }
    a = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
    return (uint64_t)_mm512_reduce_add_epi64(a);
}

__attribute__((target("avx2"))) static uint64_t read_avx2(const char *p, size_t n) {
    size_t quarter = n / 4;
    __m256i acc[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    for (size_t i = 0; i < quarter; i += 32)
        for (uint32_t j = 0; j < 4; j++)
            acc[j] =
                _mm256_xor_si256(acc[j], _mm256_load_si256((const void *)(p + j * quarter + i)));
    __m256i x =
        _mm256_xor_si256(_mm256_xor_si256(acc[0], acc[1]), _mm256_xor_si256(acc[2], acc[3]));
    uint64_t out[4];
    _mm256_storeu_si256((void *)out, x);
    return out[0] ^ out[1] ^ out[2] ^ out[3];
}
#endif

static read_fn best_reader(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return read_avx512;
    if (__builtin_cpu_supports("avx2"))
        return read_avx2;
#endif
    return read_plain;
}

struct probe {
    char *buffer;
    size_t part_bytes;
    uint32_t n_passes, n_threads;
    read_fn read;
    pthread_barrier_t barrier;
    double best_ns;
    uint64_t sink; /* keeps the reads alive */
};

struct reader {
    struct probe *probe;
    uint32_t index;
};

static void *reader_main(void *arg) {
    struct reader *r = arg;
    struct probe *p = r->probe;
    char *part = p->buffer + r->index * p->part_bytes;
    memset(part, 1, p->part_bytes); /* each thread touches what it will read */
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_passes; i++) {
        pthread_barrier_wait(&p->barrier);
        uint64_t start = sl_now_ns();
        sum ^= p->read(part, p->part_bytes);
        pthread_barrier_wait(&p->barrier);
        double ns = (double)(sl_now_ns() - start);
        if (r->index == 0 && (p->best_ns == 0 || ns < p->best_ns))
            p->best_ns = ns;
    }
    __atomic_fetch_xor(&p->sink, sum, __ATOMIC_RELAXED);
    return NULL;
}

double sl_ram_read_bandwidth(uint32_t n_threads, double seconds, uint64_t max_bytes) {
    if (n_threads > MAX_THREADS)
        n_threads = MAX_THREADS;
    size_t bytes = BUFFER_BYTES;
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (max_bytes < bytes ||
        (pages > 0 && page > 0 && (uint64_t)pages * (uint64_t)page < 2 * (uint64_t)bytes))
        bytes /= 4;
    if (max_bytes < bytes) /* less would be read from caches */
        return 0;
    char *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return 0;
    madvise(buffer, bytes, MADV_HUGEPAGE);
    struct probe p = {.buffer = buffer, .n_threads = n_threads, .read = best_reader()};
    p.part_bytes = bytes / n_threads & ~(size_t)4095;
    p.n_passes = (uint32_t)(seconds / ((double)bytes / 40e9)) + 3;
    pthread_barrier_init(&p.barrier, NULL, n_threads);
    pthread_t thread[MAX_THREADS];
    struct reader reader[MAX_THREADS];
    uint32_t n = 1;
    for (uint32_t i = 0; i < n_threads; i++)
        reader[i] = (struct reader){&p, i};
    while (n < n_threads && pthread_create(&thread[n], NULL, reader_main, &reader[n]) == 0)
        n++;
    double rate = 0;
    if (n == n_threads) {
        reader_main(&reader[0]);
        rate = (double)p.part_bytes * n_threads / (p.best_ns * 1e-9);
        for (uint32_t i = 1; i < n; i++)
            pthread_join(thread[i], NULL);
    } else {
        /* The others wait at a barrier that will never fill. */
        for (uint32_t i = 1; i < n; i++) {
            pthread_cancel(thread[i]);
            pthread_detach(thread[i]);
        }
        return 0; /* buffer and barrier stay: threads may still be in them */
    }
    pthread_barrier_destroy(&p.barrier);
    munmap(buffer, bytes);
    return rate;
}
