/* Which machine has which stage, and how a machine's memory is divided over its own stages. */
#ifndef SL_ENGINE_PLAN_HOSTS_H
#define SL_ENGINE_PLAN_HOSTS_H

#include "engine/plan/memory_plan.h"

/* Sets the hosts of plans, with their budgets and speeds, and the host of each of its stages.
 * config: with ram_bytes, unless it names hosts. SL_ERR_CONFIG: what it says of hosts cannot be. */
enum sl_status sl_plan_hosts_find(const struct sl_engine_config *config,
                                  struct sl_stage_plans *plans, struct sl_err *err) SL_MUST_CHECK;
/* Is no stage before it on the same host? */
bool sl_stage_is_first_on_host(const struct sl_stage_plans *plans, uint32_t i);
/* Whether other stages' devices may relay this stage's copies of experts, and its device theirs.
 * Only if each has a GPU to itself: a GPU runs the copies of few queues at a time
 * (docs/perf-cuda.md), and one that waits for another GPU blocks those behind it, whose stage would
 * not know what it waits for. plans: its devices, open. */
bool sl_stage_may_relay(const struct sl_stage_plans *plans, uint32_t i);
/* The place of stage i; relays is left false. plans: its devices, open. */
struct sl_plan_place sl_stage_place(const struct sl_stage_plans *plans,
                                    const struct sl_model *whole, uint32_t i);
/* What config is for stage i: the budgets of the process that the stage is in, and what that
 * process holds, are those of its host. */
void sl_plan_host_config(const struct sl_stage_plans *plans, uint32_t i,
                         struct sl_engine_config *inout_config);

/* The least budget of a host: the sum over its stages' plans. */
uint64_t sl_plan_host_least(const struct sl_stage_plans *plans, uint32_t host);
/* Divides what a host has over its stages: to each the least that its plan names, and of the rest a
 * part by what the plan takes beyond that. plans: of every stage, made with no bound. Only the
 * host's own stages are written to in out_bytes; of pinned memory 0 = no bound. SL_ERR_CONFIG: it
 * is not enough for the least. */
enum sl_status sl_plan_divide_ram(const struct sl_stage_plans *plans, uint32_t host,
                                  uint64_t out_bytes[SL_MAX_STAGES],
                                  struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_plan_divide_pinned(const struct sl_stage_plans *plans, uint32_t host,
                                     uint64_t out_bytes[SL_MAX_STAGES],
                                     struct sl_err *err) SL_MUST_CHECK;
/* Bytes of KV pages, of all layers, that can be kept for prefixes that later requests may share:
 * what every host can spare when all experts are resident; 0 where some are streamed. */
uint64_t sl_plan_spare_for_cache(const struct sl_stage_plans *plans);

/* Sets each host's least budget, as its stages' plans now have it. */
void sl_plan_hosts_note_least(struct sl_stage_plans *plans);
/* Sets what each host's stages and process take. */
void sl_plan_hosts_sum(struct sl_stage_plans *plans);
/* The sums of the hosts' budgets; UINT64_MAX where one has no bound. */
void sl_plan_hosts_budget(const struct sl_stage_plans *plans, uint64_t *out_ram_bytes,
                          uint64_t *out_pinned_bytes);

#endif
