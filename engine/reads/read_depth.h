/* How many reads may be in flight that are only likely to be needed: no more than the disk does
 * until it is next refilled. The limit doubles when the disk had run dry by then, and falls by an
 * eighth when it had done less than half. One thread; nothing is allocated. */
#ifndef SL_ENGINE_READ_DEPTH_H
#define SL_ENGINE_READ_DEPTH_H

#include <stdint.h>

/* Written by read_depth.c alone. */
struct sl_read_depth {
    uint32_t depth_bytes;
    uint32_t n_full; /* reads under way when it was reached since the last look; 0: never */
};

void sl_read_depth_init(struct sl_read_depth *d);
/* The disk is about to be refilled, with n_reading reads in flight. Not called after a wait, which
 * sees the end of each read. */
void sl_read_depth_look(struct sl_read_depth *d, uint32_t n_reading);
/* What was seen until now does not count: somebody has waited for reads, or the plan is new. */
void sl_read_depth_restart(struct sl_read_depth *d);
/* Reads of so many bytes each that may be started besides n_reading; 0: it is reached. */
uint32_t sl_read_depth_room(struct sl_read_depth *d, uint32_t n_reading, uint64_t read_bytes);

#endif
