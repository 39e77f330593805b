#include "tests/support/fake_cuda/internal.h"

#include <stdlib.h>

/* Captured operations, copied. */
struct CUgraphExec_st {
    struct operations kept;
};

int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode);
int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode) {
    ENTER_STREAM("cuStreamBeginCapture_v2", stream);
    if (!stream || stream->capture || mode != SL_CU_CAPTURE_RELAXED)
        return fake_wrong();
    if (!(stream->capture = calloc(1, sizeof *stream->capture)))
        abort();
    stream->capture->kept.end = &stream->capture->kept.first;
    fake.live_objects++;
    return 0;
}

int cuGraphDestroy(struct CUgraph_st *graph);
int cuGraphDestroy(struct CUgraph_st *graph) {
    LOCKED;
    fake.n_calls++;
    fake_drop(&graph->kept);
    free(graph);
    fake.live_objects--;
    return 0;
}

int cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph);
int cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph) {
    LOCKED;
    struct CUgraph_st *captured = stream->capture;
    stream->capture = NULL; /* ended, also when it fails */
    int result = captured ? fake_enter("cuStreamEndCapture") : fake_wrong();
    if (result && captured)
        cuGraphDestroy(captured);
    *graph = result ? NULL : captured;
    return result;
}

int cuGraphInstantiateWithFlags(struct CUgraphExec_st **exec, struct CUgraph_st *graph,
                                unsigned long long flags);
int cuGraphInstantiateWithFlags(struct CUgraphExec_st **exec, struct CUgraph_st *graph,
                                unsigned long long flags) {
    ENTER_CONTEXT("cuGraphInstantiateWithFlags");
    if (!graph || flags)
        return fake_wrong();
    if (!(*exec = calloc(1, sizeof **exec)))
        abort();
    (*exec)->kept.end = &(*exec)->kept.first;
    for (const struct operation *o = graph->kept.first; o; o = o->next)
        fake_append(&(*exec)->kept, *o);
    fake.live_objects++;
    return 0;
}

int cuGraphExecDestroy(struct CUgraphExec_st *exec);
int cuGraphExecDestroy(struct CUgraphExec_st *exec) {
    LOCKED;
    fake.n_calls++;
    fake_drop(&exec->kept);
    free(exec);
    fake.live_objects--;
    return 0;
}

int cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream);
int cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream) {
    ENTER_STREAM("cuGraphLaunch", stream);
    if (!exec || !stream || stream->capture)
        return fake_wrong();
    for (const struct operation *o = exec->kept.first; o; o = o->next)
        fake_enqueue(stream, *o);
    return 0;
}
