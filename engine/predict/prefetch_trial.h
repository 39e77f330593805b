/* Does running the next layer's router early pay? Judged by how long steps wait for the disk with
 * it and without: with, without, without, with is tried for some tokens each, and the better of the
 * two holds for a while. Times, rows and reads come in as numbers, so nothing else of the fetch is
 * needed. One thread; nothing is allocated. */
#ifndef SL_ENGINE_PREFETCH_TRIAL_H
#define SL_ENGINE_PREFETCH_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* Written by prefetch_trial.c alone. */
struct sl_prefetch_trial {
    uint32_t n_layer;              /* routed layers of a token */
    uint64_t layers;               /* begun in steps that might prefetch */
    uint64_t quiet_layer;          /* nothing was read for long: off from then on */
    uint32_t stretch;              /* of the trial; past its last: at rest */
    uint64_t stretch_end;          /* in layers */
    bool on;                       /* routers are run early in this stretch */
    uint64_t stall_ns[2], rows[2]; /* of the trial: without, with */
    uint64_t read, used;           /* speculative reads of the trial, and what was wanted of them */
    uint64_t seen_stall_ns;
    uint32_t prev_rows; /* of the layer before; 0: it does not count */
};

/* Off until a cold cache has had some tokens to fill: it would favour what is tried last. */
void sl_prefetch_trial_init(struct sl_prefetch_trial *t, uint32_t n_layer);
/* A layer begins: what was waited since the last one counts for the layer before. stall_ns: the
 * sum since the start. n_rows: of this layer; 0: a layer that cannot prefetch. */
void sl_prefetch_trial_layer(struct sl_prefetch_trial *t, uint64_t stall_ns, uint32_t n_rows);
/* So many experts were read speculatively for the layer that begins, so many of them are wanted. */
void sl_prefetch_trial_count(struct sl_prefetch_trial *t, uint32_t n_read, uint32_t n_used);
/* Decides whether to go on; after the two above, if the layer can prefetch. */
void sl_prefetch_trial_decide(struct sl_prefetch_trial *t);
/* Something was read for a token. */
void sl_prefetch_trial_read(struct sl_prefetch_trial *t);
/* Run routers early? Not while nothing is read anyway. */
bool sl_prefetch_trial_wants(const struct sl_prefetch_trial *t);

#endif
