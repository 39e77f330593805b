#include "engine/experts/expert_window.h"

struct sl_window_slot *sl_window_find(struct sl_window *w, struct sl_expert_id id) {
    for (uint32_t i = 0; w->n_early && i < w->n; i++) {
        struct sl_window_slot *s = &w->slots[i];
        if (s->state == SL_WINDOW_EARLY && s->id.layer == id.layer && s->id.expert == id.expert)
            return s;
    }
    return NULL;
}

struct sl_window_slot *sl_window_room(struct sl_window *w) {
    for (uint32_t i = 0; i < w->n; i++) {
        struct sl_window_slot *s = &w->slots[(w->next + i) % w->n];
        if (s->state != SL_WINDOW_FREE)
            continue;
        w->next = (uint32_t)(s - w->slots + 1) % w->n;
        return s;
    }
    return NULL;
}

void sl_window_used(struct sl_window *w, sl_point used) {
    for (uint32_t i = 0; i < w->n && used; i++)
        if (w->slots[i].state == SL_WINDOW_TAKEN) {
            w->slots[i].state = SL_WINDOW_FREE;
            w->slots[i].used = used;
        }
}

void sl_window_settle(struct sl_window *w) {
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->slots[i].state == SL_WINDOW_TAKEN)
            w->slots[i].state = SL_WINDOW_FREE;
        w->slots[i].used = 0;
    }
}
