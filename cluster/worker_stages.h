/* The stages of a worker: planned as a coordinator asks, loaded, and served. */
#ifndef SL_CLUSTER_WORKER_STAGES_H
#define SL_CLUSTER_WORKER_STAGES_H

#include "cluster/setup.h"
#include "cluster/worker.h"
#include "engine/stage/stage_message.h"

struct sl_stage;
struct sl_worker_stages;

/* Fills what a worker has to offer; opens its devices for a moment. content: of the model. */
enum sl_status sl_worker_offer(const struct sl_worker_config *config, uint64_t content,
                               struct sl_setup_offer *out_offer, struct sl_err *err) SL_MUST_CHECK;

/* Plans and loads. SL_ERR_CONFIG: it is not the same model, does not fit (the text says what
 * would), or is invalid; SL_ERR_CANCELED: progress asked for it. offer: as it was sent. */
enum sl_status sl_worker_stages_open(const struct sl_worker_config *config,
                                     const struct sl_setup_offer *offer,
                                     const struct sl_setup_load *load, struct sl_progress *progress,
                                     struct sl_worker_stages **out_stages,
                                     struct sl_err *err) SL_MUST_CHECK;
void sl_worker_stages_close(struct sl_worker_stages **s);

uint32_t sl_worker_n_stages(const struct sl_worker_stages *s);
/* CPUs that computing takes. */
uint32_t sl_worker_busy_cpus(const struct sl_worker_stages *s);
struct sl_stage *sl_worker_stage(struct sl_worker_stages *s, uint32_t i);
const struct sl_message_limits *sl_worker_limits(const struct sl_worker_stages *s, uint32_t i);
/* Any thread, while the stages are open. */
void sl_worker_stage_look(const struct sl_worker_stages *s, uint32_t i,
                          struct sl_worker_stage_look *out);
void sl_worker_ready(const struct sl_worker_stages *s, struct sl_setup_ready *out);

#endif
