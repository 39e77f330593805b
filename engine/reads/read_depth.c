#include "engine/reads/read_depth.h"

/* From what covers a drive's latency up to what a fast disk reads during a long operation. */
#define LEAST_BYTES (1u << 20)
#define MOST_BYTES  (64u << 20)

void sl_read_depth_init(struct sl_read_depth *d) {
    *d = (struct sl_read_depth){.depth_bytes = LEAST_BYTES};
}

void sl_read_depth_look(struct sl_read_depth *d, uint32_t n_reading) {
    uint32_t more = 2 * d->depth_bytes, less = d->depth_bytes - d->depth_bytes / 8;
    if (d->n_full && !n_reading)
        d->depth_bytes = more < MOST_BYTES ? more : MOST_BYTES;
    else if (d->n_full && 2 * n_reading > d->n_full)
        d->depth_bytes = less > LEAST_BYTES ? less : LEAST_BYTES;
    d->n_full = 0;
}

void sl_read_depth_restart(struct sl_read_depth *d) {
    d->n_full = 0;
}

uint32_t sl_read_depth_room(struct sl_read_depth *d, uint32_t n_reading, uint64_t read_bytes) {
    uint32_t n = (uint32_t)(d->depth_bytes / read_bytes) + 1;
    if (n_reading < n)
        return n - n_reading;
    d->n_full = n_reading;
    return 0;
}
