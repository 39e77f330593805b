/* Recorded ops, launched together into a capture of the stream and replayed by one call. */
#include "backends/gpu/gpu_internal.h"

#include <stdlib.h>

struct sl_graph {
    struct CUgraphExec_st *exec;
};

/* Launches the ops into *out_captured. */
static enum sl_status capture(struct sl_gpu *c, const struct sl_recorded_op *ops, uint32_t n_ops,
                              struct CUgraph_st **out_captured) {
    bool uploaded = c->uploaded; /* nothing of this runs now */
    SL_TRY(sl_gpu_enter(c));
    /* Relaxed: what other threads do on other devices meanwhile is no concern of this. */
    SL_TRY(sl_gpu_check(c, c->driver.capture_begin(c->stream, SL_CU_CAPTURE_RELAXED), "recording"));
    enum sl_status status = sl_recorded_submit(&c->base, ops, n_ops);
    c->uploaded = uploaded;
    enum sl_status ended =
        sl_gpu_check(c, c->driver.capture_end(c->stream, out_captured), "recording");
    return status ? status : ended;
}

enum sl_status sl_gpu_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                   uint32_t n_ops, struct sl_graph **out_graph) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct CUgraph_st *captured = NULL;
    struct sl_graph *graph = NULL;
    enum sl_status status = capture(c, ops, n_ops, &captured);
    if (!status && !(graph = calloc(1, sizeof *graph)))
        status = SL_ERR_NOMEM;
    if (!status)
        status = sl_gpu_check(c, c->driver.graph_instantiate(&graph->exec, captured, 0),
                              "making a graph");
    if (captured)
        c->driver.graph_destroy(captured);
    if (status)
        free(graph);
    else
        *out_graph = graph;
    return status;
}

enum sl_status sl_gpu_replay(struct sl_device *d, struct sl_graph *graph) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    enum sl_status status = sl_gpu_enter(c);
    return status ? status
                  : sl_gpu_check(c, c->driver.graph_launch(graph->exec, c->stream),
                                 "replaying a graph");
}

void sl_gpu_graph_free(struct sl_device *d, struct sl_graph *graph) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    /* The driver keeps what is still running; waiting makes "freed" mean it. */
    if (!sl_gpu_enter_to_end(c))
        (void)!sl_gpu_check(c, sl_gpu_await_stream(c, c->stream), "waiting for the device");
    c->driver.graph_exec_destroy(graph->exec);
    free(graph);
}
