/* The speed to expect of a memory plan: the bytes that a token touches, how many of them will be in
 * memory, and two upper bounds on the decoding rate that follow from given bandwidths.
 *
 *     T_mem = (D + v A) / B_mem      T_disk = s A / B_disk      v + s = 1
 *     causal  1 / (T_mem + T_disk)   a read can start only when the router has chosen
 *     overlap 1 / max(T_mem, T_disk) with perfect look-ahead
 *
 * A is what one token's routing touches, D the weights that every token reads. */
#ifndef SL_ENGINE_PLAN_SPEED_H
#define SL_ENGINE_PLAN_SPEED_H

#include "engine/plan/memory_plan.h"

struct sl_ceilings {
    double causal_tokens_per_s, overlap_tokens_per_s;
};

/* hit_share: v. A bandwidth of 0 is unknown; the ceilings that need it are then 0. */
struct sl_ceilings sl_ceilings(uint64_t dense_bytes, uint64_t routed_bytes, double hit_share,
                               double memory_bytes_per_s, double disk_bytes_per_s);

/* The same for a device with memory of its own, which host and disk reach over a link:
 *
 *     T_mem = (D + d A) / B_mem    T_link = (1 - d) A / B_link    T_disk = s A / B_disk
 *     causal  1 / (T_mem + max(T_link, T_disk))     overlap 1 / max(T_mem, T_link, T_disk)
 *
 * d: what the device's slots hold of A. Bytes from disk pass the link as they come. */
struct sl_tier_rates {
    double memory, link, disk; /* bytes/s; 0 = unknown. Where the host's CPU computes experts
                                  alongside the device, link is what both take together */
};
/* Of a stage of the plan, by the speeds that it has: infinite for one that computes in RAM. */
double sl_stage_link_rate(const struct sl_memory_plan *plan, uint32_t stage);
struct sl_plan_speed;
struct sl_ceilings sl_ceilings_discrete(const struct sl_plan_speed *speed,
                                        const struct sl_tier_rates *rates);

/* Weights that every token reads: all but the routed experts and the embedding's other rows. */
uint64_t sl_dense_token_bytes(const struct sl_model *model);

struct sl_plan_speed {
    uint64_t dense_bytes;  /* D */
    uint64_t routed_bytes; /* A */
    double resident_share; /* share of all routed bytes that the slots hold */
    double hit_share;      /* of A, expected: v */
    double device_share;   /* of A, expected in the slots of a discrete device: d */
    bool from_heat;        /* hit_share follows from the heat file, not from uniform routing */
};

/* Expected hits: with uniform routing, slots over experts; with a heat file (NULL = none; a file
 * that is not there or does not fit is none), the part of its use that the hottest experts which
 * the slots can hold have. SL_ERR_NOMEM, SL_ERR_UNSUPPORTED as the layout. */
enum sl_status sl_plan_speed_make(const struct sl_model *model, const struct sl_memory_plan *plan,
                                  const char *heat_file, struct sl_plan_speed *out_speed,
                                  struct sl_err *err) SL_MUST_CHECK;

/* The same for each stage of a plan by itself, [n_stages]: its layers, its slots. */
enum sl_status sl_plan_stage_speeds(const struct sl_model *model, const struct sl_memory_plan *plan,
                                    const char *heat_file,
                                    struct sl_plan_speed out_speeds[SL_MAX_STAGES],
                                    struct sl_err *err) SL_MUST_CHECK;

/* The ceilings of a plan over several hosts, each of which reads its own stages' experts from its
 * own disk. Of stage i on host h, with T_mem, T_link and T_disk as above by the speeds that the
 * plan has of the stage and its host (of a stage that computes in RAM no T_link):
 *
 *     causal  1 / sum_i (T_mem + max(T_link, T_disk))
 *     overlap 1 / max(sum_i T_mem, max_i T_link, max_h sum_(i on h) T_disk)
 *
 * *out_pipelined_tokens_per_s: of sessions that keep all stages busy, 1 / max(max_i T_mem, ...)
 * with the rest as in overlap. 0 where a speed that matters is not known. */
struct sl_ceilings sl_ceilings_hosts(const struct sl_memory_plan *plan,
                                     const struct sl_plan_speed *speeds,
                                     double *out_pipelined_tokens_per_s);

#endif
