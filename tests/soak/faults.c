/* A failing disk for the soak: linked into the server with --wrap=sl_reader_complete, it spoils
 * results of real reads, of io_uring and of the pread pool alike, before the reader sees them.
 *
 * SOAK_FAULTS=SEED  0 or unset: a healthy disk. Otherwise, of the requests:
 *   1 in 200 comes back short, 1 in 500 with EIO, 1 in 300 with EINTR or EAGAIN: all mended;
 *   one of 16,384 places of 256 KiB fails in any given second, however often it is asked: what
 * needs it must fail, and nothing else; 1 in 20,000 takes 2 s. */
#include "common/clock.h"
#include "common/rng.h"
#include "streaming/reader_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

void __real_sl_reader_complete(struct sl_reader *reader, struct sl_io_request *request);
void __wrap_sl_reader_complete(struct sl_reader *reader, struct sl_io_request *request);

static bool sick_place(const struct sl_io_request *q, uint64_t seed) {
    struct sl_rng place = {seed ^ q->offset_bytes >> 18 ^ sl_now_ns() / 1000000000u << 40};
    return sl_rng_below(&place, 16384) == 0;
}

/* On the reader's owner thread only. */
void __wrap_sl_reader_complete(struct sl_reader *reader, struct sl_io_request *q) {
    static struct sl_rng rng;
    static uint64_t seed = UINT64_MAX;
    if (seed == UINT64_MAX) {
        const char *text = getenv("SOAK_FAULTS");
        seed = text ? strtoull(text, NULL, 10) : 0;
        rng.state = seed;
    }
    if (seed && q->result > 0) {
        if (sick_place(q, seed) || sl_rng_below(&rng, 500) == 0)
            q->result = -EIO;
        else if (sl_rng_below(&rng, 200) == 0)
            q->result = (int32_t)sl_rng_below(&rng, (uint32_t)q->result);
        else if (sl_rng_below(&rng, 300) == 0)
            q->result = sl_rng_below(&rng, 2) ? -EINTR : -EAGAIN;
        else if (sl_rng_below(&rng, 20000) == 0)
            nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    }
    __real_sl_reader_complete(reader, q);
}
