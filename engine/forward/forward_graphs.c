/* Steps of generated rows as graphs. Where all experts are resident a step is one graph. Where they
 * are not, it is cut behind each router: what lies between two of them is one graph, and the host
 * enqueues the experts in between, when it knows which. */
#include "engine/forward/forward_internal.h"

#include "common/clock.h"
#include "common/log.h"
#include "engine/layers/experts.h"

#include <stdio.h>
#include <stdlib.h>

static struct sl_graph ***graphs_of(struct sl_forward *f, uint32_t n_rows) {
    return &f->graphs[f->host_x && !f->lane_rests][n_rows - 1];
}

static void drop(struct sl_forward *f, struct sl_graph ***graphs) {
    for (uint32_t i = 0; *graphs && i <= f->hp->n_layer; i++)
        sl_graph_free(f->dev, &(*graphs)[i]);
    free(*graphs);
    *graphs = NULL;
}

void sl_forward_drop_graphs(struct sl_forward *f) {
    for (uint32_t n = 0; n < SL_FORWARD_GRAPHS; n++) {
        drop(f, &f->graphs[0][n]);
        drop(f, &f->graphs[1][n]);
    }
}

/* The layer at or after this one whose router the host must hear, or their number. */
static uint32_t next_cut(const struct sl_forward *f, uint32_t layer) {
    while (layer < sl_answer_layers(f->hp) && !f->layers[layer].ffn->routed)
        layer++;
    return layer;
}

/* The ops from the experts' sum of the layer before `from` up to the router of layer `to`; from 0
 * begins the step, to their number ends it. */
static enum sl_status compute_part(struct sl_forward *f, uint32_t from, uint32_t to,
                                   struct sl_place *where) {
    const struct sl_step *s = &f->step;
    struct sl_rows r = {f->a.x, s->n_rows, s->n_decode, NULL, f->row_failed};
    enum sl_status status;
    where->layer = from ? from - 1 : UINT32_MAX;
    status = from ? sl_forward_join(f, &r, where) : sl_forward_embed(f, where);
    for (uint32_t i = from; i < sl_answer_layers(f->hp) && i <= to && status == SL_OK; i++) {
        where->layer = i;
        status = sl_forward_mix(f, &r, where);
        if (status == SL_OK && i < to)
            status = f->layers[i].ffn->run(f, &r, where);
    }
    if (status != SL_OK)
        return status;
    if (to == sl_answer_layers(f->hp)) {
        float *logits;
        where->layer = UINT32_MAX;
        if (!f->output.data)
            return sl_forward_sends(f) ? sl_forward_send(f, where) : SL_OK;
        return sl_forward_output(f, r.x, r.n, r.n_decode, &logits, where);
    }
    SL_TRY(sl_forward_route(f, &r, where));
    SL_FORWARD_TRY("copying the experts' rows", sl_forward_send_rows(f, to, &r));
    SL_FORWARD_TRY("reading the router's choice", sl_forward_send_ids(f, to, r.n));
    uint32_t n_predictions = sl_forward_can_predict(f, to, f->prediction);
    for (uint32_t i = 0; i < n_predictions; i++) {
        SL_TRY(sl_forward_predict(f, &r, i, where));
    }
    if (n_predictions)
        SL_FORWARD_TRY("reading the early routers' choice", sl_forward_send_prediction(f, to, r.n));
    return sl_forward_shared(f, &r, where);
}

/* All parts of such steps are there, or this was the last one that was not. */
static void log_recorded(const struct sl_forward *f) {
    char what[64];
    snprintf(what, sizeof what, "steps of %u generated row%s", f->step.n_rows,
             f->step.n_rows == 1 ? "" : "s");
    sl_device_log_recorded(f->dev, what);
}

/* Enqueues what a graph holds, made by `whole` or else part; recorded first if it is not there. */
static enum sl_status run_part(struct sl_forward *f, bool whole, uint32_t from, uint32_t to,
                               struct sl_place *where) {
    struct sl_graph **graph = &(*graphs_of(f, f->step.n_rows))[from];
    const struct sl_abort *give_up = where->give_up;
    float *logits;
    if (*graph || f->no_graphs)
        goto enqueue;
    where->give_up = NULL; /* a part of a part is no graph */
    SL_FORWARD_TRY("recording the step", sl_device_record(f->dev));
    enum sl_status status =
        whole ? sl_forward_compute(f, &logits, where) : compute_part(f, from, to, where);
    enum sl_status end = sl_device_recorded(f->dev, status == SL_OK ? graph : NULL);
    where->give_up = give_up;
    if (status != SL_OK)
        return status;
    if (end == SL_ERR_DEVICE_OOM || end == SL_ERR_UNSUPPORTED || end == SL_ERR_NOMEM) {
        sl_warn("%s keeps no graphs of steps (%s): decoding will be slower", f->dev->caps.name,
                sl_status_text(end));
        f->no_graphs = true;
    } else {
        SL_FORWARD_TRY("recording the step", end);
        if (to == sl_answer_layers(f->hp))
            log_recorded(f);
    }
enqueue:
    if (!*graph) {
        status = whole ? sl_forward_compute(f, &logits, where) : compute_part(f, from, to, where);
        return status;
    }
    SL_FORWARD_TRY("the step", sl_device_replay(f->dev, *graph));
    return SL_OK;
}

