#include "server/answer/answer_parts.h"

#include <stdlib.h>

static struct sl_segment *segment_new(struct sl_segments *s, enum sl_part_kind kind,
                                      uint32_t call) {
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 4;
        struct sl_segment *list = realloc(s->list, cap * sizeof *list);
        if (!list) {
            s->failed = true;
            return NULL;
        }
        s->list = list;
        s->cap = cap;
    }
    struct sl_segment *g = &s->list[s->n++];
    *g = (struct sl_segment){.kind = kind, .call = call};
    return g;
}

static struct sl_segment *segment_of_call(struct sl_segments *s, uint32_t call) {
    for (uint32_t i = s->n; i > 0; i--) /* the last one, nearly always */
        if (s->list[i - 1].kind == SL_PART_CALL && s->list[i - 1].call == call)
            return &s->list[i - 1];
    return NULL;
}

void sl_segments_add(struct sl_segments *s, const struct sl_part *part) {
    struct sl_segment *g = s->n ? &s->list[s->n - 1] : NULL;
    struct sl_str text = part->text;
    if (part->kind == SL_PART_CALL) {
        g = segment_new(s, SL_PART_CALL, part->call);
        if (g)
            sl_buf_put(&g->name, text.ptr, text.len);
    } else if (text.len == 0) {
        return;
    } else if (part->kind == SL_PART_ARGUMENTS) {
        g = segment_of_call(s, part->call);
        if (g)
            sl_buf_put(&g->text, text.ptr, text.len);
    } else {
        if (!g || g->kind != part->kind)
            g = segment_new(s, part->kind, 0);
        if (g)
            sl_buf_put(&g->text, text.ptr, text.len);
    }
    s->failed = s->failed || (g && (g->name.failed || g->text.failed));
}

void sl_segments_release(struct sl_segments *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        sl_buf_release(&s->list[i].name);
        sl_buf_release(&s->list[i].text);
    }
    free(s->list);
    *s = (struct sl_segments){0};
}

bool sl_segments_join(const struct sl_segments *s, enum sl_part_kind kind, struct sl_buf *out) {
    bool any = false;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->list[i].kind != kind)
            continue;
        any = true;
        sl_buf_put(out, s->list[i].text.ptr, s->list[i].text.len);
    }
    return any;
}
