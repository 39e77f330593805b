#include "engine/experts/pass_through.h"

struct sl_pass_slot *sl_pass_find(struct sl_pass_slots *w, struct sl_expert_id id) {
    for (uint32_t i = 0; w->n_early && i < w->n; i++) {
        struct sl_pass_slot *s = &w->slots[i];
        if (s->state == SL_PASS_EARLY && s->id.layer == id.layer && s->id.expert == id.expert)
            return s;
    }
    return NULL;
}

struct sl_pass_slot *sl_pass_room(struct sl_pass_slots *w) {
    for (uint32_t i = 0; i < w->n; i++) {
        struct sl_pass_slot *s = &w->slots[(w->next + i) % w->n];
        if (s->state != SL_PASS_FREE)
            continue;
        w->next = (uint32_t)(s - w->slots + 1) % w->n;
        return s;
    }
    return NULL;
}

void sl_pass_used(struct sl_pass_slots *w, sl_point used) {
    for (uint32_t i = 0; i < w->n && used; i++)
        if (w->slots[i].state == SL_PASS_TAKEN) {
            w->slots[i].state = SL_PASS_FREE;
            w->slots[i].used = used;
        }
}

void sl_pass_settle(struct sl_pass_slots *w) {
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->slots[i].state == SL_PASS_TAKEN)
            w->slots[i].state = SL_PASS_FREE;
        w->slots[i].used = 0;
    }
}
