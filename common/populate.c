#include "common/populate.h"

#include "common/cpus.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; older headers lack it */
#endif

#define PIECE_BYTES ((size_t)64 << 20) /* whole huge pages */
#define MAX_THREADS 8u                 /* more than these the memory does not keep busy */

struct range {
    char *base;
    size_t n_pieces, size_bytes;
    atomic_size_t next;
    atomic_int failed; /* errno */
};

/* Touching page by page is only for kernels that lack the call, which is quicker and reports a lack
 * of memory where a touch would be killed. The byte keeps its value, whoever writes it meanwhile.
 */
static int populate_piece(char *base, size_t size_bytes) {
    if (madvise(base, size_bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return errno;
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < size_bytes; i += page_bytes)
        __atomic_fetch_or(base + i, 0, __ATOMIC_RELAXED);
    return 0;
}

static void *populate_some(void *arg) {
    struct range *r = arg;
    for (size_t i; !r->failed && (i = r->next++) < r->n_pieces;) {
        size_t at = i * PIECE_BYTES, left = r->size_bytes - at;
        int rc = populate_piece(r->base + at, left < PIECE_BYTES ? left : PIECE_BYTES);
        if (rc)
            r->failed = rc;
    }
    return NULL;
}

int sl_populate(void *base, size_t size_bytes) {
    /* Whole pages, whose beginnings may be others'. */
    size_t skew = (uintptr_t)base % (size_t)sysconf(_SC_PAGESIZE);
    struct range r = {.base = (char *)base - skew, .size_bytes = size_bytes + skew};
    r.n_pieces = (r.size_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    uint32_t n_cpus = sl_cpus_allowed(), n_threads = n_cpus < MAX_THREADS ? n_cpus : MAX_THREADS;
    pthread_t thread[MAX_THREADS];
    uint32_t n = 0;
    while (n + 1 < n_threads && n + 1 < r.n_pieces &&
           pthread_create(&thread[n], NULL, populate_some, &r) == 0)
        n++;
    populate_some(&r);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    return r.failed;
}
