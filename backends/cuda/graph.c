/* Recorded ops: kept one by one, launched together into a capture of the stream, where several may
 * become one kernel (fuse.c), and replayed by one call. */
#include "backends/cuda/cuda_internal.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 64u

struct sl_graph {
    struct CUgraphExec_st *exec;
};

enum sl_status sl_cuda_record(struct sl_device *d) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    c->recording.on = !status;
    c->recording.n = 0;
    return status;
}

enum sl_status sl_cuda_keep(struct sl_cuda *c, int kind, const void *args, size_t args_bytes) {
    struct sl_cuda_recording *r = &c->recording;
    if (r->n == r->room) {
        uint32_t room = r->room ? 2 * r->room : FIRST_ROOM;
        struct sl_cuda_op *op = realloc(r->op, room * sizeof *op);
        if (!op)
            return SL_ERR_NOMEM;
        r->op = op;
        r->room = room;
    }
    struct sl_cuda_op *op = &r->op[r->n++];
    op->kind = kind;
    memcpy(&op->u, args, args_bytes);
    return SL_OK;
}

/* Launches what was kept into *out_captured. */
static enum sl_status capture(struct sl_cuda *c, struct CUgraph_st **out_captured) {
    bool uploaded = c->uploaded; /* nothing of this runs now */
    enum sl_status status = sl_cuda_enter(c);
    /* Relaxed: what other threads do on other devices meanwhile is no concern of this. */
    if (!status)
        status = sl_cuda_check(c, c->driver.capture_begin(c->stream, SL_CU_CAPTURE_RELAXED),
                               "recording");
    if (status)
        return status;
    status = sl_cuda_emit(c, c->recording.op, c->recording.n);
    c->uploaded = uploaded;
    enum sl_status ended =
        sl_cuda_check(c, c->driver.capture_end(c->stream, out_captured), "recording");
    return status ? status : ended;
}

enum sl_status sl_cuda_recorded(struct sl_device *d, struct sl_graph **out_graph) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    struct CUgraph_st *captured = NULL;
    struct sl_graph *graph = NULL;
    c->recording.on = false;
    if (!out_graph)
        return SL_OK;
    enum sl_status status = capture(c, &captured);
    if (!status && !(graph = calloc(1, sizeof *graph)))
        status = SL_ERR_NOMEM;
    if (!status)
        status = sl_cuda_check(c, c->driver.graph_instantiate(&graph->exec, captured, 0),
                               "making a graph");
    if (captured)
        c->driver.graph_destroy(captured);
    if (status)
        free(graph);
    else
        *out_graph = graph;
    return status;
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
    if (!sl_cuda_enter_to_end(c))
        (void)!sl_cuda_check(c, sl_cuda_await_stream(c, c->stream), "waiting for the device");
    c->driver.graph_exec_destroy(graph->exec);
    free(graph);
}
