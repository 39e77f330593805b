/* Recorded ops: what the stream captured, replayed by one call. */
#include "backends/cuda/cuda_internal.h"

#include <stdlib.h>

struct sl_graph {
    struct CUgraphExec_st *exec;
};

enum sl_status sl_cuda_record(struct sl_device *d) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    /* Relaxed: what other threads do on other devices meanwhile is no concern of this. */
    return status ? status
                  : sl_cuda_check(c, c->driver.capture_begin(c->stream, SL_CU_CAPTURE_RELAXED),
                                  "recording");
}

enum sl_status sl_cuda_recorded(struct sl_device *d, struct sl_graph **out_graph) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    struct CUgraph_st *captured = NULL;
    enum sl_status status = sl_cuda_enter(c);
    if (!status)
        status = sl_cuda_check(c, c->driver.capture_end(c->stream, &captured), "recording");
    if (status || !out_graph) {
        if (captured)
            c->driver.graph_destroy(captured);
        return status;
    }
    struct sl_graph *graph = calloc(1, sizeof *graph);
    status = graph ? sl_cuda_check(c, c->driver.graph_instantiate(&graph->exec, captured, 0),
                                   "making a graph")
                   : SL_ERR_NOMEM;
    c->driver.graph_destroy(captured);
    if (status) {
        free(graph);
        return status;
    }
    *out_graph = graph;
    return SL_OK;
}

enum sl_status sl_cuda_replay(struct sl_device *d, struct sl_graph *graph) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    return status ? status
                  : sl_cuda_check(c, c->driver.graph_launch(graph->exec, c->stream),
                                  "replaying a graph");
}

void sl_cuda_graph_free(struct sl_device *d, struct sl_graph *graph) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    /* The driver keeps what is still running; waiting makes "freed" mean it. */
    if (!sl_cuda_enter(c))
        (void)!sl_cuda_check(c, c->driver.stream_sync(c->stream), "waiting for the device");
    c->driver.graph_exec_destroy(graph->exec);
    free(graph);
}
