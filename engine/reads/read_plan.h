/* Experts that are to be read when the disk has nothing better to do: nearest layer first, within a
 * layer in the order in which they were added. What is only planned has pushed nothing out of its
 * slot, so a plan for a layer can be replaced until it is taken. One thread; nothing is allocated.
 */
#ifndef SL_ENGINE_READ_PLAN_H
#define SL_ENGINE_READ_PLAN_H

#include "expert_cache/heat.h"

#include <stdint.h>

/* Written by read_plan.c alone. */
struct sl_read_plan {
    struct sl_expert_id *ids; /* [most] borrowed */
    uint32_t n, most;
};

/* ids [most] must outlive p. */
void sl_read_plan_init(struct sl_read_plan *p, struct sl_expert_id *ids, uint32_t most);
/* Behind what is planned for that layer and nearer ones. One that is planned, or that there is no
 * room for, is left as it is. */
void sl_read_plan_add(struct sl_read_plan *p, struct sl_expert_id id);
/* Drops what is planned for that layer. */
void sl_read_plan_drop_layer(struct sl_read_plan *p, uint32_t layer);
/* The first n have been taken. */
void sl_read_plan_drop_first(struct sl_read_plan *p, uint32_t n);
void sl_read_plan_drop_all(struct sl_read_plan *p);

#endif
