#include "engine/reads/read_plan.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

void sl_read_plan_init(struct sl_read_plan *p, struct sl_expert_id *ids, uint32_t most) {
    *p = (struct sl_read_plan){.ids = ids, .most = most};
}

static bool has(const struct sl_read_plan *p, struct sl_expert_id id) {
    for (uint32_t i = 0; i < p->n; i++)
        if (p->ids[i].layer == id.layer && p->ids[i].expert == id.expert)
            return true;
    return false;
}

void sl_read_plan_add(struct sl_read_plan *p, struct sl_expert_id id) {
    uint32_t at = p->n;
    if (at == p->most || has(p, id))
        return;
    for (; at && p->ids[at - 1].layer > id.layer; at--)
        p->ids[at] = p->ids[at - 1];
    p->ids[at] = id;
    p->n++;
}

void sl_read_plan_drop_layer(struct sl_read_plan *p, uint32_t layer) {
    uint32_t keep = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->ids[i].layer != layer)
            p->ids[keep++] = p->ids[i];
    p->n = keep;
}

void sl_read_plan_drop_first(struct sl_read_plan *p, uint32_t n) {
    assert(n <= p->n);
    p->n -= n;
    memmove(p->ids, p->ids + n, p->n * sizeof *p->ids);
}

void sl_read_plan_drop_all(struct sl_read_plan *p) {
    p->n = 0;
}