/* Graphs of the other kind go: the experts have become resident, or no longer are; or in steps of
 * so many rows other layers are predicted than before. */
static enum sl_status prepare(struct sl_forward *f, struct sl_place *where) {
    uint32_t n_rows = f->step.n_rows;
    f->lane_rests = f->host_x && !f->resident && n_rows <= f->plan->lane_rows &&
                    !sl_fetch_lane_begin(f->fetch, n_rows);
    struct sl_graph ***graphs = graphs_of(f, n_rows);
    uint32_t *made_with = &f->graphs_prediction[f->host_x && !f->lane_rests][n_rows - 1];
    uint32_t prediction =
        !f->resident && f->dev->caps.mailbox ? sl_fetch_predictions(f->fetch, n_rows) : 0;
    /* The host must hear of all predictions without a copy: the farthest are left out. */
    while (prediction * n_rows * f->hp->n_expert_used * sizeof *f->host_prediction >
           SL_MAILBOX_MAX_BYTES)
        prediction--;
    if (f->graphs_whole != f->resident)
        sl_forward_drop_graphs(f);
    else if (*made_with != prediction)
        drop(f, graphs);
    f->graphs_whole = f->resident;
    *made_with = prediction;
    f->prediction = prediction;
    f->predicted = UINT32_MAX;
    if (!*graphs && !(*graphs = calloc(f->hp->n_layer + 1, sizeof **graphs)))
        return sl_fail(where->err, SL_ERR_NOMEM, "no memory for the list of a step's parts");
    return SL_OK;
}

/* Before the part is enqueued whose end tells the host what this layer's router chose. */
static void expect(struct sl_forward *f, uint32_t layer) {
    sl_forward_expect_ids(f, layer, f->step.n_rows);
    if (sl_forward_can_predict(f, layer, f->prediction))
        sl_forward_expect_prediction(f, layer, f->step.n_rows);
}

enum sl_status sl_forward_replay(struct sl_forward *f, float **out_logits, struct sl_place *where) {
    struct sl_step *s = &f->step;
    uint32_t n_layer = sl_answer_layers(f->hp);
    struct sl_rows r = {f->a.x, s->n_rows, s->n_decode, NULL, f->row_failed};
    uint64_t begun = sl_now_ns();
    enum sl_status status = prepare(f, where);
    *out_logits = f->a.logits;
    if (status != SL_OK || f->resident)
        return status != SL_OK ? status : run_part(f, true, 0, n_layer, where);
    for (uint32_t from = 0, to;; from = to + 1) {
        to = next_cut(f, from);
        if (where->give_up && where->give_up->asked(where->give_up)) {
            where->layer = UINT32_MAX;
            SL_FORWARD_TRY("canceled step", sl_device_sync(f->dev));
            return sl_fail(where->err, SL_ERR_CANCELED, "canceled");
        }
        uint64_t start = sl_timeline_now(f->timeline);
        if (to < n_layer)
            expect(f, to);
        status = run_part(f, false, from, to, where);
        if (status == SL_OK && from && f->prediction)
            sl_forward_follow_prediction(f, from - 1, s->n_rows);
        if (status == SL_OK && to == n_layer && f->host_x && !s->n_failed &&
            s->n_rows <= f->plan->lane_rows)
            sl_fetch_lane_stepped(f->fetch, s->n_rows, sl_now_ns() - begun);
        if (status != SL_OK || to == n_layer)
            return status;
        sl_fetch_poll(f->fetch);
        const uint32_t *chosen;
        where->layer = to;
        SL_FORWARD_TRY("reading the router's choice",
                       sl_forward_await_ids(f, to, s->n_rows, &chosen));
        SL_TRY(sl_forward_fetch(f, &r, chosen, false, where));
        sl_forward_count_routes(f, to, s->n_rows, NULL, chosen);
        sl_timeline_since(f->timeline, "layer", start, {"layer", f->hp->first_layer + to});
        if (s->n_failed == s->n_rows) { /* nothing is left that anybody could use */
            *out_logits = NULL;
            return SL_OK;
        }
    }
}
